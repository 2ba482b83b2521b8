"""The change between two measured values, with its confidence interval."""

from __future__ import annotations

import math

from pipetune.core.measurement import Interval

METHOD = "two independent intervals combined in quadrature"


def ratio_of(after: Interval, before: Interval) -> Interval | None:
    """Returns the ratio `after` / `before`; None if a bound is not finite or not above zero.

    The distances from the medians to the bounds are added in quadrature on the log scale, each side separately:
    exact for independent normal errors of the logs, which intervals of ratios assume.
    """
    if min(after.low, before.low) <= 0 or not _finite(after, before):
        return None
    centre = math.log(after.median / before.median)
    down = math.hypot(math.log(after.median / after.low), math.log(before.high / before.median))
    up = math.hypot(math.log(after.high / after.median), math.log(before.median / before.low))
    return Interval(
        math.exp(centre),
        math.exp(centre - down),
        math.exp(centre + up),
        min(after.pairs, before.pairs),
        METHOD,
    )


def difference_of(after: Interval, before: Interval) -> Interval | None:
    """Returns the difference `after` - `before`, used for shares; None if a bound is not finite."""
    if not _finite(after, before):
        return None
    centre = after.median - before.median
    down = math.hypot(after.median - after.low, before.high - before.median)
    up = math.hypot(after.high - after.median, before.median - before.low)
    return Interval(centre, centre - down, centre + up, min(after.pairs, before.pairs), METHOD)


def _finite(*intervals: Interval) -> bool:
    return all(
        math.isfinite(bound)
        for interval in intervals
        for bound in (interval.median, interval.low, interval.high)
    )
