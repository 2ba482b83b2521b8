"""The promise of planned trials: useless candidates are not accepted, a real gain is found."""

from __future__ import annotations

import pytest

from pipetune.core.results import Outcome
from tests.search.scenes import Scene, names, rewrites, rough, runner, shared

pytestmark = pytest.mark.slow

USELESS = [f"useless-{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("sessions", "most"),
    [(100, 11), pytest.param(2000, 120, marks=pytest.mark.exhaustive)],  # one in 1,000 if it were 5 %; 6 %
)
def test_ten_useless_candidates_are_rarely_accepted(sessions: int, most: int) -> None:
    accepted = decided = 0
    for seed in range(sessions):
        scene = Scene(rewrites(USELESS), runner(noise=rough(seed), first_seconds=0.1), budget_seconds=400, seed=seed)
        found = scene.run()
        accepted += found.chosen is not None
        decided += any(
            trial.kind == "search" and trial.outcome in (Outcome.ACCEPTED, Outcome.REJECTED) for trial in found.trials
        )
    assert accepted <= most
    assert decided >= sessions / 2  # else the test would show nothing but a budget that is too small


@pytest.mark.parametrize(("gain", "seconds", "useless"), [(1.3, 200, USELESS), (1.5, 60, USELESS[:5])])
def test_a_real_gain_is_found_and_nothing_else(gain: float, seconds: float, useless: list[str]) -> None:
    found = []
    for seed in range(40):
        candidates = rewrites([*useless[:5], "useful", *useless[5:]])
        made = runner({"useful@n1": gain}, noise=shared(seed))
        found.append(names(Scene(candidates, made, budget_seconds=seconds, seed=seed).run().chosen))
    assert sum("useful" in plan for plan in found) >= 36
    assert sum(plan == ["useful"] for plan in found) >= 34
