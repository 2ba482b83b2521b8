"""Intervals, planned looks, Holm, lag-1, against numbers worked out elsewhere; windows without what others used."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipetune.core.measurement import Window
from pipetune.search.statistics import expected_interval, holm, lag_one, p_value, ratio_interval, undisturbed

RATIOS = [1.10, 1.04, 1.22, 0.99, 1.15, 1.08, 1.17, 1.02]


def test_ratio_interval_is_the_t_interval_of_the_logs() -> None:
    logs = [math.log(ratio) for ratio in RATIOS]
    assert (lag_one(logs) or 0) < 0.2
    low, high = stats.t.interval(0.95, len(logs) - 1, statistics.fmean(logs), stats.sem(logs))
    found = ratio_interval(RATIOS)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.median == pytest.approx(statistics.median(RATIOS))
    assert found.pairs == 8 and "95 %" in found.method


def test_the_point_is_inside_the_interval_even_where_the_median_is_not_and_one_pair_is_no_interval() -> None:
    found = ratio_interval([2.0] * 7 + [0.01])
    assert found.low <= found.median <= found.high
    with pytest.raises(ValueError, match="two pairs"):
        ratio_interval([1.2])


@given(st.lists(st.floats(-0.5, 0.7), min_size=2, max_size=40, unique=True))
def test_p_value_is_the_error_at_which_the_interval_touches(logs: list[float]) -> None:
    sample = [math.exp(value) for value in logs]
    error = p_value(sample)
    if 1e-9 < error < 0.5:
        assert ratio_interval(sample, error=2 * error).low == pytest.approx(1.03, rel=1e-6)


def test_equal_ratios_are_certain() -> None:
    assert (p_value([1.2] * 8), p_value([1.0] * 8)) == (0.0, 1.0)


def test_holm_steps_down() -> None:
    # 0.01 <= 0.05/3, 0.02 <= 0.05/2, 0.04 <= 0.05: all pass, although plain Bonferroni would pass one.
    assert holm([0.02, 0.04, 0.01], error=0.05) == [0.025, 0.05, pytest.approx(0.05 / 3)]
    # the smallest fails: nothing passes, whatever comes after
    assert holm([0.02, 0.03], error=0.03) == [None, None]
    # the second fails: the third is not looked at
    assert holm([0.001, 0.03, 0.031], error=0.05) == [pytest.approx(0.05 / 3), None, None]


def test_lag_one_of_known_series() -> None:
    assert lag_one([1.0, -1.0] * 20) == pytest.approx(-0.975)
    assert lag_one(list(range(100))) == pytest.approx(0.97, abs=0.01)
    assert lag_one([1.0, 2.0, 3.0]) is None and lag_one([1.0] * 10) is None


def test_correlated_pairs_widen_the_interval() -> None:
    wide, narrow = ratio_interval([1.0] * 4 + [1.3] * 4), ratio_interval([1.0, 1.3] * 4)
    assert math.log(wide.high / wide.low) > 1.5 * math.log(narrow.high / narrow.low)


def test_two_pairs_that_differ_still_say_what_to_do_next() -> None:
    pairs = [0.25, 0.32]
    assert ratio_interval(pairs).high > 1 > expected_interval(pairs).high
    alike = [0.98, 0.981, 0.979, 0.98]
    assert expected_interval(alike) == ratio_interval(alike), "what a quiet machine shows by itself is not widened"


CORES = 2


def window(*, seconds: float = 1.0, used: float, others: float | None, cores: int | None = CORES) -> Window:
    """A window of 100 steps, beside others; `used` and `others` in cores."""
    taken = None if others is None else others * seconds
    return Window(100, 100, seconds, used * seconds, 0.1, wait_seconds=0.5 * seconds, others_seconds=taken, cores=cores)


def seconds(windows: Sequence[Window]) -> list[float]:
    return [round(one.wall_seconds, 6) for one in undisturbed(windows)[0]]


@pytest.mark.parametrize(("windows", "expected"), [
    ([], []),
    ([window(used=1.9, others=0.0), window(used=1.8, others=0.0)], [1.0, 1.0]),  # nobody else
    ([window(used=1.0, others=0.0), window(used=1.0, others=1.0)], [1.0, 1.0]),  # enough is left
    ([window(used=2.0, others=0.0), window(seconds=2.0, used=1.0, others=1.0)], [1.0, 1.0]),  # half is left
    ([window(used=1.6, others=0.4), window(seconds=2.0, used=1.2, others=0.8)], [1.0, 2.0]),  # never alone
    ([window(used=2.0, others=None), window(used=1.0, others=None)], [1.0, 1.0]),  # the load is unknown
    ([window(used=2.0, others=0, cores=None), window(used=1.0, others=1.0, cores=None)], [1.0, 1.0]),
    ([window(used=1.9, others=0.3), window(used=1.9, others=0.3)], [1.0, 1.0]),  # coarse counters
    ([window(used=0.0, others=2.0)], [1.0]),  # waits for a device
])  # fmt: skip
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
