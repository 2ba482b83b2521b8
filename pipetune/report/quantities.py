"""Ranges and rates as a reader sees them: the unit once, bytes as storage and networks are sold."""

from __future__ import annotations

from collections.abc import Callable

from pipetune.core.sizing import QuantityRange
from pipetune.report import words

UNKNOWN = "-"


def span(quantity: QuantityRange | None, form: Callable[[float], str]) -> str:
    """ "62.1 to 67.4 us": the unit once where both ends have the same."""
    if quantity is None:
        return UNKNOWN
    low, high = form(quantity.low), form(quantity.high)
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    same = unit and high.endswith(f" {unit}")
    if not unit and low.endswith("/s") and high.endswith("/s"):
        number, same = low.removesuffix("/s"), True
    return f"{number if same else low} to {high}"


def speed(bytes_per_second: float) -> str:
    """As storage is sold: "1.20 GB/s"."""
    return _decimal(bytes_per_second, "B/s")


def bits(bytes_per_second: float) -> str:
    """As networks are sold: "9.60 Gb/s"."""
    return _decimal(8 * bytes_per_second, "b/s")


def _decimal(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{words.significant(value)} {prefix}{unit}"
        value /= 1000
    return f"{words.significant(value)} T{unit}"


def number(value: float) -> str:
    """Examples in a batch: whole as a rule, an average where batches differ."""
    return f"{value:,.0f}" if value == int(value) else words.significant(value)
