"""Counts the elements per epoch where TensorFlow does not know the cardinality: record files and generators."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from pipetune.core.operators import FLATTENING, READERS, CountEffect, operator_facts
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.pipelines.live import LivePipeline

_ROWS = 256  # elements per batch while counting; they are held as they are: some 25 MB of images as large as ImageNet's
_LOOKS = (9, 64, 512)  # elements, by judgement: one at a time, to see whether a batch of them may be counted at once
_AT_ONCE = 0.25  # of the time limit, by judgement: what counting a batch may take

_OPENING = frozenset(
    {"Const", "FlatMapDataset", "Identity", "NoOp", "Placeholder", "Reshape", "TFRecordDataset", "TensorSliceDataset"}
)
"""Operations of a function that only opens a TFRecord file."""

_READING = READERS | FLATTENING | {"CsvDataset", "SqlDataset"}


def count_elements(
    source: LivePipeline, *, limit_seconds: float, known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Returns the elements per epoch of every node whose count is known or can be found in `limit_seconds`.

    The lengths in TFRecord files tell how many records they have. Of other files the pipeline is iterated up to its
    last reader once, without decoding anything, and so are Python generators, also those in an interleave; downstream
    of them the counts are computed by arithmetic. Nodes downstream of an infinite repeat, a filter or an unknown
    operator are left out.

    Args:
        source: the live pipeline.
        limit_seconds: time limit for iterating one reader or generator.
        known: what was counted before.
    """
    pipeline = source.pipeline
    counts = {**(known or {}), **{node.id: node.cardinality for node in pipeline if node.cardinality >= 0}}
    for node in pipeline:
        inputs = [name for name in node.inputs if node.op != "zip" or pipeline[name].cardinality != INFINITE]
        found, above = counts.get(node.id), [counts[name] for name in inputs if name in counts]
        if found is None and 0 < len(above) == len(inputs):
            found = output_count(node, above)
        if found is None and _can_be_iterated(node, pipeline):
            found = _records(source, node, limit_seconds)
            found = _iterate(source.datasets[node.id], limit_seconds) if found is None else found
        if found is not None:
            counts[node.id] = found
    return counts


def _can_be_iterated(node: Node, pipeline: Pipeline) -> bool:
    """Whether `node` is a reader or a generator that is iterated only to count it: no side effects, no map upstream."""
    function = node.function
    if node.op == "from_generator":
        return True
    if node.op not in _READING or (function is not None and (function.side_effects or function.writes_variables)):
        return False
    return all(above.op not in ("map", "repeat", "from_generator", "opaque") for above in pipeline.upstream(node.id))


def output_count(node: Node, above: Sequence[int]) -> int | None:
    """Returns the exact element count of an operator from those of its inputs; None if they do not determine it."""
    match node.op:
        case "concatenate":
            return sum(above)
        case "zip":
            return min(above)
        case "batch" | "padded_batch":
            size = node.argument("batch_size")
            if not isinstance(size, int) or size < 1:
                return None
            return above[0] // size if node.argument("drop_remainder") else math.ceil(above[0] / size)
        case "take" | "skip":
            count = node.argument("count")
            if not isinstance(count, int):
                return None
            taken = above[0] if count < 0 else min(count, above[0])
            return taken if node.op == "take" else above[0] - taken
        case "shard":
            shards, index = node.argument("num_shards"), node.argument("index")
            return len(range(index, above[0], shards)) if isinstance(shards, int) and isinstance(index, int) else None
    one_to_one = operator_facts(node.op).count is CountEffect.ONE_TO_ONE
    return above[0] if one_to_one and len(above) == 1 else None


def _records(source: LivePipeline, node: Node, limit_seconds: float) -> int | None:
    """Returns how many records a reader of TFRecord files has; None if it is no plain one, or if time runs out."""
    if not (_opens_its_elements(source, node) if node.op in FLATTENING else node.op == "TFRecordDataset"):
        return None
    named = source.datasets[node.inputs[0]] if node.inputs else source.datasets[node.id]._filenames
    end, total = time.perf_counter() + limit_seconds, 0
    for names in [named] if isinstance(named, tf.Tensor) else named:
        for name in map(os.fsdecode, np.ravel(names.numpy())):
            found = _records_of_file(name, end)
            if found is None:
                return None
            total += found
    return total


def _opens_its_elements(source: LivePipeline, node: Node) -> bool:
    """Whether the elements above are names, and the function does no more than open the TFRecord files of that name."""
    only_opens = node.function is not None and _OPENING.issuperset(node.function.operations)
    if not only_opens or node.inner != ("TFRecordDataset",):
        return False
    graph = source.datasets[node.id]._map_func.function.graph
    opened = [op.inputs[0] for op in graph.get_operations() if op.type == "TensorSliceDataset"]
    while opened and opened[0].op.type in ("Identity", "Reshape"):
        opened = [opened[0].op.inputs[0]]
    single = isinstance(source.datasets[node.inputs[0]].element_spec, tf.TensorSpec)
    return single and [one.name for one in opened] == [graph.inputs[0].name]


def _records_of_file(name: str, end: float) -> int | None:
    """Returns the number of records of a file by the lengths before them; None if it is no uncompressed TFRecord file.

    Source: tensorflow/core/lib/io/record_writer.h. A record is its length (8 bytes), a checksum of that (4), the data,
    and a checksum of these (4).
    """
    total, offset = 0, 0
    try:
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while offset < size and time.perf_counter() < end:
                (length,) = struct.unpack("<Q", os.pread(file.fileno(), 8, offset))
                offset += length + 16
                total += 1
    except (OSError, struct.error):
        return None
    return total if offset == size else None


def _iterate(dataset: tf.data.Dataset, limit_seconds: float) -> int | None:
    """Returns the number of elements; None if time runs out, or if it raises."""
    begun = time.perf_counter()
    scalar = isinstance(dataset.element_spec, tf.TensorSpec) and dataset.element_spec.shape.rank == 0
    # A call per element takes longer than reading a record: only what cannot be batched as it is becomes a number.
    ones = dataset if scalar else dataset.map(lambda *_element: tf.constant(1, tf.int64))
    try:
        total, seen, since = 0, 1, begun
        for total, _ in enumerate(ones, 1):
            now = time.perf_counter()
            since = now if total == 1 else since
            if now > begun + limit_seconds:
                return None
            if total in _LOOKS:  # the first ones of an interleave may open a file each
                if (now - since) * _ROWS < _AT_ONCE * limit_seconds * (total - seen):
                    break
                seen, since = total, now
        else:
            return total
        total = 0
        for rows in ones.batch(_ROWS):
            total += int(rows.shape[0])
            if time.perf_counter() > begun + limit_seconds:
                return None
    except tf.errors.OpError:
        return None
    return total
