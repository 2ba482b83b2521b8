"""The arithmetic of a run's course: steady state, epoch borders, later epochs, drift, from arrival times.

Neighbouring intervals are correlated (files, buffers, a busy machine), so everything is computed on means of blocks,
long enough that neighbouring blocks are not (`statistics.lag_one`).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from pipetune.core.measurement import Interval
from pipetune.core.results import Drift
from pipetune.search.statistics import LAG_LIMIT, lag_one

DRIFT_MATTERS = 1.10
"""A drift is reported when the run's end is slower than its start by more than this, or faster than by its inverse."""

_ERROR = 0.01  # that noise of one run is called a drift; a second run has to show it again
_METHOD = f"t on logs of block means, {100 * (1 - _ERROR):g} % over all onsets"
_BLOCKS, _FEWEST_BLOCKS = 64, 8
_WARM_UP = 0.15  # share of a run's time in which TensorFlow still settles its numbers
_ONSETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # shares of a run from which a drift may begin


@dataclass(frozen=True)
class Epoch:
    """When the elements of one epoch came: seconds since the consumer asked for the first."""

    arrivals: tuple[float, ...]
    complete: bool  # the epoch came to its end

    @property
    def first_seconds(self) -> float:
        return self.arrivals[0]

    @property
    def intervals(self) -> list[float]:
        """Seconds from element to element, the first left out."""
        return [later - earlier for earlier, later in itertools.pairwise(self.arrivals)]

    @property
    def element_seconds(self) -> float:
        """Mean seconds from element to element, the first left out; 0 if there is only one."""
        elements = len(self.arrivals)
        return (self.arrivals[-1] - self.first_seconds) / (elements - 1) if elements > 1 else 0.0


def split(arrivals: Sequence[float], epoch_elements: float) -> list[Epoch]:
    """One run through an endless dataset as its epochs; `epoch_elements` may be a fraction (repeat, then batch):
    the element in which two epochs meet counts as the first of the later one.
    """
    epochs = []
    start, begun, number = 0, 0.0, 1
    while start < len(arrivals):
        end = max(start + 1, math.floor(number * epoch_elements + 1e-6))
        part = arrivals[start:end]
        epochs.append(Epoch(tuple(time - begun for time in part), complete=end <= len(arrivals)))
        start, begun, number = end, part[-1], number + 1
    return epochs


def steady_seconds(epochs: Sequence[Epoch]) -> float | None:
    """Median seconds per element, over blocks; the first elements and the warm-up left out."""
    series = _series(epochs)
    return statistics.median(blocks(series)) if series else None


def border_seconds(epochs: Sequence[Epoch], steady: float) -> float | None:
    """Median of what the first element of a later epoch costs above a steady one; None with one epoch."""
    later = [epoch.first_seconds for epoch in epochs[1:]]
    return max(0.0, statistics.median(later) - steady) if later else None


def later_rate(epochs: Sequence[Epoch]) -> Interval | None:
    """Rate of the later whole epochs over that of the first, first elements left out; Welch's interval on logs."""
    whole = [epoch for epoch in epochs if epoch.complete]
    if len(whole) < 2:
        return None
    first, later = whole[0].intervals, [time for epoch in whole[1:] for time in epoch.intervals]
    if min(len(first), len(later)) < 2 * _FEWEST_BLOCKS:
        return None
    logs = [[math.log(max(mean, 1e-9)) for mean in blocks(series)] for series in (first, later)]
    difference = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    parts = [statistics.variance(values) / len(values) for values in logs]
    error = math.sqrt(sum(parts))
    spread = sum(part**2 / (len(values) - 1) for part, values in zip(parts, logs, strict=True))
    freedom = error**4 / spread if spread > 0 else 1.0
    reach = float(special.stdtrit(freedom, 0.975)) * error
    ratio, low, high = (math.exp(log) for log in (difference, difference - reach, difference + reach))
    method = f"Welch t on logs of {len(logs[0])} and {len(logs[1])} blocks, 95 %"
    return Interval(ratio, low, high, len(whole), method)


def drift_series(epochs: Sequence[Epoch]) -> list[float]:
    """The intervals in which to look for a drift: of the later epochs where most were seen there, else of the first."""
    later = [time for epoch in epochs[1:] for time in epoch.intervals]
    first = _after_warm_up(epochs[0].intervals) if epochs else []
    return later if len(later) > len(first) else first


def without_drain(epochs: Sequence[Epoch], held: int) -> list[Epoch]:
    """The epochs without their last `held` elements: those come from shuffle buffers, which nothing fills any more."""
    left = [Epoch(epoch.arrivals[: max(0, len(epoch.arrivals) - held)], epoch.complete) for epoch in epochs]
    return [epoch for epoch in left if epoch.arrivals]


def drift(runs: Sequence[Sequence[float]]) -> Drift | None:
    """How the seconds per element change over a run; None for a run too short to tell.

    A level line that bends once into a slope, by least squares through the logs of block means; where neighbouring
    residuals are correlated the error is widened as for a first-order autoregressive series. Significant: at 1 %
    (divided over the onsets tried) in every run, all one way, the first by more than `DRIFT_MATTERS`. What disturbed
    one run by chance does not come back in the next.

    Args:
        runs: seconds from element to element, in order; the first is the one described.
    """
    fits = [fit for run in runs if (fit := _fit(run)) is not None]
    if not fits:
        return None
    change, since = fits[0]
    one_way = all(fit.low > 1 for fit, _ in fits) or all(fit.high < 1 for fit, _ in fits)
    significant = one_way and _matters(change) and len(fits) > 1 and len(fits) == len(runs)
    return Drift(change=change, since=since, elements=len(runs[0]), significant=significant)


def looks_like_drift(run: Sequence[float]) -> bool:
    """Whether one run shows a drift that a second should confirm."""
    fit = _fit(run)
    return fit is not None and _matters(fit[0]) and (fit[0].low > 1 or fit[0].high < 1)


def _matters(change: Interval) -> bool:
    return abs(math.log(change.median)) > math.log(DRIFT_MATTERS)


def blocks(series: Sequence[float]) -> list[float]:
    """Means of blocks, as many as `_BLOCKS`, fewer and longer until neighbours are uncorrelated."""
    if not series:
        return []
    size = max(1, math.ceil(len(series) / _BLOCKS))
    while True:
        count = max(1, len(series) // size)
        means = [statistics.fmean(series[index * size : (index + 1) * size]) for index in range(count)]
        if count < 2 * _FEWEST_BLOCKS or (lag_one(_bend(means).residuals) or 0.0) < LAG_LIMIT:
            return means
        size *= 2


def _fit(series: Sequence[float]) -> tuple[Interval, int] | None:
    """Returns how many times as long the last element takes, and from which one on; None for too short a run."""
    means = blocks(series)
    if len(means) < _FEWEST_BLOCKS or min(means) <= 0:
        return None
    bent = _bend([math.log(mean) for mean in means])
    count = len(means)
    error = math.sqrt(sum(value**2 for value in bent.residuals) / (count - 3) / bent.scale)
    correlation = min(lag_one(bent.residuals) or 0.0, 0.9)
    if correlation >= LAG_LIMIT:
        error *= math.sqrt((1 + correlation) / (1 - correlation))
    # The onset was chosen among several: the error is divided over them.
    reach = float(special.stdtrit(count - 3, 1 - _ERROR / 2 / len(_ONSETS))) * error
    span = count - 1 - bent.start
    change, low, high = (math.exp(slope * span) for slope in (bent.slope, bent.slope - reach, bent.slope + reach))
    return Interval(change, low, high, count, _METHOD), round(bent.start * len(series) / count)


@dataclass(frozen=True)
class _Bent:
    """A level line that bends once, at index `start`, into a slope."""

    start: int
    slope: float  # per index
    residuals: list[float]
    scale: float  # sum of squares of the slope's regressor


def _bend(values: Sequence[float]) -> _Bent:
    """The best of the bent lines by least squares; the earliest onset where several are as good."""
    count, mean = len(values), statistics.fmean(values)
    best: _Bent | None = None
    least = math.inf
    for start in sorted({int(share * count) for share in _ONSETS}):
        bend = [max(0, index - start) for index in range(count)]
        middle = statistics.fmean(bend)
        scale = sum((value - middle) ** 2 for value in bend)
        slope = sum((x - middle) * (y - mean) for x, y in zip(bend, values, strict=True)) / scale
        residuals = [y - mean - slope * (x - middle) for x, y in zip(bend, values, strict=True)]
        squares = sum(value**2 for value in residuals)
        if best is None or squares < 0.999 * least:
            best, least = _Bent(start, slope, residuals, scale), squares
    assert best is not None
    return best


def _series(epochs: Sequence[Epoch]) -> list[float]:
    """Intervals of a steady run: after the warm-up of the first epoch, and of all that follow."""
    if not epochs:
        return []
    first = epochs[0].intervals
    later = [time for epoch in epochs[1:] for time in epoch.intervals]
    return later if len(later) >= len(first) and later else _after_warm_up(first) or first


def _after_warm_up(intervals: Sequence[float]) -> list[float]:
    end = _WARM_UP * sum(intervals)
    passed = enumerate(itertools.accumulate(intervals), start=1)
    start = next((number for number, seconds in passed if seconds >= end), len(intervals))
    return list(intervals[start:])
