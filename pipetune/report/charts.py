"""Charts as data: every position in percent of the width, so that a page can draw them at any size.

The HTML template draws these as inline SVG, `figures.py` draws the same view with matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pipetune.report.attempts import TRAINING, Attempts, TrialRow
from pipetune.report.ladder import Ladder
from pipetune.report.operators import OperatorTable
from pipetune.report.timeline import Timeline, TimelineRow
from pipetune.report.values import Figure

STEPS_DRAWN = 3
_TICKS = (
    0.1,
    0.2,
    0.3,
    0.5,
    0.7,
    0.8,
    0.9,
    1.0,
    1.1,
    1.25,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    1000.0,
)
_TICK_DISTANCE = 9.0  # percent of the width two tick labels need


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane; `kind` names its colour."""

    start: float
    width: float
    kind: str
    lane: int = 0


@dataclass(frozen=True)
class Lanes:
    """One row of the timeline: lane 0 the input, lane 1 the model."""

    name: str
    label: str
    sentence: str
    measured: bool
    bars: tuple[Bar, ...]
    ends: tuple[float, ...]  # where each step ends


@dataclass(frozen=True)
class RatioAxis:
    """A logarithmic axis of ratios."""

    low: float
    high: float

    def at(self, ratio: float) -> float:
        """Percent of the width, kept inside."""
        if ratio <= 0:
            return 0.0
        share = (math.log(ratio) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return min(100.0, max(0.0, share * 100))

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Round ratios whose labels do not touch; 1 always."""
        chosen: list[tuple[float, str]] = []
        for tick in sorted(_TICKS, key=lambda tick: (abs(math.log(tick)), tick)):
            place = self.at(tick)
            if self.low <= tick <= self.high and all(abs(place - other) >= _TICK_DISTANCE for other, _ in chosen):
                chosen.append((place, f"{tick:g}x"))
        return tuple(sorted(chosen))


@dataclass(frozen=True)
class Whisker:
    """An interval on a ratio axis, and the pairs it rests on; pairs outside the axis stand at its ends."""

    low: float | None
    median: float | None
    high: float | None
    pairs: tuple[float, ...]

    @property
    def known(self) -> bool:
        """Whether there is an interval, and not only pairs."""
        return self.median is not None


def ratio_axis(figures: Iterable[Figure]) -> RatioAxis:
    """An axis that holds every interval, 1 and the acceptance line, with some room."""
    known = [figure for figure in figures if figure.low and figure.high and math.isfinite(figure.high)]
    low = min([0.9, *(figure.low for figure in known if figure.low)])
    high = max([1.15, *(figure.high for figure in known if figure.high)])
    return RatioAxis(low / 1.05, high * 1.05)


def trial_axis(attempts: Attempts) -> RatioAxis:
    return ratio_axis(row.gain for row in attempts.rows)


def whisker(gain: Figure, axis: RatioAxis, pairs: tuple[float, ...] = ()) -> Whisker | None:
    """Where to draw one interval and its pairs; None where nothing was measured."""
    places = tuple(map(axis.at, pairs))
    if gain.value is None or gain.low is None or gain.high is None:
        return Whisker(None, None, None, places) if places else None
    return Whisker(axis.at(gain.low), axis.at(gain.value), axis.at(gain.high), places)


def confirmation(attempts: Attempts) -> TrialRow | None:
    """The last pairs of the training step, where they were kept: those behind the first number."""
    rows = (row for row in attempts.rows if row.kind in ("verification", "confirmation") and row.unit == TRAINING)
    return next((row for row in rows if row.ratios), None)


def lanes(timeline: Timeline) -> tuple[Lanes, ...]:
    """Three steps per row, all rows to one scale."""
    longest = max((row.period_ms for row in timeline.rows), default=0.0) * STEPS_DRAWN
    return tuple(_lanes(row, longest) for row in timeline.rows) if longest > 0 else ()


def _lanes(row: TimelineRow, longest: float) -> Lanes:
    """Steady state: time 0 is when the model is done with the step before.

    The model waits, then runs; the batch it takes was prepared just before, so what the input does while the
    model still runs is the overlap. Every row is as long as its steps take.
    """
    scale = 100 / longest
    bars = []
    end = STEPS_DRAWN * row.period_ms
    for step in range(STEPS_DRAWN + 1):
        begin = step * row.period_ms
        taken = begin + row.wait_ms
        start, stop = max(0.0, taken - row.input_ms), min(end, taken)
        if stop > start:
            bars.append(Bar(start * scale, (stop - start) * scale, "input", 0))
        if step == STEPS_DRAWN:
            break
        for kind, since, lasting in (
            ("wait", begin, row.wait_ms),
            ("model", taken, row.model_ms),
            ("extra", taken + row.model_ms, row.extra_ms),
        ):
            if lasting > 1e-6 * row.period_ms:
                bars.append(Bar(since * scale, lasting * scale, kind, 1))
    ends = tuple((step + 1) * row.period_ms * scale for step in range(STEPS_DRAWN))
    return Lanes(row.name, row.label, row.sentence, row.measured, tuple(bars), ends)


def ladder_bars(ladder: Ladder) -> tuple[tuple[str, float | None], ...]:
    """Width per rung in percent of the fastest, the bound last; None where it was not measured."""
    values = [(rung.name, rung.examples.value) for rung in ladder.rungs] + [("bound", ladder.bound.value)]
    longest = max((value for _, value in values if value is not None), default=0.0)
    return tuple((name, None if value is None or not longest else 100 * value / longest) for name, value in values)


def operator_bars(table: OperatorTable) -> tuple[Bar, ...]:
    """One bar per operator, as long as its share of the largest share."""
    longest = max((row.share.value or 0.0 for row in table.rows), default=0.0)
    return tuple(
        Bar(0.0, 100 * (row.share.value or 0.0) / longest if longest else 0.0, row.stage or "unknown", index)
        for index, row in enumerate(table.rows)
    )


def stage_bars(table: OperatorTable) -> tuple[Bar, ...]:
    """Extract, transform and load as one stacked bar."""
    bars, start = [], 0.0
    for name, share in table.stages:
        width = 100 * (share.value or 0.0)
        bars.append(Bar(start, width, name))
        start += width
    return tuple(bars)
