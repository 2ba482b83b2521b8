"""Figures to price rewrites: elements per epoch, bytes, and the cost of operators.

A figure comes from the profile if it was measured, else from the static facts, else it is None: nothing is
guessed, and a rule that needs a missing figure proposes nothing.
"""

from __future__ import annotations

from pipetune.core.element_counts import element_bytes, max_elements
from pipetune.core.functions import FunctionVariant
from pipetune.core.measurement import percent
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rewrites.rule import RuleContext, describe_operator

ASSUMED_AUTOTUNE_ELEMENTS = 8
"""Assumed number of elements in an autotuned buffer: the actual number is known only at run time."""


def format_bytes(size_bytes: float) -> str:
    """Returns a number of bytes as text: "812 B", "1.2 GiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {units[unit]}" if unit == 0 or abs(value) >= 100 else f"{value:.1f} {units[unit]}"


def format_seconds(seconds: float) -> str:
    """Returns a duration as text: "0.2 us", "14 ms", "1,234 s"."""
    unit, scale = next(((name, one) for name, one in (("s", 1.0), ("ms", 1e-3)) if seconds >= one), ("us", 1e-6))
    value = seconds / scale
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def element_count(context: RuleContext, node_id: str) -> int | None:
    """Returns the maximum number of elements that `node_id` outputs per epoch, or `INFINITE`; None if not known."""
    return max_elements(context.pipeline, context.profile, node_id)


def bytes_per_element(context: RuleContext, node_id: str) -> float | None:
    """Returns the bytes of one element that `node_id` outputs; None if not known."""
    return element_bytes(context.pipeline, context.profile, node_id)


def buffer_bytes(context: RuleContext, node_id: str, elements: int) -> float:
    """Returns the bytes of `elements` (AUTOTUNE is allowed) elements of `node_id`; 0 if their size is not known."""
    size = bytes_per_element(context, node_id)
    if size is None:
        return 0.0
    return size * (ASSUMED_AUTOTUNE_ELEMENTS if elements == AUTOTUNE else elements)


def seconds_per_output(context: RuleContext, node_id: str) -> float | None:
    """Returns CPU seconds (else wall seconds) of `node_id` itself per output element of the pipeline, if measured."""
    measured = context.measured(node_id)
    if measured is None or measured.visits is None:
        return None
    cost = measured.cpu_seconds if measured.cpu_seconds is not None else measured.wall_seconds
    return None if cost is None else cost * measured.visits


def blocked_seconds_per_output(context: RuleContext, node_id: str) -> float:
    """Returns blocked seconds of `node_id` itself per output element of the pipeline; 0 if not measured separately."""
    measured = context.measured(node_id)
    if measured is None or measured.visits is None or measured.cpu_seconds is None:
        return 0.0
    return (measured.waiting_seconds or 0.0) * measured.visits


def small_saving(context: RuleContext, node: Node, form: FunctionVariant, *, least: float) -> str:
    """Returns what a variant of the function of `node` saves, in words, if that is below the share `least`; else ""."""
    measured = context.measured(node.id)
    shares = measured.variant_shares if measured is not None else None
    share = shares.get(form) if shares is not None else None
    if share is None or share <= 1 - least:
        return ""
    return f"{percent(1 - share)} of the cost of {describe_operator(node)}" if share < 1 else "nothing"


def shuffle_buffer_elements(context: RuleContext, shuffle: Node) -> int:
    """Returns how many elements the buffer of `shuffle` holds: its size, or the whole data if that is less."""
    size = shuffle.argument("buffer_size")
    elements = element_count(context, shuffle.inputs[0])
    buffer = size if isinstance(size, int) and size > 0 else elements or 0
    return min(buffer, elements) if elements is not None and elements > 0 else max(buffer, 0)
