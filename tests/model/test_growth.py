"""Memory growth from simulated readings: leaks, filling buffers, noise, random walks."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from pipetune.core.profile import MemoryGrowth
from pipetune.model.memory import FEWEST_READINGS, growth

MIB = 2**20
BASE = 500 * MIB


def watched(sizes: list[float], *, per_reading: int = 100) -> MemoryGrowth:
    found = growth([(per_reading * index, BASE + size) for index, size in enumerate(sizes)], epoch_elements=600)
    assert found is not None
    return found


def test_leak_is_steady_with_correct_slope() -> None:
    draw = random.Random(1)
    found = watched([index * MIB + draw.uniform(-0.2, 0.2) * MIB for index in range(24)])
    assert found.steady
    slope = found.bytes_per_element
    assert slope.low < MIB / 100 < slope.high and slope.median == pytest.approx(MIB / 100, rel=0.05)
    assert found.elements == 2300 and found.epochs == pytest.approx(23 / 6)
    assert found.grown_bytes == pytest.approx(23 * MIB, rel=0.05)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([0.0] * 24, id="constant"),
        pytest.param([60 * MIB * (1 - math.exp(-index / 6)) for index in range(24)], id="a buffer that fills"),
        pytest.param([min(index, 10) * 4 * MIB for index in range(24)], id="a buffer that is full"),
        pytest.param([0.0] * 20 + [64.0 * MIB] * 4, id="a single jump"),
        pytest.param([-index * MIB for index in range(24)], id="shrinking"),
        pytest.param([index * 4096.0 for index in range(24)], id="within the noise of an allocator"),
    ],
)
def test_what_is_not_a_leak(sizes: list[float]) -> None:
    assert not watched(sizes).steady


def test_random_walk_is_rarely_reported_as_leak() -> None:
    """A random walk rises and falls for long stretches; a fitted line would be 'significant'."""
    called = 0
    for seed in range(400):
        draw = random.Random(seed)
        steps = [draw.gauss(0, 3) * MIB for _ in range(24)]
        called += watched(list(itertools.accumulate(steps))).steady
    assert called <= 400 * 0.01


def test_too_few_readings_give_no_result() -> None:
    assert growth([(index, BASE) for index in range(FEWEST_READINGS - 1)]) is None
    assert growth([(0, BASE)] * 24) is None
    assert watched([index * MIB for index in range(24)]).bytes_per_element.pairs == 23
