"""Counts the elements per epoch where TensorFlow does not know the cardinality: readers of record files."""

from __future__ import annotations

import math
import time

import tensorflow as tf

from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines.live import READERS, LivePipeline

_ROWS = 256  # elements per batch while counting; they are held as they are: some 25 MB of images as large as ImageNet's


def count_elements(source: LivePipeline, *, limit_seconds: float) -> dict[str, int]:
    """Returns the elements per epoch of every node whose count is known or can be found in `limit_seconds`.

    Iterates the pipeline up to its last reader once, without decoding anything; downstream of it, one-to-one
    operators and batches are computed by arithmetic. Nodes downstream of an infinite repeat, a filter or an unknown
    operator are left out.

    Args:
        limit_seconds: time limit for iterating one reader.
    """
    pipeline = source.pipeline
    counts = {node.id: node.cardinality for node in pipeline if node.cardinality >= 0}
    for node in pipeline:
        if node.id in counts:
            continue
        found = _from_upstream(node, counts)
        if found is None and _reads_records(node, pipeline):
            found = _iterate(source.datasets[node.id], limit_seconds)
        if found is not None:
            counts[node.id] = found
    return counts


def _reads_records(node: Node, pipeline: Pipeline) -> bool:
    """Whether `node` is a reader that can be iterated only to count it: no Python, no side effects, no map upstream."""
    function = node.function
    if node.op not in READERS | {"interleave", "flat_map"}:
        return False
    if function is not None and (function.python or function.side_effects or function.writes_variables):
        return False
    return all(above.op not in ("map", "repeat", "from_generator", "opaque") for above in pipeline.upstream(node.id))


def _from_upstream(node: Node, counts: dict[str, int]) -> int | None:
    if len(node.inputs) != 1 or node.inputs[0] not in counts:
        return None
    above = counts[node.inputs[0]]
    if node.op in ("batch", "padded_batch"):
        size = node.argument("batch_size")
        if not isinstance(size, int) or size < 1:
            return None
        return above // size if node.argument("drop_remainder") else math.ceil(above / size)
    return above if operator_facts(node.op).count is CountEffect.ONE_TO_ONE and node.op != "scan" else None


def _iterate(dataset: tf.data.Dataset, limit_seconds: float) -> int | None:
    end = time.perf_counter() + limit_seconds
    total = 0
    scalar = isinstance(dataset.element_spec, tf.TensorSpec) and dataset.element_spec.shape.rank == 0
    # A call per element takes longer than reading a record: only what cannot be batched as it is becomes a number.
    ones = dataset if scalar else dataset.map(lambda *_element: tf.constant(1, tf.int64))
    try:
        for rows in ones.batch(_ROWS):
            total += int(rows.shape[0])
            if time.perf_counter() > end:
                return None
    except tf.errors.OpError:
        return None
    return total
