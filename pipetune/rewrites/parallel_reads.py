"""`parallel-interleave` and `read-shards`: several files or inner datasets read at once; advice on many small files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import Consent, Edit, NoProposal, ReplaceOperator, Rewrite, Safety, SetArgument
from pipetune.core.measurement import percent
from pipetune.core.operators import READERS
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.core.storage import SweepReader, read_config_fields, read_config_text, tfds_read_of
from pipetune.rewrites.pricing import bytes_per_element, element_count, format_bytes, format_seconds
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    at_each,
    describe_operator,
    describe_state,
    draws_random_numbers,
    inner_operator_facts,
    is_unknown,
    keeps_order,
    parallel_safety,
    positional_operator_after,
    runs_python,
)

PARALLEL_INTERLEAVE = "parallel-interleave"

_LONG_CYCLE = 16
"""A cycle length offered for storage with a high first-byte latency: the usual number of readers."""


def effective_cycle_length(node: Node, context: RuleContext) -> int:
    """Returns the effective cycle length of `node`; TensorFlow's default depends on the cores and the parallel calls.

    Source: `ComputeCycleLength` in parallel_interleave_dataset_op.cc and `MaxParallelism` in
    interleave_dataset_op.cc (TensorFlow 2.21).
    """
    written = node.argument("cycle_length")
    if isinstance(written, int) and written > 0:
        return written
    cores = max(1, context.serial_cycle_length or context.cores)
    calls = node.argument("num_parallel_calls")
    if calls is None:
        return cores
    if calls == AUTOTUNE:
        return -(-cores // 3)
    return min(calls, cores) if isinstance(calls, int) else cores


def effective_block_length(node: Node) -> int:
    """Returns the block length of `node` in elements; 1, TensorFlow's default, if the script sets none."""
    written = node.argument("block_length")
    return written if isinstance(written, int) and written > 0 else 1


@at_each("interleave")
def propose_parallel_interleave(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields cycle lengths and parallel calls to try for an interleave, or why there are none."""
    inputs, why = element_count(context, node.inputs[0]), ""
    if node.function is None:
        why = "Not run in parallel: nothing is known about its function."
    elif state := describe_state(node):
        why = f"Not run in parallel: its function {state}."
    elif not node.inner and is_unknown(context.pipeline[node.inputs[0]]):
        why = "Not run in parallel: nothing is known about what it reads."
    elif inputs == 1:
        why = "There is only one inner dataset: nothing to read in parallel."
    if why:
        yield NoProposal(PARALLEL_INTERLEAVE, node.id, why)
        return
    length = effective_cycle_length(node, context)
    # The runtime accepts at most the cycle length.
    for calls in dict.fromkeys((AUTOTUNE, *(n for n in (2, max(2, context.cores)) if n <= length))):
        if calls != node.argument("num_parallel_calls"):
            yield _interleave_rewrite(node, context, length=length, calls=calls)
    dropped = positional_operator_after(node, context)
    most = inputs if inputs is not None and inputs > 0 else _LONG_CYCLE
    for longer in dict.fromkeys((min(2 * length, most), min(_LONG_CYCLE, most))):
        if longer > length and dropped is not None:
            why = f"No longer cycle: {describe_operator(dropped)} would select different elements."
            yield NoProposal(PARALLEL_INTERLEAVE, node.id, why)
            return
        if longer > length:  # changes the order, so it is optional at best: one value is enough
            yield _interleave_rewrite(node, context, length=longer, calls=AUTOTUNE)


def _interleave_rewrite(node: Node, context: RuleContext, *, length: int, calls: int) -> Rewrite:
    current = effective_cycle_length(node, context)
    in_order = keeps_order(node, context)
    python, random = runs_python(node), draws_random_numbers(node)
    block = effective_block_length(node)
    values = {"cycle_length": length, "block_length": block, "num_parallel_calls": calls}
    edits = tuple(SetArgument(node.id, name, value) for name, value in values.items() if node.argument(name) != value)
    safety = in_parallel = parallel_safety(node, context)
    notes = []
    if python:
        safety = max(safety, Safety.STATISTICAL)
        notes.append("The inner datasets run Python: their code takes turns under the GIL.")
    elif random:
        notes.append("Parallel readers draw random numbers in the order in which they happen to run.")
    if length != current:
        safety = max(safety, Safety.REORDERS)
        notes.append(f"The cycle length grows from {current} to {length}, which changes the order.")
    calls_text = "AUTOTUNE readers" if calls == AUTOTUNE else f"{calls} readers"
    kept = "the order is kept" if length == current and in_order else "the order changes"
    return Rewrite(
        rule=PARALLEL_INTERLEAVE,
        node=node.id,
        safety=safety,
        edits=edits,
        summary=f"Read with {calls_text} at a time, cycle length {length}, block length {block}; {kept}.",
        needs=frozenset({Consent.PYTHON_PARALLEL}) if python else frozenset(),
        group=f"{PARALLEL_INTERLEAVE}@{node.id}",
        reproducible=not python and in_parallel is Safety.EXACT,
        notes=tuple(notes),
        predicted_bytes=_buffers(node, context, length=length, block=block),
    )


def _buffers(node: Node, context: RuleContext, *, length: int, block: int) -> float:
    """Returns the bytes at the kernel's limit: 2 L waiting inner datasets and L in the cycle, 2 B + 1 elements each."""
    size = bytes_per_element(context, node.id)
    return 0.0 if size is None else size * 3 * length * (2 * block + 1)


PARALLEL_INTERLEAVE_RULE = Rule(
    name=PARALLEL_INTERLEAVE,
    summary="Lets `interleave` read several of its inner datasets at once, and offers a longer cycle.",
    legality=(
        "`cycle_length` and `block_length` are always set explicitly to their effective values, because the "
        "default depends on the cores and changes when parallel calls are added. Parallel calls never exceed "
        "the cycle length, because the runtime rejects that. Never if the function uses a variable, a mutable "
        "table or a side effect, if nothing is known about it, or if there is only one inner dataset. No "
        "longer cycle upstream of a take, skip or shard, which would select different elements. Inner datasets "
        "that run Python (from_generator, py_function) need --allow python-parallel. A serial one stays serial "
        "upstream of ignore_errors: after an error, the order would be another one."
    ),
    safety=(
        "EXACT with the effective cycle and block length: parallel and serial interleave then agree element by "
        "element. STATISTICAL if inner datasets draw random numbers or run Python. REORDERS with a longer "
        "cycle. `deterministic=False` is treated as in parallel-map."
    ),
    propose=propose_parallel_interleave,
)


READ_SHARDS = "read-shards"

_BLOCK_LENGTHS = (1, 16)
_DEFAULT_PARALLEL_FILES = 16
"""Files at a time for storage with a high first-byte latency, if no sweep was measured: the usual number."""


@at_each("flat_map", "map", *READERS)
def propose_read_shards(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields how many files to read at once at a serial reader, or at a flat_map that opens them, or why not several.

    Of a map that opens small files it says what other files would gain.
    """
    if (small := describe_small_files(node, context)) is not None:
        yield NoProposal(READ_SHARDS, node.id, small)
    opens = node.op == "flat_map" and any(one.reads_files and one.source for one in inner_operator_facts(node))
    if not opens and (node.op not in READERS or node.argument("num_parallel_reads") is not None):
        return
    files, reader = _files(node, context), node.op in READERS
    if files == 1:
        if not reader:
            yield NoProposal(READ_SHARDS, node.id, "There is only one file: nothing to read in parallel.")
        return
    if why := describe_state(node) or ("runs Python" if runs_python(node) else ""):
        yield NoProposal(READ_SHARDS, node.id, f"Files are read one after the other: its function {why}.")
        return
    picker = positional_operator_after(node, context)
    for length in (1, *(() if picker else _candidate_cycle_lengths(node, context, files))):
        for block in _BLOCK_LENGTHS if length > 1 and not reader else _BLOCK_LENGTHS[:1]:
            edit: Edit = SetArgument(node.id, "num_parallel_reads", length)
            if not reader:
                values = {"cycle_length": length, "block_length": block, "num_parallel_calls": AUTOTUNE}
                edit = ReplaceOperator(node.id, "interleave", {**values, "deterministic": None})
            yield _shard_rewrite(node, context, edit, length=length, block=block)
    if picker is not None:
        why = f"One file at a time: with more, {describe_operator(picker)} would select different elements."
        yield NoProposal(READ_SHARDS, node.id, why)
    elif _knee(node, context) == 1:
        why = f"{describe_operator(node)} was measured with several files at a time, which was no faster than one."
        yield NoProposal(READ_SHARDS, node.id, why)


def _files(node: Node, context: RuleContext) -> int | None:
    count = element_count(context, node.inputs[0]) if len(node.inputs) == 1 else node.argument("files")
    return count if isinstance(count, int) and count > 0 else None


def _candidate_cycle_lengths(node: Node, context: RuleContext, files: int | None) -> tuple[int, ...]:
    """Returns how many files at a time to try: the number from which a sweep saw no more gain, else a few numbers."""
    knee = _knee(node, context)
    lengths = (max(2, context.cores), _DEFAULT_PARALLEL_FILES) if knee is None else (knee,)
    most = files if files is not None else _DEFAULT_PARALLEL_FILES
    return tuple(length for length in dict.fromkeys(min(length, most) for length in lengths) if length > 1)


def _knee(node: Node, context: RuleContext) -> int | None:
    sweeps = context.files.sweeps if context.files is not None else ()
    return next((one.knee for one in sweeps if one.reader is SweepReader.SOURCE and one.node == node.id), None)


def _shard_rewrite(node: Node, context: RuleContext, edit: Edit, *, length: int, block: int) -> Rewrite:
    in_order, random = keeps_order(node, context), draws_random_numbers(node)
    safety = Safety.EXACT if in_order and not random else Safety.STATISTICAL
    notes = []
    if random:
        notes.append("Random draws of the readers occur in the order in which the readers happen to run.")
    if length > 1:
        safety = Safety.REORDERS
        alternate = f"The elements of {length} files alternate, {block} at a time"
        notes.append(f"{alternate}: a different order, but the same in every epoch.")
        after = "1 element" if block == 1 else f"{block} elements"
        summary = f"Read {length} files at a time, alternating after {after} of each."
    else:
        summary = "Read the files ahead, in their original order, in parallel with the processing of their elements."
    return Rewrite(
        rule=READ_SHARDS,
        node=node.id,
        safety=safety,
        edits=(edit,),
        summary=summary,
        group=f"{READ_SHARDS}@{node.id}",
        reproducible=in_order and not random,
        notes=tuple(notes),
        predicted_bytes=_buffers(node, context, length=length, block=block),
    )


READ_SHARDS_RULE = Rule(
    name=READ_SHARDS,
    summary="Reads files ahead, or several at a time, if they are read one after the other.",
    legality=(
        "For TFRecordDataset, TextLineDataset and FixedLengthRecordDataset with several files and without "
        "num_parallel_reads, and for a flat_map that opens a file for each of its elements, which becomes an "
        "interleave with the same function. One file at a time keeps the order: while it is read, the next files are "
        "opened and their first elements read. With several at a time, files alternate after 1 or 16 elements; their "
        "number is what a sweep of the source found useful or, without a sweep, 2 or the number of cores, and 16. "
        "Several files are not proposed if the sweep found no gain, nor upstream of a take, skip or shard, which would "
        "select different elements. Never if the function keeps state or runs Python. If many small files hold one "
        "element each, the share of time spent opening them is measured, and an alternative is suggested."
    ),
    safety=(
        "EXACT with one file at a time; STATISTICAL if the opened datasets draw random numbers, or if the "
        "script sets `deterministic=False`. REORDERS with several files at a time."
    ),
    propose=propose_read_shards,
)


MIN_SAVED_SHARE = 0.05
"""Minimum saving as a share of the operator's cost: below it, other files would make no visible difference."""


def describe_small_files(node: Node, context: RuleContext) -> str | None:
    """Describes what converting to TFRecords would gain for a map that opens a small file for each element.

    Returns None if it is not such a map, or if nothing was measured.
    """
    use = context.files
    if node.op != "map" or node.function is None or not node.function.reads_files:
        return None
    if use is None or not use.has_many_small_files or use.small is None:
        return None
    small, measured = use.small, context.measured(node.id)
    if measured is None or not measured.wall_seconds:
        return None
    cost = max(measured.wall_seconds, small.apart_seconds)  # the sample was read at another time
    saved = small.apart_seconds - small.together_seconds
    opened = (
        f"{describe_operator(node)} opens one of {use.files:,} files of "
        f"{format_bytes(use.bytes_total / use.files)} for each element: {format_seconds(small.apart_seconds)} "
        f"per file, compared with {format_seconds(small.together_seconds)} per element from one TFRecord file "
        f"(measured on {small.files:,} files)."
    )
    if MIN_SAVED_SHARE * cost < saved < cost:
        return (
            f"{opened} Opening and reading take {percent(small.apart_seconds / cost)} of the operator's time; with "
            f"TFRecords it could be {cost / (cost - saved):.2f} times as fast. Write all files into a few shards once "
            "(tf.io.TFRecordWriter), and read tf.data.TFRecordDataset(shards, num_parallel_reads=tf.data.AUTOTUNE) "
            "instead of the paths."
        )
    part = "That is a small part of the operator's time"
    return f"{opened} {part}: a conversion to TFRecords would make no visible difference here."


def add_read_config_note(rewrite: Rewrite, context: RuleContext) -> Rewrite:
    """Adds a note with the equivalent `tfds.ReadConfig`; returns the rewrite unchanged if there is none."""
    reading = tfds_read_of(context.pipeline, rewrite.node)
    fields = read_config_fields(context.pipeline, rewrite.edits)
    if reading is None or not fields:
        return rewrite
    note = f"For {reading.call}, this is read_config={read_config_text(fields)}."
    return replace(rewrite, notes=(*rewrite.notes, note))
