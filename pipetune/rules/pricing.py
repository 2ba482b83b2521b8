"""What rewrites are priced by: elements per epoch, bytes, and what operators cost.

A figure comes from the profile where it was measured, else from the static facts, else it is None: nothing is
guessed, and a rule that needs a price stays silent without one.
"""

from __future__ import annotations

from pipetune.core.amounts import element_bytes, elements_at_most
from pipetune.core.pipeline import AUTOTUNE, Node
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


def as_time(seconds: float) -> str:
    """A time for people: "0.2 us", "14 ms", "1,234 s"."""
    unit, scale = next(((name, one) for name, one in (("s", 1.0), ("ms", 1e-3)) if seconds >= one), ("us", 1e-6))
    value = seconds / scale
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def element_count(context: RuleContext, node_id: str) -> int | None:
    """Elements `node_id` puts out per epoch, at most; INFINITE, or None where it is not known."""
    return elements_at_most(context.pipeline, context.profile, node_id)


def bytes_per_element(context: RuleContext, node_id: str) -> float | None:
    """Bytes of one element that `node_id` puts out, or None where that is not known."""
    return element_bytes(context.pipeline, context.profile, node_id)


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


def waiting_per_output(context: RuleContext, node_id: str) -> float:
    """Seconds `node_id` itself waits, on no processor, per element of the pipeline; 0 where not measured apart."""
    measured = context.profile.operator(node_id) if context.profile else None
    if measured is None or measured.visits is None or measured.cpu_seconds is None:
        return 0.0
    return (measured.waiting_seconds or 0.0) * measured.visits


def held_by_shuffle(context: RuleContext, shuffle: Node) -> int:
    """Elements the buffer of `shuffle` holds: its size, or the whole data where that is less."""
    size = shuffle.argument("buffer_size")
    elements = element_count(context, shuffle.inputs[0])
    buffer = size if isinstance(size, int) and size > 0 else elements or 0
    return min(buffer, elements) if elements is not None and elements > 0 else max(buffer, 0)
