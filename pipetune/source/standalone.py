"""Writes a stand-alone module with `dataset_fn(input_context)`: the tuned pipeline, divided among workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipetune.core.errors import CannotExpress
from pipetune.core.standalone import Definition, StandaloneParts
from pipetune.source import standalone_header as header
from pipetune.source.standalone_body import Body
from pipetune.source.standalone_sharding import sharding, with_file_nodes
from pipetune.source.standalone_steps import SOURCE_ROWS

KINDS = ("multiworker", "mirrored")
_OWN_NAMES = frozenset({"dataset_fn"})
_OWN_VARIABLES = frozenset(
    {"input_context", "source", SOURCE_ROWS, "workers", "worker", "batch_size", "replicas", "options"}
)


@dataclass(frozen=True)
class Standalone:
    """The module's text, what changed against the pipeline on one machine, and how it divides the data."""

    text: str
    notes: tuple[str, ...]
    shard_by: str  # "file" or "element"
    global_batch_size: int | None  # rows of all replicas together; None: the pipeline does not batch


def emit_standalone(
    parts: StandaloneParts, kind: str, *, script: str, checked: str = "Not checked."
) -> Standalone:
    """The module for `parts`.

    Args:
        kind: "multiworker" or "mirrored"; the module is right for both, the header shows the one.
        script: the name of the user's script, for the header.
        checked: how the module was checked, a sentence for the header.

    Raises:
        CannotExpress: the pipeline has no faithful stand-alone form; the message says why.
    """
    if kind not in KINDS:
        raise CannotExpress(f"No stand-alone form is known for {kind!r}.", hint=f"Known: {', '.join(KINDS)}.")
    if sum(source.parameter for source in parts.sources.values()) > 1:
        raise CannotExpress("Several sources hold data in memory that is too large to write down.")
    parameter = any(source.parameter for source in parts.sources.values())
    parts = _with_file_sources(parts)
    _check_references(parts)
    where = sharding(parts.pipeline, parts.sources)
    body = Body(parts, where)
    notes = (*header.notes(parts, where), *body.notes)
    lines = [
        *header.docstring(kind=kind, script=script, parameter=parameter, notes=notes, checked=checked),
        "",
        "from __future__ import annotations",
        "",
        *_definitions(parts, body.constants),
        "",
        "",
        f"def dataset_fn(input_context{', *, source' if parameter else ''}):",
        '    """The part of the data that one input pipeline reads, in batches for one replica."""',
        *(f"    {line}" if line else "" for lines in body.lines for line in lines.split("\n")),
    ]
    text = "\n".join(lines) + "\n"
    ast.parse(text)  # whatever the user's names and literals are, what is written is Python
    return Standalone(text, notes, where.by, body.global_batch_size)


def _with_file_sources(parts: StandaloneParts) -> StandaloneParts:
    """The parts with a node, and a source, of its own for the file names inside a reader."""
    pipeline = with_file_nodes(parts.pipeline)
    sources = {
        (f"{name}.files" if f"{name}.files" in pipeline else name): source
        for name, source in parts.sources.items()
    }
    return replace(parts, pipeline=pipeline, sources=sources)


def _check_references(parts: StandaloneParts) -> None:
    """Refuses a function whose text would read a variable of `dataset_fn` instead of its own."""
    for function in parts.functions.values():
        tree = ast.parse(function.reference, mode="eval")
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for name in sorted(names):
            if name in _OWN_VARIABLES or name.rstrip("_0123456789") in {"dataset", "files"}:
                raise CannotExpress(f"A function uses the name {name}, which dataset_fn needs for itself.")


def _definitions(parts: StandaloneParts, constants: list[Definition]) -> Iterator[str]:
    """Imports first, then our constants, then the user's constants and functions in the order they need."""
    merged: dict[str, Definition] = {"tf": Definition("tf", "import tensorflow as tf")}
    reserved = _OWN_NAMES | {definition.name for definition in constants}
    needed = [definition for function in parts.functions.values() for definition in function.definitions]
    needed += [definition for source in parts.sources.values() for definition in source.definitions]
    for definition in needed:
        known = merged.setdefault(definition.name, definition)
        if definition.name in reserved or known.text != definition.text:
            raise CannotExpress(
                f"Two different things are called {definition.name}, and one module can hold only one."
            )
    imports = sorted(
        {definition.text for definition in merged.values() if definition.is_import},
        key=lambda text: (text.startswith("from "), text),
    )
    yield from imports
    yield ""
    yield from (constant.text for constant in constants)
    for definition in merged.values():
        if not definition.is_import:
            yield from ["", "", definition.text] if "\n" in definition.text else [definition.text]
