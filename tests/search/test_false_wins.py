"""The promise of planned trials: useless candidates are not accepted, a real gain is found."""

from __future__ import annotations

import pytest

from pipetune.core.results import Outcome
from tests.search.scenes import Scene, names, rewrites, rough, runner, shared

pytestmark = pytest.mark.slow

USELESS = [f"useless-{number}" for number in range(10)]


def useless_sessions(count: int) -> tuple[int, int]:
    """Sessions that accepted something, and those that came to any decision."""
    accepted = decided = 0
    for seed in range(count):
        scene = Scene(rewrites(USELESS), runner(noise=rough(seed), first_seconds=0.1), budget_seconds=400, seed=seed)
        found = scene.run()
        accepted += found.chosen is not None
        decided += any(
            trial.kind == "search" and trial.outcome in (Outcome.ACCEPTED, Outcome.REJECTED) for trial in found.trials
        )
    return accepted, decided


def test_ten_useless_candidates_are_rarely_accepted() -> None:
    accepted, decided = useless_sessions(300)
    assert accepted <= 18  # 6 %
    assert decided >= 150  # else the test would show nothing but a budget that is too small


@pytest.mark.exhaustive
def test_ten_useless_candidates_are_rarely_accepted_in_many_sessions() -> None:
    accepted, decided = useless_sessions(2000)
    assert accepted <= 120
    assert decided >= 1000


def test_a_real_gain_is_found_and_nothing_else() -> None:
    found = []
    for seed in range(100):
        candidates = rewrites([*USELESS[:5], "useful", *USELESS[5:]])
        made = runner({"useful@n1": 1.3}, noise=shared(seed))
        scene = Scene(candidates, made, budget_seconds=200, seed=seed)
        found.append(names(scene.run().chosen))
    assert sum("useful" in plan for plan in found) >= 90
    assert sum(plan == ["useful"] for plan in found) >= 85


def test_a_real_gain_is_found_within_a_minute() -> None:
    found = []
    for seed in range(60):
        candidates = rewrites([*USELESS[:5], "useful"])
        made = runner({"useful@n1": 1.5}, noise=shared(seed))
        scene = Scene(candidates, made, budget_seconds=60, seed=seed)
        found.append(names(scene.run().chosen))
    assert sum("useful" in plan for plan in found) >= 54
