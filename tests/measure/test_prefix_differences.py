"""Costs from prefixes: whose seconds are whose, how sure that is, and that the sum stays the whole."""

from __future__ import annotations

import random

import pytest

from pipetune.measure.differencing import Cost, operator_costs


def chain(
    costs: dict[str, tuple[float, float]],
    ratios: list[float],
    *,
    rounds: int = 8,
    noise: float = 0.0,
    drift: float = 0.0,
    seed: int = 0,
) -> dict[str, Cost]:
    """Costs found for a chain of operators with these true (CPU, wall) seconds; `ratios` taken in per one out."""
    draw = random.Random(seed)
    names = list(costs)
    visits = {}
    for end, name in enumerate(names):
        visits[name] = {name: 1.0}
        for position in range(end, 0, -1):
            visits[name][names[position - 1]] = visits[name][names[position]] * ratios[position - 1]
    cpu, wall = {}, {}
    for name in names:
        factors = [(1 + drift * turn) * (1 + draw.gauss(0, noise)) for turn in range(rounds)]
        for clock, seconds in enumerate((cpu, wall)):
            prefix = sum(count * costs[one][clock] for one, count in visits[name].items())
            seconds[name] = [prefix * factor for factor in factors]
    return operator_costs(cpu, wall, visits)


PHOTOS = {"read": (20e-6, 60e-6), "decode": (700e-6, 710e-6), "batch": (900e-6, 900e-6)}


def test_every_operator_gets_its_own_seconds_through_ratios() -> None:
    found = chain(PHOTOS, [1.0, 32.0])
    for name, (cpu, wall) in PHOTOS.items():
        assert found[name].cpu.median == pytest.approx(cpu)
        assert found[name].wall.median == pytest.approx(wall)
        assert found[name].waiting.median == pytest.approx(wall - cpu, abs=1e-12)


def test_drift_that_all_prefixes_of_a_round_share_shows_in_the_interval_and_not_as_a_shift() -> None:
    found = chain(PHOTOS, [1.0, 32.0], drift=0.02)
    assert found["decode"].cpu.median == pytest.approx(700e-6 * 1.07, rel=0.01)
    assert found["decode"].cpu.low < 700e-6 * 1.07 < found["decode"].cpu.high


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = total = 0
    for seed in range(200):
        for name, cost in chain(PHOTOS, [1.0, 32.0], noise=0.01, seed=seed).items():
            covered += cost.cpu.low <= PHOTOS[name][0] <= cost.cpu.high
            total += 1
    assert 0.92 < covered / total <= 1


@pytest.mark.parametrize("seed", range(20))
def test_noise_makes_no_cost_negative_and_the_sum_stays_the_whole(seed: int) -> None:
    costs = {"read": (1e-3, 1e-3), "nothing": (0.0, 0.0), "little": (1e-6, 1e-6), "work": (2e-3, 2e-3)}
    found = chain(costs, [1.0, 1.0, 1.0], noise=0.02, seed=seed)
    assert all(cost.cpu.low >= 0 and cost.cpu.median >= 0 and cost.waiting.median >= 0 for cost in found.values())
    assert all(cost.cpu.low <= cost.cpu.median <= cost.cpu.high for cost in found.values())
    assert sum(cost.cpu.median for cost in found.values()) == pytest.approx(3.001e-3, rel=0.03)
    assert found["nothing"].cpu.median < 0.1e-3


def test_branches_are_taken_off_both() -> None:
    visits = {"a": {"a": 1.0}, "b": {"b": 1.0}, "zip": {"zip": 1.0, "a": 1.0, "b": 1.0}}
    seconds = {"a": [1.0] * 3, "b": [2.0] * 3, "zip": [3.5] * 3}
    assert operator_costs(seconds, seconds, visits)["zip"].cpu.median == pytest.approx(0.5)


def test_behind_a_cache_nothing_above_it_counts() -> None:
    visits = {"read": {"read": 1.0}, "cache": {"cache": 1.0}, "map": {"map": 1.0, "cache": 1.0}}
    seconds = {"read": [1.0] * 3, "cache": [0.01] * 3, "map": [0.31] * 3}
    found = operator_costs(seconds, seconds, visits)
    assert {name: cost.cpu.median for name, cost in found.items()} == pytest.approx(
        {"read": 1.0, "cache": 0.01, "map": 0.3}
    )


def test_several_threads_wait_for_nothing_and_are_told() -> None:
    found = chain({"read": (1e-4, 1e-4), "blur": (4e-3, 2e-3)}, [1.0], noise=0.005)
    assert found["blur"].waiting.median == 0 and found["blur"].several_threads
    assert not found["read"].several_threads


def test_idle_threads_that_look_for_work_are_no_work_of_the_operator() -> None:
    found = chain({"read": (1e-4, 1e-4), "map": (1.06e-3, 1e-3), "blur": (1.8e-3, 1e-3)}, [1.0, 1.0])
    assert found["map"].cpu.median == pytest.approx(1e-3) and found["map"].cpu.high == pytest.approx(1e-3)
    assert found["blur"].cpu.median == pytest.approx(1.7e-3)


def test_one_round_is_too_few() -> None:
    with pytest.raises(ValueError, match="two rounds"):
        operator_costs({"a": [1.0]}, {"a": [1.0]}, {"a": {"a": 1.0}})
