"""Whether memory grows without bound, from samples of the resident set size while a pipeline runs.

Buffers, caches and the allocator's free lists grow and stop; a leak continues. The resident size is a running sum of
allocations and frees, so its increments, not its values, are independent: the slope is the mean increment, with the
confidence interval of a mean. (A line fitted to the values finds a significant slope in every random walk.)
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from scipy import special

from pipetune.core.measurement import Interval
from pipetune.core.memory import Growth

FEWEST_READINGS = 9

WORTH_BYTES = 8 * 2**20
"""Less total growth than this cannot be distinguished from memory that an allocator retains."""

_STILL = 0.5  # steady: in the last third, growth is at least this share of that in the first third
_ERROR = 0.01  # two-sided: many pipelines are watched


def growth(readings: Sequence[tuple[int, float]], *, epoch_elements: int | None = None) -> Growth | None:
    """The slope of the resident size over elements taken; None for fewer than `FEWEST_READINGS` readings.

    Args:
        readings: (elements taken so far, resident bytes), in the order taken, with increasing elements.
        epoch_elements: elements of the output in an epoch; None if unknown.
    """
    if len(readings) < FEWEST_READINGS:
        return None
    steps = [
        (after[1] - before[1]) / (after[0] - before[0])
        for before, after in itertools.pairwise(readings)
        if after[0] > before[0]
    ]
    if len(steps) < FEWEST_READINGS - 1:
        return None
    mean = statistics.fmean(steps)
    error = statistics.stdev(steps) / math.sqrt(len(steps))
    reach = float(special.stdtrit(len(steps) - 1, 1 - _ERROR / 2)) * error
    grown = readings[-1][1] - readings[0][1]
    third = len(steps) // 3
    first, last = statistics.fmean(steps[:third]), statistics.fmean(steps[-third:])
    return Growth(
        bytes_per_element=Interval(
            mean, mean - reach, mean + reach, len(steps), f"t on steps, {100 * (1 - _ERROR):.4g} %"
        ),
        elements=readings[-1][0] - readings[0][0],
        grown_bytes=grown,
        steady=mean - reach > 0 and grown >= WORTH_BYTES and last >= _STILL * first > 0,
        epoch_elements=epoch_elements,
    )
