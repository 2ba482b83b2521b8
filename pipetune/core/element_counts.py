"""How many elements an operator outputs per epoch, and how large they are.

A figure comes from the profile if it was measured, else from the static facts, else it is computed from the neighboring
operators or from a mean of the profile, else it is None: nothing is guessed. Rules estimate the cost of rewrites by the
same figures by which the memory model enforces the memory limit.
"""

from __future__ import annotations

import math

from pipetune.core.edits import ROW_INDEX_BYTES
from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import Profile

_COUNTED_ALIKE = frozenset({"BatchDatasetV2", "PaddedBatchDatasetV2", "ParallelBatchDataset", "ZipDataset"})
"""Operators within a function whose number of elements depends on the number they get alone."""

_COUNTED_BY_MEAN = frozenset({"flat_map", "unbatch", "group_by_window"})
"""Operators that make any number of elements of one, and end with one before they take the next, or one of many, as
`bucket_by_sequence_length`. (Those of `interleave` overlap: what the profile has seen of them is incomplete.)"""

_ENOUGH_FOR_A_MEAN = 30
"""So many elements show how many others become of one. By judgement: where each becomes 1 to 20, the mean of 30 is off
by 10 % as a rule."""


def max_elements(pipeline: Pipeline, profile: Profile | None, node_id: str) -> int | None:
    """Returns the maximum number of elements `node_id` outputs per epoch, INFINITE, or None if unknown."""
    above = _from_upstream(pipeline, profile, node_id)
    return above if above is not None else _from_downstream(pipeline, profile, node_id)


def element_bytes(pipeline: Pipeline, profile: Profile | None, node_id: str) -> float | None:
    """Returns the bytes of one output element of `node_id`: measured, else static, else derived from its neighbors."""
    node = pipeline[node_id]
    if node_id in pipeline.row_index_operators:
        return ROW_INDEX_BYTES * (integer_or(node.argument("batch_size"), 1) if operator_facts(node.op).batches else 1)
    measured = profile.operator(node_id) if profile is not None else None
    if measured is not None and measured.bytes_out is not None:
        return measured.bytes_out
    if node.element_bytes is not None:
        return node.element_bytes
    if profile is not None and profile.element_bytes is not None and node_id == pipeline.output.id:
        return profile.element_bytes
    if len(node.inputs) == 1:
        if operator_facts(node.op).same_elements:
            return element_bytes(pipeline, profile, node.inputs[0])
        if node.op == "batch":
            size, above = integer_or(node.argument("batch_size"), 0), element_bytes(pipeline, profile, node.inputs[0])
            return size * above if size and above is not None else None
    return _consumed_bytes(pipeline, profile, node_id)


def integer_or(value: object, default: int) -> int:
    """Returns `value` if it is an integer (not a bool), else `default`."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _known_cardinality(profile: Profile | None, node: Node) -> int | None:
    counted = (profile.cardinality if profile is not None else None) or {}
    if counted.get(node.id, INFINITE - 1) >= INFINITE:
        return counted[node.id]
    return node.cardinality if node.cardinality >= INFINITE else None


def _from_upstream(pipeline: Pipeline, profile: Profile | None, node_id: str) -> int | None:
    node = pipeline[node_id]
    known = _known_cardinality(profile, node)
    if known is not None or len(node.inputs) != 1:
        return known
    above = _from_upstream(pipeline, profile, node.inputs[0])
    if above is not None and above != INFINITE and node.op in _COUNTED_BY_MEAN:
        return _measured_count(pipeline, profile, node, above)
    return None if above is None else _output_count(node, above)


def _measured_count(pipeline: Pipeline, profile: Profile | None, node: Node, above: int) -> int | None:
    """Returns how many elements `above` input elements become, by those of the profile; None if these are too few."""
    measured = profile.operator(node.id) if profile is not None else None
    if measured is None or not measured.ratio:
        return None
    seen = (measured.elements or 0) * min(1.0, measured.ratio)  # outputs, or inputs where these are fewer
    enough = _only_batches_windows(pipeline, node) or seen >= _ENOUGH_FOR_A_MEAN
    return math.ceil(above / measured.ratio) if enough else None


def _only_batches_windows(pipeline: Pipeline, node: Node) -> bool:
    """Whether each full window becomes as many elements as the next: `flat_map(lambda window: window.batch(9))`."""
    windows = node.op == "flat_map" and pipeline[node.inputs[0]].op == "window"
    return windows and bool(node.inner) and set(node.inner) <= _COUNTED_ALIKE


def _output_count(node: Node, above: int) -> int | None:
    """Returns the most elements that an operator outputs for `above` input elements, or INFINITE; None if unknown."""
    operator = operator_facts(node.op)
    if node.op == "repeat":
        count = node.argument("count")
        infinite = above == INFINITE or count is None or count == INFINITE
        return INFINITE if infinite else above * integer_or(count, 1)
    if above == INFINITE:
        return None if node.op == "take_while" else _limited_count(node, INFINITE)
    if operator.batches:
        size = integer_or(node.argument("batch_size"), 0)
        return -(-above // size) if size and operator.count is CountEffect.FEWER else None
    if operator.count in (CountEffect.ONE_TO_ONE, CountEffect.FEWER):
        return _limited_count(node, above)
    return None


def _limited_count(node: Node, above: int) -> int:
    count = integer_or(node.argument("count"), INFINITE)
    if node.op == "take" and count != INFINITE:
        return count if above == INFINITE else min(count, above)
    if node.op == "skip" and above != INFINITE and count >= 0:
        return max(0, above - count)
    if node.op == "shard" and above != INFINITE:
        return -(-above // max(1, integer_or(node.argument("num_shards"), 1)))
    return above


def _from_downstream(pipeline: Pipeline, profile: Profile | None, node_id: str) -> int | None:
    consumers = pipeline.consumers(node_id)
    if len(consumers) != 1 or len(consumers[0].inputs) != 1:
        return None
    (consumer,) = consumers
    known = _known_cardinality(profile, consumer)
    if known is None:
        known = _from_downstream(pipeline, profile, consumer.id)
    if known is None or known == INFINITE:
        return None
    if operator_facts(consumer.op).count is CountEffect.ONE_TO_ONE:
        return known
    if consumer.op == "repeat" and integer_or(consumer.argument("count"), 0) > 0:
        return -(-known // integer_or(consumer.argument("count"), 1))
    size = integer_or(consumer.argument("batch_size"), 0)
    if consumer.op not in ("batch", "padded_batch", "ragged_batch") or not size:
        return None
    return known * size + (size - 1 if consumer.argument("drop_remainder") else 0)


def _consumed_bytes(pipeline: Pipeline, profile: Profile | None, node_id: str) -> float | None:
    """Returns the bytes per element that a consumer of `node_id` was measured to get or pass on; None if unknown."""
    for consumer in pipeline.consumers(node_id):
        measured, facts = profile.operator(consumer.id) if profile is not None else None, operator_facts(consumer.op)
        if measured is not None and measured.bytes_in and facts.count is CountEffect.ONE_TO_ONE:
            return measured.bytes_in
        if measured is not None and measured.bytes_out and facts.same_elements:
            return measured.bytes_out
    return None
