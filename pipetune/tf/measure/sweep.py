"""Measures a rate at several levels of parallelism, in interleaved rounds, and finds the knee of the curve.

Every level is measured once per round, in a new random order each round, so that drift and the load of other processes
affect all levels alike.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy import special

from pipetune.core.measurement import Interval
from pipetune.core.storage import Level, Reader, Sweep
from pipetune.model.knee import find_knee
from pipetune.search.statistics import ratio_interval

LEVELS = (1, 2, 4, 8, 16, 32)
_FEWEST_ROUNDS = 2
_METHOD = "t on logs, pooled over levels, 95 %"
_SHORTEST_SECONDS = 0.03  # of a window
_PATIENCE = 2.5  # times the time limit: until then the fewest rounds must be done
_WINDOWS = 0.6  # share of the time for windows; the rest is for what precedes each


@dataclass(frozen=True)
class Rates:
    """Rates of one window, per second; 0 where not counted."""

    bytes: float = 0.0
    elements: float = 0.0


Window = Callable[[int, float], Rates]
"""Reads with a number of parallel readers, for about a number of seconds; returns the rates."""


def sweep(
    reader: Reader,
    window: Window,
    *,
    levels: Sequence[int] = LEVELS,
    limit_seconds: float,
    most_rounds: int = 4,
    seed: int = 0,
    before: Callable[[], None] | None = None,
    node: str = "",
) -> Sweep | None:
    """Returns the curve of `window` over `levels`; None if nothing was read, or time was too short for two rounds.

    Args:
        reader: who reads, for the result.
        window: measures one window.
        levels: numbers of parallel readers.
        limit_seconds: approximate time limit for all windows.
        most_rounds: with fewer rounds, windows are longer.
        seed: for the order of levels in each round.
        before: called before each window (to drop the page cache).
        node: id of the operator that reads, for the result.
    """
    rounds = _measure(
        window, levels, limit_seconds=limit_seconds, most_rounds=most_rounds, seed=seed, before=before
    )
    if rounds is None:
        return None
    by_bytes = _intervals([[one.bytes for one in row] for row in rounds])
    by_elements = _intervals([[one.elements for one in row] for row in rounds])
    intervals = by_bytes or by_elements
    if not intervals:
        return None
    knee = find_knee(levels, [one.median for one in intervals])
    return Sweep(
        reader=reader,
        levels=tuple(
            Level(
                level,
                bytes_per_second=by_bytes[index] if by_bytes else None,
                elements_per_second=by_elements[index] if by_elements else None,
            )
            for index, level in enumerate(levels)
        ),
        node=node,
        cold=before is not None,
        knee=knee.parallelism,
        falling=knee.falling and intervals[-1].high < max(one.low for one in intervals),
        ceiling=knee.ceiling if by_bytes else None,
    )


def _measure(
    window: Window,
    levels: Sequence[int],
    *,
    limit_seconds: float,
    most_rounds: int,
    seed: int,
    before: Callable[[], None] | None,
) -> list[list[Rates]] | None:
    """Returns, per round, the rates of every level; whole rounds only. None if two rounds took too long."""
    started, draw = time.perf_counter(), random.Random(seed)
    seconds = max(_SHORTEST_SECONDS, _WINDOWS * limit_seconds / (most_rounds * len(levels)))
    window(levels[0], _SHORTEST_SECONDS)  # warm-up: some things are slow only the first time
    rounds: list[list[Rates]] = []
    while len(rounds) < most_rounds:
        spent = time.perf_counter() - started
        if len(rounds) >= _FEWEST_ROUNDS and spent * (len(rounds) + 1) / len(rounds) > limit_seconds:
            break
        found: dict[int, Rates] = {}
        for level in draw.sample(list(levels), len(levels)):
            if len(rounds) < _FEWEST_ROUNDS and time.perf_counter() - started > _PATIENCE * limit_seconds:
                return None
            if before is not None:
                before()
            found[level] = window(level, seconds)
        rounds.append([found[level] for level in levels])
    return rounds


def _intervals(rounds: Sequence[Sequence[float]]) -> list[Interval]:
    """The rate of every level with its confidence interval; empty if a rate was not counted.

    Few rounds of several levels still give an interval: the variance is pooled over the levels, after the effect of
    each round as a whole is removed (the residual of the two-way layout of rounds and levels, on logs).
    """
    if any(rate <= 0 for row in rounds for rate in row):
        return []
    logs = [[math.log(rate) for rate in row] for row in rounds]
    if len(logs[0]) == 1:
        return [ratio_interval([row[0] for row in rounds])]
    row_means, means = [fmean(row) for row in logs], [fmean(column) for column in zip(*logs, strict=True)]
    residual = sum(
        (value - row_mean - mean + fmean(means)) ** 2
        for row, row_mean in zip(logs, row_means, strict=True)
        for value, mean in zip(row, means, strict=True)
    )
    freedom = (len(logs) - 1) * (len(means) - 1)
    reach = float(special.stdtrit(freedom, 0.975)) * math.sqrt(residual / freedom / len(logs))
    return [
        Interval(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), len(logs), _METHOD)
        for mean in means
    ]
