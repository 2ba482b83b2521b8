"""The docstring of a stand-alone module, and the notes on what differs from the pipeline on one machine."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from pipetune.core.distribution import StandaloneParts
from pipetune.distributed.emit.sharding import MOST_WORKERS, Sharding

_WIDTH = 108


REPLICA_BATCHES = (
    "a batch holds the rows of one replica; all replicas together make one of the original size, which is not scaled: "
    "steps per epoch and learning rate stay the script's"
)


def notes(
    parts: StandaloneParts, where: Sharding, *, who: str = "worker", batches: str = REPLICA_BATCHES
) -> tuple[str, ...]:
    """What the division changes, a clause each; `who` reads a part, `batches` says how large a batch is."""
    return (*_division(parts, where, who), *_batches(parts, where, who, batches), *_order(parts, where, who))


def docstring(
    title: str, *, usage: Iterable[str], paragraphs: Iterable[str], notes: Iterable[str], checked: str
) -> Iterator[str]:
    """The lines of the module's docstring, quotes included.

    Args:
        title: its first line.
        usage: lines of code, shown as they are.
        paragraphs: the text below them.
        notes: what differs from the pipeline on one machine, a clause each.
        checked: how the module was checked, a sentence.
    """
    yield f'"""{_plain(title)}'
    yield ""
    yield from (f"    {_plain(line)}" if line else "" for line in usage)
    for paragraph in paragraphs:
        yield ""
        yield from _wrapped(_plain(paragraph))
    yield ""
    yield "What differs from the pipeline on one machine:"
    for note in notes:
        yield from _wrapped(_plain(note) + ".", first="- ", rest="  ")
    yield ""
    yield from _wrapped(f"Written by pipetune. {_plain(checked)}")
    yield '"""'


def what_source_is(parameter: bool) -> tuple[str, ...]:
    """The paragraph on the argument `source`, where the module takes it."""
    return ("`source` is what the script gave to from_tensor_slices, the same everywhere.",) if parameter else ()


def _division(parts: StandaloneParts, where: Sharding, who: str) -> Iterator[str]:
    pipeline = parts.pipeline
    if where.by == "file":
        counts = sorted(parts.sources[name].count for name in where.after)
        yield (
            f"each {who} reads files of its own ({counts[0]} files in all), divided in the order of their "
            "names and before any of them is shuffled"
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
        yield "the pipeline does not batch, so each replica gets one element per step"


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
