"""The knee of a curve of rates over parallelism: the point above which more parallelism gains nothing.

Waiting (opening a file, a seek, a request to a server) overlaps, so rates rise in proportion to the parallel reads
until another resource is exhausted; then they stay or fall. Two line segments that meet in the knee describe this
with four numbers; the knee is where the fit has the smallest error (least squares, relative to the rates).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WORTH = 0.10
"""A relative rise below this, from the lowest parallelism to the knee, is noise or not worthwhile."""

STILL_RISING = 0.25
"""After a knee the slope is at most this share of the slope before it; otherwise the curve has no knee."""

_ALIKE = 1.01  # errors within this factor count as equal: the lowest parallelism among them is the knee


@dataclass(frozen=True)
class Knee:
    """Where a curve bends. Rates are those of the fitted curve, in the unit given."""

    parallelism: int | None  # None: the curve still rises at its last level
    rate: float  # at the knee, or at the last level
    ceiling: float  # the highest rate at any level
    falling: bool  # the rate falls after the knee


def find_knee(parallelism: Sequence[int], rates: Sequence[float]) -> Knee:
    """Finds the knee of `rates` (above zero) over `parallelism` (increasing).

    Raises:
        ValueError: there is no level, or the lengths differ.
    """
    if not parallelism or len(parallelism) != len(rates):
        raise ValueError("a curve needs at least one level, and one rate per level")
    levels, values = np.asarray(parallelism, float), np.asarray(rates, float)
    fits = [_Fit(levels, values, place) for place in range(parallelism[0], parallelism[-1] + 1)]
    least = min(fit.error for fit in fits)
    best = next(fit for fit in fits if fit.error <= _ALIKE * least + 1e-12)
    fitted, ceiling = best.fitted, float(best.fitted.max())
    falling = bool(fitted[-1] < (1 - WORTH) * ceiling)
    if ceiling < (1 + WORTH) * fitted[0]:
        return Knee(parallelism[0], float(fitted[0]), ceiling, falling)
    if best.place == parallelism[-1] or best.behind > STILL_RISING * best.before:
        return Knee(None, float(fitted[-1]), ceiling, falling=False)
    return Knee(best.place, float(fitted[0] + best.before * (best.place - levels[0])), ceiling, falling)


class _Fit:
    """The best two line segments that meet at `place`: their slopes, the fitted rates, and the error."""

    def __init__(self, levels: Any, values: Any, place: int) -> None:
        self.place = place
        basis = np.stack([np.ones_like(levels), np.minimum(levels, place) - levels[0], np.maximum(levels - place, 0)])
        used = [index for index in range(3) if basis[index].any()]
        solution, *_ = np.linalg.lstsq((basis[used] / values).T, np.ones_like(values), rcond=None)
        slopes = dict(zip(used, solution.tolist(), strict=True))
        self.before, self.behind = slopes.get(1, 0.0), slopes.get(2, 0.0)
        self.fitted = basis[used].T @ solution
        self.error = float(np.sum((self.fitted / values - 1) ** 2))
