"""Puts a stand-alone module together: its docstring with notes, imports, constants, the user's functions, our own."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pipetune.core.distribution import Definition, StandaloneParts
from pipetune.core.errors import CannotExpress
from pipetune.core.operators import FLATTENING, READERS
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.emit.kind import Known
from pipetune.distributed.emit.sharding import MOST_WORKERS, Sharding
from pipetune.distributed.emit.statements import SOURCE_ROWS

_OWN_VARIABLES = {"input_context", "source", SOURCE_ROWS, "workers", "worker", "batch_size", "replicas", "options"}
_WIDTH = 108  # of a line of the docstring
_TENSORFLOW = Definition("tf", "import tensorflow as tf")


def module_text(
    parts: StandaloneParts,
    known: Known,
    *,
    what_for: str,
    usage: Iterable[str],
    paragraphs: Iterable[str],
    notes: Iterable[str],
    constants: Iterable[Definition],
    own: Iterable[Definition],
) -> str:
    """The module.

    Args:
        known: what its header says of it.
        what_for: the end of the first line of its docstring.
        usage: lines of code, shown there as they are.
        paragraphs: the text below them.
        notes: what differs from the pipeline on one machine, a clause each.
        constants: ours, on a line each.
        own: what else is ours, in order: imports, then functions.

    Raises:
        CannotExpress: two things have one name.
    """
    own = list(own)
    title = _plain(f"The tuned input pipeline of {known.script}, {what_for}.")
    lines = [f'"""{title}', "", *(f"    {_plain(line)}" if line else "" for line in usage)]
    for paragraph in paragraphs:
        lines += ["", *_wrapped(_plain(paragraph))]
    for source in (source for source in parts.sources.values() if source.takes_source):
        slices = source.gathers_rows or "from_tensor_slices" in source.expression
        call = "from_tensor_slices" if slices else "from_tensors"
        lines += ["", f"`source` is what the script gave to {call}, the same everywhere."]
    lines += ["", "What differs from the pipeline on one machine:"]
    for note in notes:
        lines += _wrapped(_plain(note) + ".", first="- ", rest="  ")
    lines += ["", *_wrapped(f"Written by pipetune. {_plain(known.checked)}"), '"""']
    lines += ["", "from __future__ import annotations", "", *_definitions(parts, list(constants), own)]
    for definition in own:
        if not definition.is_import:
            lines += ["", "", definition.text]
    text = "\n".join(lines) + "\n"
    ast.parse(text)  # whatever the user's names and literals are, what is written is Python
    return text


def function_of(signature: str, *, docstring: str, body: Iterable[str]) -> Definition:
    """A function `def <signature>:` with a docstring and statements, some of which may have several lines."""
    lines = [f"def {signature}:", f'    """{docstring}"""']
    lines += [f"    {line}" if line else "" for statement in body for line in statement.split("\n")]
    return Definition(signature.partition("(")[0], "\n".join(lines))


def prepared(parts: StandaloneParts, variables: frozenset[str] = frozenset()) -> tuple[StandaloneParts, bool]:
    """Returns the parts with the file names that a reader was given as a source of their own, `<id>.files`.

    Beside them whether the data of a source has to be given to the module.

    Args:
        variables: those of the functions of this kind of module, beyond the usual ones.

    Raises:
        CannotExpress: that of several sources would have to be, or the text of a user's function reads a variable of
            the function it is written into.
    """
    given = sum(source.takes_source for source in parts.sources.values())
    if given > 1:
        raise CannotExpress("Several sources hold data in memory that is too large to write down.")
    for name in sorted(names_read(parts)):
        if name in _OWN_VARIABLES | variables or name.rstrip("_0123456789") in {"dataset", "files"}:
            raise CannotExpress(f"A function uses the name {name}, which dataset_fn needs for itself.")
    files = {node.id: f"{node.id}.files" for node in parts.pipeline if node.op in READERS and not node.inputs}
    nodes: list[Node] = []
    for node in parts.pipeline:
        if node.id in files:
            nodes.append(Node(id=files[node.id], op="from_tensor_slices"))
            node = replace(node, inputs=(files[node.id],))
        nodes.append(node)
    sources = {files.get(name, name): source for name, source in parts.sources.items()}
    return replace(parts, pipeline=replace(parts.pipeline, nodes=tuple(nodes)), sources=sources), bool(given)


def names_read(parts: StandaloneParts) -> set[str]:
    """The names that the texts of the user's functions read where they are written into ours, without their own."""
    found: set[str] = set()
    for function in parts.functions.values():
        nodes = [*ast.walk(ast.parse(function.reference, mode="eval"))]
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        found |= {node.id for node in nodes if isinstance(node, ast.Name)} - own
    return found


def _definitions(parts: StandaloneParts, constants: list[Definition], own: list[Definition]) -> Iterator[str]:
    """Imports first, then our constants, then the user's constants and functions in the order they need."""
    merged = {definition.name: definition for definition in (_TENSORFLOW, *own) if definition.is_import}
    reserved = {definition.name for definition in (*constants, *own) if not definition.is_import}
    for definition in parts.definitions:
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


REPLICA_BATCHES = (
    "a batch holds the rows of one replica; all replicas together make one of the original size, which is not scaled: "
    "steps per epoch and learning rate stay the script's"
)


def division_notes(
    parts: StandaloneParts, where: Sharding, *, who: str = "worker", batches: str = REPLICA_BATCHES
) -> tuple[str, ...]:
    """What the division changes, a clause each; `who` reads a part, `batches` says how large a batch is."""
    return (*_division(parts, where, who), *_batches(parts, where, who, batches), *_order(parts, where, who))


def _division(parts: StandaloneParts, where: Sharding, who: str) -> Iterator[str]:
    pipeline = parts.pipeline
    if where.by == "file":
        counts = sorted(parts.sources[name].count for name in where.after)
        yield (
            f"each {who} reads files of its own ({' and '.join(map(str, counts))} files in all), divided in the order "
            "of their names and before any of them is shuffled"
        )
        if any(count % workers for count in counts for workers in range(2, MOST_WORKERS + 1)):
            yield f"some {who}s read a file more than others where their number does not divide the files"
    else:
        names = " and ".join(dict.fromkeys(pipeline[name].title for name in where.after))
        yield f"each {who} takes every n-th element behind {names}"
        if any(pipeline[name].inputs for name in where.after):
            yield f"everything above that runs on every {who}, so each one reads all of the data"


def _batches(parts: StandaloneParts, where: Sharding, who: str, batches: str) -> Iterator[str]:
    if where.batches:
        batch = parts.pipeline[where.batches[0]]
        yield batches
        if batch.op == "padded_batch":
            yield "rows are padded to the longest of one replica's batch, not of the whole batch"
        if batch.argument("drop_remainder"):
            yield f"drop_remainder drops the rows of each {who}'s last partial batch"
            if batches == REPLICA_BATCHES:
                yield "element_spec names the rows of a replica's batch, which an input_signature has to name too"
        else:
            differ = f", and {who}s may differ by a batch per epoch" if batches == REPLICA_BATCHES else ""
            yield f"each {who}'s last batch may be partial{differ}"
    else:
        inside = next((node for node in parts.pipeline if _makes_batches(node, parts.pipeline)), None)
        if inside is None:
            yield "the pipeline does not batch, so each replica gets one element per step"
        elif batches == REPLICA_BATCHES:
            yield (
                f"the function of {inside.title} makes the batches, which are not divided: each replica gets a whole "
                "one, so a step takes as many as there are replicas, and an epoch has fewer steps"
            )
        else:
            yield batches


def _makes_batches(node: Node, pipeline: Pipeline) -> bool:
    """Whether the datasets that the function of an operator makes hold batches, which come out as they are."""
    taken_apart = any(below.op in ("unbatch", "rebatch", *FLATTENING) for below in pipeline.downstream(node.id))
    return any("Batch" in kind for kind in node.inner) and not taken_apart


def _order(parts: StandaloneParts, where: Sharding, who: str) -> Iterator[str]:
    pipeline = parts.pipeline
    below = [node for node in pipeline if node.op == "shuffle" and node.id not in where.shared]
    if below:
        yield f"each {who} shuffles its own part"
    seeded = any(node.function is not None and node.function.random and node.function.seeded for node in pipeline)
    if seeded or any(node.argument("seed") is not None for node in below):
        yield f"seeds are kept: {who}s draw the same random numbers, for different elements"


def _plain(text: str) -> str:
    """Text that cannot end the docstring or start an escape."""
    return text.replace("\\", "/").replace('"""', "'''")


def _wrapped(text: str, *, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
