"""The cost of operators from the cost of prefixes: the pipeline cut after each, and differences taken.

A prefix takes the seconds of every operator in it, each as often as it is visited: one equation per prefix. One
round measures all of them, so that what drifts is in all alike; the difference round by round gives the interval,
and the typical seconds of all rounds the cost, none of them below zero.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from pipetune.core.results import Interval

SPIN_SECONDS = 100e-6
"""CPU time beyond the wall time of a call up to which it counts as idle threads of the pool that look for work.

They do so after each call in one thread, and not where all are busy. Measured: 20 to 90 us a call. More is of kernels
that use several threads.
"""

METHOD = "t on differences between prefixes, 95 %"
_ERROR = 0.05  # two-sided


@dataclass(frozen=True)
class Cost:
    """Seconds of one operator per element it puts out."""

    cpu: Interval
    wall: Interval
    waiting: Interval  # wall less CPU; zero where several threads worked at once

    @property
    def several_threads(self) -> bool:
        """Whether it used more CPU seconds than wall seconds, beyond doubt.

        Some more are of idle threads that look for work.
        """
        return self.cpu.low > 1.3 * self.wall.high


@dataclass(frozen=True)
class PrefixSeconds:
    """Seconds per element a prefix puts out, one entry a round; the consumer's own taken off."""

    node: str  # the prefix ends in it
    cpu: tuple[float, ...]
    wall: tuple[float, ...]


def operator_costs(prefixes: Sequence[PrefixSeconds], visits: Mapping[str, Mapping[str, float]]) -> dict[str, Cost]:
    """The cost of the last operator of every prefix.

    Args:
        prefixes: the same number of rounds each, at least two.
        visits: per prefix, elements every operator in it puts out per element of the prefix. Operators that end no
            prefix count to the next one behind them.

    Raises:
        ValueError: fewer than two rounds.
    """
    names = [prefix.node for prefix in prefixes]
    matrix = np.array([[visits[row].get(column, 0.0) for column in names] for row in names])
    cpu = np.array([prefix.cpu for prefix in prefixes])  # prefix, round
    wall = np.array([prefix.wall for prefix in prefixes])
    if cpu.shape[1] < 2:
        raise ValueError("an interval needs at least two rounds")
    cpu_points, wall_points = _not_negative(matrix, cpu), _not_negative(matrix, wall)
    cpu_rounds, wall_rounds = np.linalg.solve(matrix, cpu), np.linalg.solve(matrix, wall)
    found = {}
    for row, name in enumerate(names):
        spin = min(max(0.0, cpu_points[row] - wall_points[row]), SPIN_SECONDS)
        found[name] = Cost(
            cpu=_interval(cpu_points[row] - spin, cpu_rounds[row] - spin),
            wall=_interval(wall_points[row], wall_rounds[row]),
            waiting=_interval(max(0.0, wall_points[row] - cpu_points[row]), wall_rounds[row] - cpu_rounds[row]),
        )
    return found


def _not_negative(matrix: np.ndarray, seconds: np.ndarray) -> list[float]:
    """Costs of zero or more that explain the typical seconds of all prefixes best.

    Where every difference is positive these are the differences; where noise makes one negative, its neighbours
    give way, so that the sum stays that of the whole pipeline. Equations are scaled to 1: noise grows with the time.
    """
    typical = np.maximum(np.median(seconds, axis=1), 1e-12)
    costs, _ = optimize.nnls(matrix / typical[:, None], np.ones(len(typical)))
    return [float(cost) for cost in costs]


def _interval(point: float, rounds: np.ndarray) -> Interval:
    """Two-sided t interval around the mean of the rounds, not below zero, and with the point in it."""
    values = [float(value) for value in rounds]
    reach = statistics.stdev(values) / math.sqrt(len(values))
    reach *= float(special.stdtrit(len(values) - 1, 1 - _ERROR / 2))
    mean = statistics.fmean(values)
    return Interval(
        median=point,
        low=max(0.0, min(mean - reach, point)),
        high=max(mean + reach, point),
        pairs=len(values),
        method=METHOD,
    )
