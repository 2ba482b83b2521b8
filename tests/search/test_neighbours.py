"""Windows without what other processes used of the cores."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest

from pipetune.core.results import Window
from pipetune.search.meter import undisturbed

CORES = 2


def window(*, seconds: float = 1.0, used: float, others: float | None, cores: int | None = CORES) -> Window:
    """A window of 100 steps, beside others; `used` and `others` in cores."""
    taken = None if others is None else others * seconds
    return Window(100, 100, seconds, used * seconds, 0.1, wait_seconds=0.5 * seconds, others_seconds=taken, cores=cores)


def seconds(windows: Sequence[Window]) -> list[float]:
    return [round(one.wall_seconds, 6) for one in undisturbed(windows)[0]]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([], []),
        ([window(used=1.9, others=0.0), window(used=1.8, others=0.0)], [1.0, 1.0]),  # nobody else
        ([window(used=1.0, others=0.0), window(used=1.0, others=1.0)], [1.0, 1.0]),  # enough is left
        ([window(used=2.0, others=0.0), window(seconds=2.0, used=1.0, others=1.0)], [1.0, 1.0]),  # half is left
        ([window(used=1.6, others=0.4), window(seconds=2.0, used=1.2, others=0.8)], [1.0, 2.0]),  # never alone
        ([window(used=2.0, others=None), window(used=1.0, others=None)], [1.0, 1.0]),  # the load is unknown
        ([window(used=2.0, others=0, cores=None), window(used=1.0, others=1.0, cores=None)], [1.0, 1.0]),
        ([window(used=1.9, others=0.3), window(used=1.9, others=0.3)], [1.0, 1.0]),  # coarse counters
        ([window(used=0.0, others=2.0)], [1.0]),  # waits for a device
    ],
)
def test_a_window_is_as_short_as_with_the_cores_the_plan_can_use(windows: list[Window], expected: list[float]) -> None:
    assert seconds(windows) == expected


def test_nothing_is_taken_out_where_one_plan_never_had_all_it_can_use() -> None:
    """It would be as slow as beside the others, and the other plan as fast as without them."""
    always = [window(used=1.2, others=0.8), window(used=1.3, others=0.7)]
    sometimes = [window(used=2.0, others=0.0), window(seconds=2.0, used=1.0, others=1.0)]
    assert undisturbed(always, sometimes) == undisturbed(sometimes, always)[::-1] == [always, sometimes]
    earlier, alone = undisturbed(always, sometimes, usable=(1.8, None)), window(used=1.8, others=0.0)
    assert earlier == [undisturbed([alone, *always])[0][1:], undisturbed(sometimes)[0]]
    unknown = [window(used=2.0, others=None), window(seconds=2.0, used=1.0, others=None)]
    assert undisturbed(unknown, sometimes) == [unknown, sometimes]
    idle = [window(used=1.2, others=0.8), window(used=1.3, others=0.5)]  # a tenth of the cores was left unused
    assert undisturbed(idle, sometimes)[1] != sometimes


def test_waiting_shrinks_with_the_window_and_nothing_else_changes() -> None:
    quiet, beside = window(used=2.0, others=0.0), window(seconds=2.0, used=1.0, others=1.0)
    alone = undisturbed([quiet, beside])[0][1]
    assert (alone.wall_seconds, alone.wait_seconds) == (1.0, 0.5)
    assert (alone.steps, alone.cpu_seconds, alone.first_seconds) == (100, beside.cpu_seconds, beside.first_seconds)


def beside_a_neighbour(*, parallel: bool, draw: random.Random) -> Window:
    """A window of a plan that can use two cores, 1.5 times as fast alone, or of one that uses one."""
    others = draw.choice((0.0, 1.0)) * draw.uniform(0.6, 1.0)
    got = min(2.0 if parallel else 1.0, CORES - others)
    rate = got * (0.75 if parallel else 1.0) * math.exp(draw.gauss(0.0, 0.05))
    return window(seconds=1 / rate, used=got, others=others)


def log_ratios(draw: random.Random, *, parallel: bool, pairs: int = 8) -> tuple[list[float], list[float]]:
    """Of a plan over one that uses one core: as measured, and as if nobody else had been there."""
    ours = [beside_a_neighbour(parallel=parallel, draw=draw) for _ in range(pairs)]
    base = [beside_a_neighbour(parallel=False, draw=draw) for _ in range(pairs)]

    def logs(one: list[Window], other: list[Window]) -> list[float]:
        return [math.log(b.wall_seconds / a.wall_seconds) for a, b in zip(one, other, strict=True)]

    return logs(ours, base), logs(*undisturbed(ours, base))


def test_gain_of_a_parallel_plan_is_that_of_the_quiet_machine() -> None:
    draw = random.Random(0)
    measured, found = zip(*(log_ratios(draw, parallel=True) for _ in range(300)), strict=True)
    assert statistics.fmean(map(statistics.fmean, measured)) < math.log(1.3)
    assert statistics.fmean(map(statistics.fmean, found)) == pytest.approx(math.log(1.5), abs=0.02)
    assert statistics.fmean(map(statistics.stdev, found)) < statistics.fmean(map(statistics.stdev, measured)) / 2


def test_a_plan_like_the_other_seems_no_faster() -> None:
    draw = random.Random(1)
    found = [statistics.fmean(log_ratios(draw, parallel=False)[1]) for _ in range(300)]
    assert statistics.fmean(found) == pytest.approx(0.0, abs=0.01)
