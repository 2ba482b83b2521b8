"""Where the curve of rates over the parallelism of reads bends."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.measure.source_reads import find_knee

LEVELS = (1, 2, 4, 8, 16, 32)


def saturating(knee: float, rate: float = 100.0) -> list[float]:
    return [rate * min(level / knee, 1.0) for level in LEVELS]


@pytest.mark.parametrize(("levels", "rates", "knee", "falling", "ceiling"), [
    *((LEVELS, saturating(knee), knee, False, 100) for knee in (2, 6, 12, 16)),
    (LEVELS, [40.0 + rate for rate in saturating(8, 60.0)], 8, False, 100),
    (LEVELS, [700.0] * 6, 1, False, 700),
    (LEVELS, [50.0 * level for level in LEVELS], None, False, 1600),  # still rises at the last level
    (LEVELS, [200, 190, 170, 130, 90, 60], 1, True, None),
    (LEVELS, [100, 200, 400, 404, 412, 428], 4, False, None),  # a slow rise after the knee does not move it
    ((1,), (5.0,), 1, False, 5),
    ((1, 2), (5.0, 5.1), 1, False, None),
    ((1, 2), (5.0, 9.0), None, False, 9),
    ((1, 2), (9.0, 5.0), 1, True, None),
])  # fmt: skip
def test_knee_of_curve(levels, rates, knee, falling, ceiling) -> None:
    found = find_knee(levels, rates)
    assert (found.parallelism, found.falling) == (knee, falling)
    assert ceiling is None or found.ceiling == pytest.approx(ceiling)


def test_knee_of_rising_and_falling_curve_is_at_its_maximum() -> None:
    found = find_knee(LEVELS, [100, 200, 400, 380, 340, 260])
    assert found.parallelism is not None and 3 <= found.parallelism <= 5
    assert found.falling and found.ceiling == pytest.approx(400, rel=0.1)


@settings(max_examples=30)
@given(st.sampled_from([2, 4, 8]), st.integers(0, 10_000))
def test_noise_of_five_percent_moves_knee_by_less_than_factor_two(knee: int, seed: int) -> None:
    draw = random.Random(seed)
    found = find_knee(LEVELS, [rate * draw.uniform(0.95, 1.05) for rate in saturating(knee)])
    assert found.parallelism is not None and knee / 2 < found.parallelism < 2 * knee
    assert found.ceiling == pytest.approx(100, rel=0.1)


def test_curve_without_levels_is_rejected() -> None:
    with pytest.raises(ValueError, match="one rate per level"):
        find_knee((), ())
