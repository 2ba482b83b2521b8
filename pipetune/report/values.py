"""The small values every part of the view is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipetune.core.results import Interval
from pipetune.report import words

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Figure:
    """One number as shown. `value` is None where it was not measured, and `why` says the reason."""

    text: str = NOT_MEASURED
    value: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str = ""  # what an interval rests on: "16 pairs, t on log ratios, 95 %"
    why: str = ""

    @property
    def known(self) -> bool:
        return self.value is not None

    @property
    def short(self) -> str:
        """The number without its interval."""
        return self.text.split(" (", 1)[0] if self.low is not None else self.text

    @property
    def span(self) -> str:
        """The interval alone: "1.34 to 1.38"."""
        return self.text.split(" (", 1)[1].rstrip(")") if self.low is not None else ""


@dataclass(frozen=True)
class Fact:
    """A label and what stands beside it."""

    label: str
    text: str
    note: str = ""


def figure(value: float | None, form: Callable[[float], str], *, why: str = "") -> Figure:
    """A number in words, or its absence with the reason."""
    return Figure(why=why) if value is None else Figure(text=form(value), value=value)


def interval(value: Interval | None, form: Callable[[float], str], *, why: str = "") -> Figure:
    """A median with its interval in words, or its absence with the reason."""
    if value is None:
        return Figure(why=why)
    low, high = form(value.low), form(value.high)
    unit = low[-1] if low.endswith(("x", "%")) and high.endswith(low[-1]) else ""
    low = low.removesuffix(unit).rstrip() if unit else low
    if unit == "x":
        high = high.removesuffix(unit)
    return Figure(
        text=f"{form(value.median)} ({low} to {high})",
        value=value.median,
        low=value.low,
        high=value.high,
        basis=f"{words.count(value.pairs, 'pair')}, {words.clean(value.method)}",
    )
