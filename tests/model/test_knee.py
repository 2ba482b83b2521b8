"""The knee of example curves: rising and then flat, flat, straight, falling, noisy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.model.throughput import find_knee

LEVELS = (1, 2, 4, 8, 16, 32)


def saturating(knee: float, rate: float = 100.0) -> list[float]:
    return [rate * min(level / knee, 1.0) for level in LEVELS]


@pytest.mark.parametrize("knee", [2, 4, 8, 16])
def test_knee_of_saturating_curve(knee: int) -> None:
    found = find_knee(LEVELS, saturating(knee))
    assert found.parallelism == knee
    assert found.rate == pytest.approx(100.0) and found.ceiling == pytest.approx(100.0)
    assert not found.falling


def test_knee_between_two_levels() -> None:
    assert find_knee(LEVELS, saturating(6)).parallelism == 6
    assert find_knee(LEVELS, saturating(12)).parallelism == 12


def test_start_above_zero_does_not_move_knee() -> None:
    rates = [40.0 + rate for rate in saturating(8, 60.0)]
    assert find_knee(LEVELS, rates).parallelism == 8


def test_flat_curve_needs_one_reader() -> None:
    found = find_knee(LEVELS, [700.0] * 6)
    assert found.parallelism == 1 and found.rate == pytest.approx(700.0) and not found.falling
    wavering = find_knee(LEVELS, [700, 720, 690, 705, 715, 695])
    assert wavering.parallelism == 1


def test_straight_line_has_no_knee() -> None:
    found = find_knee(LEVELS, [50.0 * level for level in LEVELS])
    assert found.parallelism is None and found.rate == found.ceiling == pytest.approx(1600.0)


def test_falling_curve_needs_one_reader() -> None:
    found = find_knee(LEVELS, [200, 190, 170, 130, 90, 60])
    assert found.parallelism == 1 and found.falling


def test_knee_of_rising_and_falling_curve_is_at_its_maximum() -> None:
    found = find_knee(LEVELS, [100, 200, 400, 380, 340, 260])
    assert found.parallelism is not None and 3 <= found.parallelism <= 5
    assert found.falling and found.ceiling == pytest.approx(400, rel=0.1)


def test_slow_rise_after_knee_does_not_move_it() -> None:
    assert find_knee(LEVELS, [100, 200, 400, 404, 412, 428]).parallelism == 4


@pytest.mark.parametrize(
    ("levels", "rates", "knee"),
    [((1,), (5.0,), 1), ((1, 2), (5.0, 5.1), 1), ((1, 2), (5.0, 9.0), None), ((1, 2), (9.0, 5.0), 1)],
)
def test_few_levels(levels: tuple[int, ...], rates: tuple[float, ...], knee: int | None) -> None:
    assert find_knee(levels, rates).parallelism == knee


@settings(deadline=None)
@given(st.sampled_from([2, 4, 8]), st.integers(0, 10_000))
def test_noise_of_five_percent_moves_knee_by_less_than_factor_two(knee: int, seed: int) -> None:
    draw = random.Random(seed)
    found = find_knee(LEVELS, [rate * draw.uniform(0.95, 1.05) for rate in saturating(knee)])
    assert found.parallelism is not None and knee / 2 < found.parallelism < 2 * knee
    assert found.ceiling == pytest.approx(100, rel=0.1)


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=6))
def test_knee_lies_within_levels(rates: list[float]) -> None:
    levels = LEVELS[: len(rates)]
    found = find_knee(levels, rates)
    assert found.parallelism is None or levels[0] <= found.parallelism <= levels[-1]


def test_curve_without_levels_is_rejected() -> None:
    with pytest.raises(ValueError, match="one rate per level"):
        find_knee((), ())
