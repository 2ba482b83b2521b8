"""The course of a run, from invented arrival times."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

from pipetune.measure.run_dynamics import (
    Epoch,
    blocks,
    border_seconds,
    drift,
    drift_series,
    later_rate,
    looks_like_drift,
    split,
    steady_seconds,
    without_drain,
)


def epoch(first: float, intervals: Iterable[float], *, complete: bool = True) -> Epoch:
    return Epoch(tuple(itertools.accumulate([first, *intervals])), complete)


def noisy(count: int, seconds: float, *, seed: int, noise: float = 0.1, memory: float = 0.0) -> list[float]:
    """Intervals with noise that keeps `memory` of its last value: an autoregressive series."""
    draw = random.Random(seed)
    level, found = 0.0, []
    for _ in range(count):
        level = memory * level + draw.gauss(0, noise)
        found.append(seconds * max(0.05, 1 + level))
    return found


def test_steady_state_leaves_first_elements_and_warm_up_out() -> None:
    run = epoch(2.0, [0.5] * 3 + [0.010] * 997, complete=False)
    assert steady_seconds([run]) == pytest.approx(0.010)
    assert steady_seconds([]) is None


def test_a_border_costs_what_its_first_element_takes_longer() -> None:
    epochs = [epoch(1.5, [0.010] * 50), epoch(0.31, [0.010] * 50), epoch(0.51, [0.010] * 50), epoch(0.41, [0.010] * 9)]
    steady = steady_seconds(epochs)
    assert steady == pytest.approx(0.010)
    assert border_seconds(epochs, steady) == pytest.approx(0.40)
    assert border_seconds(epochs[:1], steady) is None


def test_an_endless_run_is_split_at_its_borders() -> None:
    intervals = [0.01] * 100
    intervals[0], intervals[25], intervals[50], intervals[75] = 1.0, 0.5, 0.5, 0.5
    epochs = split(list(itertools.accumulate(intervals)), 25)
    assert [len(one.arrivals) for one in epochs] == [25, 25, 25, 25]
    assert [one.first_seconds for one in epochs] == pytest.approx([1.0, 0.5, 0.5, 0.5])
    assert border_seconds(epochs, 0.01) == pytest.approx(0.49)
    assert [len(one.arrivals) for one in split(list(range(10)), 2.5)] == [2, 3, 2, 3]
    assert [one.complete for one in split(list(range(10)), 4)] == [True, True, False]


def test_a_cache_shows_as_faster_later_epochs() -> None:
    epochs = [epoch(1.0, noisy(100, 0.010, seed=1)), *(epoch(0.1, noisy(100, 0.002, seed=seed)) for seed in (2, 3))]
    found = later_rate(epochs)
    assert found is not None and found.low < 5 < found.high and found.low > 4.5
    same = later_rate([epoch(1.0, noisy(100, 0.010, seed=seed)) for seed in (1, 2, 3)])
    assert same is not None and same.low < 1 < same.high
    assert later_rate(epochs[:1]) is None
    assert later_rate([epochs[0], Epoch(epochs[1].arrivals, complete=False)]) is None


def growing(count: int, *, by: float, since: float = 0.0, seed: int = 0, memory: float = 0.0) -> list[float]:
    begin = since * count
    rise = [1 + by * max(0.0, index - begin) / (count - begin) for index in range(count)]
    return [time * factor for time, factor in zip(noisy(count, 0.01, seed=seed, memory=memory), rise, strict=True)]


def test_a_drift_is_found_with_its_size() -> None:
    found = drift([growing(800, by=1.0, seed=seed) for seed in (1, 2)])
    assert found is not None and found.significant
    assert 1.7 < found.change.low < found.change.median < found.change.high < 2.4
    assert found.elements == 800


def test_a_drift_says_from_where_on() -> None:
    found = drift([growing(1200, by=2.0, since=0.5, seed=seed) for seed in (1, 2)])
    assert found is not None and found.significant
    assert 480 < found.since < 720


def test_one_disturbed_run_is_no_drift() -> None:
    disturbed, quiet = growing(800, by=1.0, since=0.6), noisy(800, 0.01, seed=9)
    assert looks_like_drift(disturbed)
    for runs in ([disturbed, quiet], [quiet, disturbed], [disturbed]):
        found = drift(runs)
        assert found is not None and not found.significant


def test_a_drift_too_small_to_matter_is_not_reported() -> None:
    runs = [[0.01 * (1 + 0.04 * index / 800 + 0.001 * (index % 2)) for index in range(800)]] * 2
    found = drift(runs)
    assert found is not None and found.change.low > 1.03 and not found.significant


@pytest.mark.parametrize("memory", [0.0, 0.9, 0.98])
def test_noise_is_rarely_called_a_drift(memory: float) -> None:
    wrong = sum(
        bool(found := drift([noisy(600, 0.01, seed=2 * seed + k, memory=memory, noise=0.05) for k in (0, 1)]))
        and found.significant
        for seed in range(60)
    )
    assert wrong <= 2


def test_a_run_of_a_few_elements_has_no_drift() -> None:
    assert drift([[0.01] * 5]) is None
    assert drift([]) is None
    assert drift([[]]) is None


def test_epochs_of_one_element_have_no_steady_state() -> None:
    alone = [epoch(0.1, []), epoch(0.1, [])]
    assert steady_seconds(alone) is None and later_rate(alone) is None
    assert drift_series(alone) == [] and blocks([]) == []


def test_blocks_grow_until_neighbours_are_uncorrelated() -> None:
    assert len(blocks(noisy(6400, 0.01, seed=3))) == 64
    assert len(blocks(noisy(6400, 0.01, seed=3, memory=0.999, noise=0.01))) < 32
    assert blocks([0.5]) == [0.5]


def test_what_shuffle_buffers_held_leaves_an_epoch_and_a_shorter_epoch_leaves_altogether() -> None:
    long, short = epoch(1.0, [0.1] * 19), epoch(1.0, [0.1] * 4)
    (left,) = without_drain([long, short], 8)
    assert left.arrivals == long.arrivals[:12]
    assert without_drain([long, short], 0) == [long, short]
