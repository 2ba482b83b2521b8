"""The statistics of paired trials: intervals on log ratios, planned looks, Holm's division of the error.

Deciding after every window gave 42 % false wins; here a decision is made at planned looks, the error of the race is
spent over them (the union bound needs no independence between looks), and divided over the candidates of one race by
Holm (1979), valid whatever the dependence between them: they share base windows.

The error is spent in step with the pairs (the linear spending function of Lan and DeMets, 1983), and what is left when
the time is up by one last look. Simulated on recorded noise, a race that has time for 8 pairs then proves 1.2x in 70 %
of races, one for 16 in 78 %; a fifth of the error at each of the five looks: 66 % and 74 %, for it has spent two fifths
on the first six pairs.

Windows are compared as they would have been if no other process had used the cores (`undisturbed`). Other processes
take more from a plan that keeps all cores busy than from one that leaves some of them idle, so that beside them a
parallel plan seems to gain less than it does. Measured on the photos example on two cores, windows of 1.2 s, the ratio
of a parallel map to the pipeline as written (and the deviation of the log ratio of a pair): quiet 1.31 (0.09, 13
pairs); beside a process that takes a core for half of the time 1.16 (0.13, 24 pairs), and by `undisturbed` 1.31 (0.08);
beside two of them 1.13 (0.21, 23 pairs), and by `undisturbed` 1.29 (0.07).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from scipy import special

from pipetune.core.measurement import Interval, Window

ACCEPT_ABOVE = 1.03
"""A gain counts only when its whole interval lies above this."""

NOT_SLOWER = 0.97
"""The margin of non-inferiority: a whole 95 % interval above it means a loss of at most 3 %."""

LOOKS = (4, 6, 8, 16, 32)
"""Pairs after which a decision may be made."""

FEWEST_PAIRS = 3
"""Pairs with which the last look is worth taking where the time is up: they tell 10x from nothing beside neighbours.

The first look, too, is taken after these where `LARGE_GAIN` is expected before the race begins. With the error spent by
then and a deviation of 0.1 a pair, three pairs prove 2.0x and four 1.4x; four after a look at three only 1.7x.
"""

LARGE_GAIN = 2.5
"""Expected of a plan: three pairs prove it even with a deviation of 0.13 a pair."""

GAIN_WITH_CONSENT = 1.5
FAR_LESS = 1 / 3
"""Where the first is expected of what needs consent, a race of what seems to gain less than this share of it on the log
scale takes no more than the search's own time. By judgement: to know of 5x is worth more than a proof of 1.2x.
"""

USUAL_PAIRS = 8
"""Pairs that a race is planned with: windows are made so short that these fit."""

TOTAL_ERROR = 0.05
"""Chance that any candidate of a session is accepted wrongly, in any race, at any look."""

FIRST_RACE = 0.8
"""The share of the error that the first race of a session may spend; each later one spends half of what is left."""

LAG_LIMIT = 0.2
"""Neighbouring windows are called uncorrelated below this lag-1 autocorrelation."""


def lag_one(values: Sequence[float]) -> float | None:
    """The lag-1 autocorrelation of a series; None for fewer than 4 values or a constant series."""
    if len(values) < 4:
        return None
    mean = statistics.fmean(values)
    deviations = [value - mean for value in values]
    scale = sum(deviation * deviation for deviation in deviations)
    if scale <= 0.0:
        return None
    return sum(one * other for one, other in itertools.pairwise(deviations)) / scale


def moments(ratios: Sequence[float]) -> tuple[float, float, int]:
    """Mean of the logs, its standard error, degrees of freedom.

    Where neighbouring pairs are correlated all the same, the standard error is widened by what a first-order
    autoregressive series needs, sqrt((1 + r) / (1 - r)).
    """
    logs = [math.log(ratio) for ratio in ratios]
    count = len(logs)
    error = statistics.stdev(logs) / math.sqrt(count)
    correlation = lag_one(logs) or 0.0
    if correlation >= LAG_LIMIT:
        error *= math.sqrt((1 + correlation) / (1 - min(correlation, 0.9)))
    return statistics.fmean(logs), error, count - 1


def ratio_interval(ratios: Sequence[float], *, error: float = 0.05) -> Interval:
    """The two-sided t interval of a ratio from paired measurements, at confidence 1 - `error`.

    The point is the median of the ratios (drawn into the interval where a few extreme pairs push it out).

    Raises:
        ValueError: fewer than two ratios.
    """
    if len(ratios) < 2:
        raise ValueError("an interval needs at least two pairs")
    mean, standard_error, freedom = moments(ratios)
    reach = float(special.stdtrit(freedom, 1 - error / 2)) * standard_error
    low, high = math.exp(mean - reach), math.exp(mean + reach)
    median = min(max(statistics.median(ratios), low), high)
    return Interval(median, low, high, len(ratios), f"t on log ratios, {100 * (1 - error):.4g} %")


PAIR_SPREAD, PAIR_SPREAD_WORTH = 0.11, 2
"""Deviation of the log ratio of one pair on a quiet machine (the photos example, windows of 1 s), worth so many pairs
of the session's own where few are there: the spread of two or three says little."""


def steadied_moments(logs: Sequence[float], *, spread: float = PAIR_SPREAD) -> tuple[float, float]:
    """Returns the mean of logs, and the variance of one, drawn towards `spread` squared: that of few says little."""
    mean = statistics.fmean(logs)
    squares = sum((value - mean) ** 2 for value in logs)
    return mean, (PAIR_SPREAD_WORTH * spread**2 + squares) / (PAIR_SPREAD_WORTH + len(logs) - 1)


def expected_interval(ratios: Sequence[float], *, error: float = 0.05) -> Interval:
    """The interval of a ratio that decides what to do next, and proves nothing: usable from two pairs on.

    That of `ratio_interval`, or the one whose variance is drawn towards that of a quiet machine, if it is narrower: by
    their own spread two pairs span a factor of ten.

    Raises:
        ValueError: fewer than two ratios.
    """
    own = ratio_interval(ratios, error=error)
    mean, variance = steadied_moments([math.log(ratio) for ratio in ratios])
    freedom = PAIR_SPREAD_WORTH + len(ratios) - 1
    reach = float(special.stdtrit(freedom, 1 - error / 2)) * math.sqrt(variance / len(ratios))
    if own.high / own.low <= math.exp(2 * reach):
        return own
    low, high = math.exp(mean - reach), math.exp(mean + reach)
    method = f"t on log ratios with a usual spread, {100 * (1 - error):.4g} %"
    return Interval(min(max(own.median, low), high), low, high, len(ratios), method)


def p_value(ratios: Sequence[float]) -> float:
    """Chance of ratios like these, or higher ones, if the true ratio were `ACCEPT_ABOVE`: one-sided.

    The low end of `ratio_interval(ratios, error=2 * p)` is just `ACCEPT_ABOVE`.
    """
    mean, standard_error, freedom = moments(ratios)
    distance = mean - math.log(ACCEPT_ABOVE)
    if standard_error == 0.0:
        return 0.0 if distance > 0 else 1.0
    return float(special.stdtr(freedom, -distance / standard_error))


def holm(p_values: Sequence[float], *, error: float = TOTAL_ERROR) -> list[float | None]:
    """Holm's step-down procedure: for each p-value the error it was held against if it passes, else None.

    The smallest is held against error / n, the next against error / (n - 1), until one fails.
    """
    passed: list[float | None] = [None] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        share = error / (len(p_values) - rank)
        if p_values[index] > share:
            break
        passed[index] = share
    return passed


_UNUSED = 0.05
"""Share of the cores that a plan leaves unused, or that others use at most, in a window that shows what it can use. By
judgement: the services of an idle machine used 0 to 3 %."""


def undisturbed(*arms: Sequence[Window], usable: Sequence[float | None] = ()) -> list[list[Window]]:
    """Returns the windows of plans to be compared, each as short as if no other process had used the cores.

    A plan can use as many cores as it did in the window in which it used most. Where others left it fewer, the window
    took longer in proportion. What a window shows of its plan's speed takes no part in this. A window of which the load
    is unknown stays as it is, and so does one beside which enough cores were left. All stay as they are if of some plan
    it is not known how many cores it can use: it would be compared with less than it is worth.

    Args:
        arms: the windows of each plan, all in the same unit.
        usable: the cores that each plan can use, as far as earlier windows show that; by default of none.
    """
    known = [
        max((cores for cores in (usable_cores(windows), earlier) if cores is not None), default=None)
        for windows, earlier in zip_longest(arms, usable)
    ]
    if None in known:
        return [list(windows) for windows in arms]
    return [
        [_shortened(window, cores) for window in windows]
        for windows, cores in zip(arms, known, strict=True)
        if cores is not None
    ]


def usable_cores(windows: Sequence[Window]) -> float | None:
    """Returns the cores that a plan can use; None if others left it too few of them in every window."""
    return max(map(_used, windows)) if any(map(_shows_use, windows)) else None


def _used(window: Window) -> float:
    return window.cpu_seconds / window.wall_seconds


def _left(window: Window) -> float | None:
    """The cores that others left; None if unknown. The counters are coarse: it had what it used."""
    if window.others_seconds is None or window.cores is None:
        return None
    return max(window.cores - window.others_seconds / window.wall_seconds, _used(window))


def _shows_use(window: Window) -> bool:
    left = _left(window)
    if left is None or window.cores is None:
        return False
    unused = _UNUSED * window.cores
    return left >= window.cores - unused or left >= _used(window) + unused


def _shortened(window: Window, usable: float) -> Window:
    left = _left(window)
    if left is None or left >= usable:
        return window
    share = left / usable
    waited = None if window.wait_seconds is None else share * window.wait_seconds
    return replace(window, wall_seconds=share * window.wall_seconds, wait_seconds=waited)


def rate_of(window: Window, unit: str) -> float:
    """Examples per second (input) or steps per second (training)."""
    return 1 / window.step_seconds if unit == "training" else window.examples_per_second


def rate_ratios(windows: Sequence[Window], over: Sequence[Window], unit: str) -> list[float]:
    """The rate in each window over that in the other of its pair, for as long as there are both."""
    return [rate_of(one, unit) / rate_of(other, unit) for one, other in zip(windows, over, strict=False)]
