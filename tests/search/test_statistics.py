"""Intervals, planned looks, Holm, lag-1: each against numbers worked out elsewhere or by definition."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipetune.search.statistics import expected_interval, holm, lag_one, p_value, ratio_interval

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
