"""Puts a stand-alone module together: its docstring, imports, constants, the user's functions, our own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pipetune.core.distribution import Definition, StandaloneParts
from pipetune.core.errors import CannotExpress
from pipetune.distributed.emit.sharding import with_file_nodes
from pipetune.distributed.emit.steps import SOURCE_ROWS

_OWN_VARIABLES = frozenset(
    {"input_context", "source", SOURCE_ROWS, "workers", "worker", "batch_size", "replicas", "options"}
)
_TENSORFLOW = Definition("tf", "import tensorflow as tf")


def module_text(
    parts: StandaloneParts, *, docstring: Iterable[str], constants: Iterable[Definition], own: Iterable[Definition]
) -> str:
    """The module.

    Args:
        docstring: its lines.
        constants: ours, on a line each.
        own: what else is ours, in order: imports, then functions.

    Raises:
        CannotExpress: two things have one name.
    """
    constants, own = list(constants), list(own)
    functions = [definition for definition in own if not definition.is_import]
    lines = [*docstring, "", "from __future__ import annotations", ""]
    lines += _definitions(parts, constants, own)
    for function in functions:
        lines += ["", "", function.text]
    text = "\n".join(lines) + "\n"
    ast.parse(text)  # whatever the user's names and literals are, what is written is Python
    return text


def function_of(signature: str, *, docstring: str, body: Iterable[str]) -> Definition:
    """A function `def <signature>:` with a docstring and statements, some of which may have several lines."""
    lines = [f"def {signature}:", f'    """{docstring}"""']
    lines += [f"    {line}" if line else "" for statement in body for line in statement.split("\n")]
    return Definition(signature.partition("(")[0], "\n".join(lines))


def has_parameter(parts: StandaloneParts) -> bool:
    """Whether the data of a source has to be given to the module.

    Raises:
        CannotExpress: that of several sources would have to be.
    """
    found = sum(source.takes_source for source in parts.sources.values())
    if found > 1:
        raise CannotExpress("Several sources hold data in memory that is too large to write down.")
    return bool(found)


def with_file_sources(parts: StandaloneParts) -> StandaloneParts:
    """The parts with a node, and a source, of its own for the file names inside a reader."""
    pipeline = with_file_nodes(parts.pipeline)
    sources = {
        (f"{name}.files" if f"{name}.files" in pipeline else name): source for name, source in parts.sources.items()
    }
    return replace(parts, pipeline=pipeline, sources=sources)


def check_references(parts: StandaloneParts, variables: frozenset[str] = frozenset()) -> None:
    """Refuses a function whose text would read a variable of the function it is written into.

    Args:
        variables: those that the kind of module has beyond the usual ones.

    Raises:
        CannotExpress: one would.
    """
    for name in sorted(names_read(parts)):
        if name in _OWN_VARIABLES | variables or name.rstrip("_0123456789") in {"dataset", "files"}:
            raise CannotExpress(f"A function uses the name {name}, which dataset_fn needs for itself.")


def names_read(parts: StandaloneParts) -> set[str]:
    """The names that the texts of the user's functions read where they are written into ours."""
    trees = (ast.parse(function.reference, mode="eval") for function in parts.functions.values())
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _definitions(parts: StandaloneParts, constants: list[Definition], own: list[Definition]) -> Iterator[str]:
    """Imports first, then our constants, then the user's constants and functions in the order they need."""
    merged: dict[str, Definition] = {
        definition.name: definition for definition in (_TENSORFLOW, *own) if definition.is_import
    }
    reserved = {definition.name for definition in (*constants, *own) if not definition.is_import}
    needed = [definition for function in parts.functions.values() for definition in function.definitions]
    needed += [definition for source in parts.sources.values() for definition in source.definitions]
    for definition in needed:
        known = merged.setdefault(definition.name, definition)
        if definition.name in reserved or known.text != definition.text:
            raise CannotExpress(f"Two different things are called {definition.name}, and one module can hold only one.")
    imports = {definition.text for definition in merged.values() if definition.is_import}
    of_python = {definition.text for definition in own if definition.is_import}
    yield from sorted(of_python)
    if of_python:
        yield ""
    yield from sorted(imports - of_python, key=lambda text: (text.startswith("from "), text))
    yield ""
    yield from (constant.text for constant in constants)
    for definition in merged.values():
        if not definition.is_import:
            yield from ["", "", definition.text] if "\n" in definition.text else [definition.text]
