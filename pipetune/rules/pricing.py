"""How many elements an operator puts out in one epoch, how large they are, and what they cost.

A figure comes from the profile where it was measured, else from the static facts, else it is None: nothing is
guessed, and a rule that needs a price stays silent without one.
"""

from __future__ import annotations

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node
from pipetune.rules.base import RuleContext

ASSUMED_AUTOTUNE_ELEMENTS = 8
"""Elements an autotuned buffer is taken to hold: the runtime's own number is known only while it runs."""


def as_size(size_bytes: float) -> str:
    """A number of bytes for people: "812 B", "1.2 GiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {units[unit]}" if unit == 0 or abs(value) >= 100 else f"{value:.1f} {units[unit]}"


def element_count(context: RuleContext, node_id: str) -> int | None:
    """Elements `node_id` puts out per epoch, at most; INFINITE, or None where it is not known."""
    above = _count_from_above(context, node_id)
    return above if above is not None else _count_from_below(context, node_id)


def _known_count(context: RuleContext, node: Node) -> int | None:
    counted = context.profile.cardinality if context.profile else None
    if counted is not None and counted.get(node.id, INFINITE - 1) >= INFINITE:
        return counted[node.id]
    return node.cardinality if node.cardinality >= INFINITE else None


def _count_from_above(context: RuleContext, node_id: str) -> int | None:
    node = context.pipeline[node_id]
    known = _known_count(context, node)
    if known is not None or len(node.inputs) != 1:
        return known
    above = _count_from_above(context, node.inputs[0])
    if above is None:
        return None
    return _through(node, above)


def _through(node: Node, above: int) -> int | None:
    """Elements put out for `above` elements taken in, at most."""
    operator = facts(node.op)
    if node.op == "repeat":
        count = node.argument("count")
        infinite = above == INFINITE or count is None or count == INFINITE
        return INFINITE if infinite else above * _whole(count, 1)
    if above == INFINITE:
        return None if node.op == "take_while" else _limit(node, INFINITE)
    if operator.batches:
        size = _whole(node.argument("batch_size"), 0)
        return -(-above // size) if size and operator.count is Count.FEWER else None
    if operator.count in (Count.ONE_TO_ONE, Count.FEWER):
        return _limit(node, above)
    return None


def _limit(node: Node, above: int) -> int:
    count = _whole(node.argument("count"), INFINITE)
    if node.op == "take" and count != INFINITE:
        return count if above == INFINITE else min(count, above)
    if node.op == "skip" and above != INFINITE and count >= 0:
        return max(0, above - count)
    return above


def _count_from_below(context: RuleContext, node_id: str) -> int | None:
    consumers = context.pipeline.consumers(node_id)
    if len(consumers) != 1 or len(consumers[0].inputs) != 1:
        return None
    (consumer,) = consumers
    known = _known_count(context, consumer)
    if known is None:
        known = _count_from_below(context, consumer.id)
    if known is None or known == INFINITE:
        return None
    if facts(consumer.op).count is Count.ONE_TO_ONE:
        return known
    size = _whole(consumer.argument("batch_size"), 0)
    whole = not consumer.argument("drop_remainder")
    return (
        known * size if consumer.op in ("batch", "padded_batch", "ragged_batch") and size and whole else None
    )


def bytes_per_element(context: RuleContext, node_id: str) -> float | None:
    """Bytes of one element that `node_id` puts out, or None where that is not known."""
    node = context.pipeline[node_id]
    measured = context.profile.operator(node_id) if context.profile else None
    if measured is not None and measured.bytes_out is not None:
        return measured.bytes_out
    if node.element_bytes is not None:
        return node.element_bytes
    if len(node.inputs) == 1:
        if facts(node.op).same_elements:
            return bytes_per_element(context, node.inputs[0])
        if node.op == "batch":
            size, above = _whole(node.argument("batch_size"), 0), bytes_per_element(context, node.inputs[0])
            return size * above if size and above is not None else None
    return _bytes_taken_in(context, node_id)


def _bytes_taken_in(context: RuleContext, node_id: str) -> float | None:
    """What the reader of `node_id` was measured to take in per element, where it takes one for one."""
    for consumer in context.pipeline.consumers(node_id):
        measured = context.profile.operator(consumer.id) if context.profile else None
        if measured is not None and measured.bytes_in and facts(consumer.op).count is Count.ONE_TO_ONE:
            return measured.bytes_in
    return None


def buffer_bytes(context: RuleContext, node_id: str, elements: int) -> float:
    """Memory of `elements` elements of `node_id`; 0 where their size is not known."""
    size = bytes_per_element(context, node_id)
    if size is None:
        return 0.0
    return size * (ASSUMED_AUTOTUNE_ELEMENTS if elements == AUTOTUNE else elements)


def seconds_per_output(context: RuleContext, node_id: str) -> float | None:
    """CPU seconds `node_id` itself spends per element of the whole pipeline."""
    measured = context.profile.operator(node_id) if context.profile else None
    if measured is None or measured.visits is None:
        return None
    cost = measured.cpu_seconds if measured.cpu_seconds is not None else measured.wall_seconds
    return None if cost is None else cost * measured.visits


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def held_by_shuffle(context: RuleContext, shuffle: Node) -> int:
    """Elements the buffer of `shuffle` holds: its size, or the whole data where that is less."""
    size = shuffle.argument("buffer_size")
    elements = element_count(context, shuffle.inputs[0])
    buffer = size if isinstance(size, int) and size > 0 else elements or 0
    return min(buffer, elements) if elements is not None and elements > 0 else max(buffer, 0)
