"""`read-shards`: read ahead, or several at a time, files that are read one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Edit, ReplaceOperator, Rewrite, Safety, SetArgument, Silence
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.core.storage import Reader
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import (
    described,
    deterministic,
    draws,
    inner_facts,
    keeps_state,
    picks_by_place,
    runs_python,
)
from pipetune.rules.pricing import bytes_per_element, element_count
from pipetune.rules.small_files import many_small_files

NAME = "read-shards"

_READERS = frozenset({"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"})
_BLOCKS = (1, 16)
_WIDE = 16
"""Files at a time for storage with a high first-byte latency, if no sweep was measured: the usual number."""


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op in _READERS and node.argument("num_parallel_reads") is None:
            yield from _at_reader(node, context)
        elif node.op == "flat_map" and any(inner.reads_files and inner.source for inner in inner_facts(node)):
            yield from _at_flat_map(node, context)
        elif (small := many_small_files(node, context)) is not None:
            yield Silence(NAME, node.id, small)


def _at_reader(node: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    files = _files(node, context)
    if files == 1:
        return
    picks = picks_by_place(node, context)
    for length in (1, *(() if picks else _lengths(node, context, files))):
        edits = (SetArgument(node.id, "num_parallel_reads", length),)
        yield _rewrite(node, context, edits, length=length, block=1)
    yield from _no_gain(node, context, picks)


def _at_flat_map(node: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    files = _files(node, context)
    if files == 1:
        yield Silence(NAME, node.id, "There is one file: nothing to read beside it.")
        return
    state = keeps_state(node)
    if state or runs_python(node):
        yield Silence(NAME, node.id, f"Files are read in turn: its function {state or 'runs Python'}.")
        return
    picks = picks_by_place(node, context)
    for length in (1, *(() if picks else _lengths(node, context, files))):
        for block in _BLOCKS if length > 1 else _BLOCKS[:1]:
            wanted = {"cycle_length": length, "block_length": block, "num_parallel_calls": AUTOTUNE}
            edits = (ReplaceOperator(node.id, "interleave", {**wanted, "deterministic": None}),)
            yield _rewrite(node, context, edits, length=length, block=block)
    yield from _no_gain(node, context, picks)


def _files(node: Node, context: RuleContext) -> int | None:
    if len(node.inputs) == 1:
        count = element_count(context, node.inputs[0])
    else:
        count = files if isinstance(files := node.argument("files"), int) else None
    return count if count is not None and count > 0 else None


def _lengths(node: Node, context: RuleContext, files: int | None) -> tuple[int, ...]:
    """Returns how many files at a time to try: the number from which a sweep saw no more gain, else a few numbers."""
    knee = _knee(node, context)
    wanted = (max(2, context.cores), _WIDE) if knee is None else (knee,)
    most = files if files is not None else _WIDE
    return tuple(length for length in dict.fromkeys(min(length, most) for length in wanted) if length > 1)


def _knee(node: Node, context: RuleContext) -> int | None:
    use = context.profile.files if context.profile is not None else None
    sweeps = use.sweeps if use is not None else ()
    return next((one.knee for one in sweeps if one.reader is Reader.SOURCE and one.node == node.id), None)


def _no_gain(node: Node, context: RuleContext, picks: Node | None) -> Iterator[Silence]:
    if picks is not None:
        yield Silence(NAME, node.id, f"One file at a time: {described(picks)} would let elements of others through.")
    elif _knee(node, context) == 1:
        yield Silence(
            NAME, node.id, f"{described(node)} was run with several files at a time, which was no faster than one."
        )


def _rewrite(node: Node, context: RuleContext, edits: tuple[Edit, ...], *, length: int, block: int) -> Rewrite:
    in_order, random = deterministic(node, context), draws(node)
    safety = Safety.STATISTICAL if random else Safety.EXACT
    notes = []
    if random:
        notes.append("What draws random numbers in each file draws them in the order the readers happen to run.")
    if not in_order:
        safety = Safety.STATISTICAL
    if length > 1:
        safety = Safety.REORDERS
    if length > 1:
        notes.append(f"Elements of {length} files take turns, {block} at a time: another order, the same every epoch.")
        summary = f"Read {length} files at a time, {_elements(block)} of each in turn."
    else:
        summary = "Read the files ahead, in the order they have, beside what is done with their elements."
    size = bytes_per_element(context, node.id)
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=safety,
        edits=edits,
        summary=summary,
        group=f"{NAME}@{node.id}",
        reproducible=in_order and not random,
        notes=tuple(notes),
        # The kernel's own limit: 2 L waiting files and L in the cycle, 2 B + 1 elements of each.
        predicted_bytes=0.0 if size is None else size * 3 * length * (2 * block + 1),
    )


def _elements(block: int) -> str:
    return "1 element" if block == 1 else f"{block} elements"


RULE = Rule(
    name=NAME,
    summary="Reads files ahead, or several at a time, where they are read one after the other.",
    legality=(
        "For TFRecordDataset, TextLineDataset and FixedLengthRecordDataset of several files that do not say "
        "num_parallel_reads, and for a flat_map that opens a file for each of its elements, which becomes an "
        "interleave with the same function. One file at a time keeps the order: the next ones are opened, and their "
        "first elements read, while this one is. Several at a time take turns, by as many files as a sweep of the "
        "source found useful (2 or the cores, and 16, where there was none), 1 or 16 elements of each; none where "
        "the sweep found no gain, nor above a take, skip or shard, which would give other elements. Never where the "
        "function keeps state or runs Python. Where many small files hold one element each, the share of opening them "
        "is measured, and what to write in their place is said."
    ),
    safety=(
        "EXACT with one file at a time; STATISTICAL where what is opened draws random numbers, or the script "
        "sets `deterministic=False`. REORDERS with several files at a time."
    ),
    propose=propose,
)
