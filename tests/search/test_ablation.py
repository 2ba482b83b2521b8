"""Leaving out each rewrite in turn: what stays, what goes, and how long it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipetune.core.edits import Rewrite
from pipetune.search.ablation import FEWEST_ROUNDS, MOST_ROUNDS, ablate
from pipetune.search.state import SearchState
from pipetune.testing.runner import FakeRunner
from tests.search.scenes import Scene, names, quiet, rewrites, runner, shared


def ablated(
    rules: list[str], made: FakeRunner, *, seed: int = 0, budget_seconds: float = 240.0, spared: float = 0.0
) -> SearchState:
    """`spared`: bytes that the last one lets the pipeline hold less."""
    parts = rewrites(rules)
    parts[-1] = replace(parts[-1], predicted_bytes=-spared)
    return ablate_all(parts, made, seed=seed, budget_seconds=budget_seconds)


def ablate_all(parts: Sequence[Rewrite], made: FakeRunner, *, seed: int, budget_seconds: float = 240.0) -> SearchState:
    """All of them are in a plan that was proven."""
    state = Scene(parts, made, seed=seed, budget_seconds=budget_seconds).state()
    state.chosen = state.composer.plan(parts)
    ablate(state)
    return state


def test_what_adds_nothing_leaves() -> None:
    found = [ablated(["large", "idle"], runner({"large@n1": 1.4}, noise=quiet(seed)), seed=seed) for seed in range(20)]
    assert sum(names(one.chosen) == ["large"] for one in found) >= 18


def test_a_small_gain_stays_in_a_plan_that_was_proven_with_it() -> None:
    """Proven whole, a plan does not lose a part worth 5 % in one run and keep it in the next."""
    gains = {"large@n1": 1.4, "small@n1": 1.05}
    kept = [
        names(ablated(["large", "small"], runner(gains, noise=shared(seed)), seed=seed).chosen) for seed in range(40)
    ]
    assert kept.count(["large", "small"]) >= 34


def test_a_part_the_plan_clearly_needs_takes_no_more_windows() -> None:
    found = ablated(["large", "small"], runner({"large@n1": 1.4, "small@n1": 1.05}, noise=quiet()))
    assert found.added["large@n1"].pairs == FEWEST_ROUNDS
    assert FEWEST_ROUNDS < found.added["small@n1"].pairs <= MOST_ROUNDS


def test_without_time_for_the_fewest_rounds_nothing_is_dropped() -> None:
    made = runner({"large@n1": 1.4}, noise=quiet())
    found = ablated(["large", "idle"], made, budget_seconds=2.0)
    assert names(found.chosen) == ["large", "idle"] and "no time" in found.notes[0]


def test_what_spares_memory_stays_unless_it_is_slower() -> None:
    idle = [
        ablated(["large", "small"], runner({"large@n1": 1.4}, noise=shared(seed)), seed=seed, spared=2**27)
        for seed in range(20)
    ]
    assert sum(names(one.chosen) == ["large", "small"] for one in idle) >= 19
    assert any("128 MiB less" in trial.why for one in idle for trial in one.trials)
    slow = ablated(["large", "small"], runner({"large@n1": 1.4, "small@n1": 0.9}, noise=quiet()), spared=2**27)
    assert names(slow.chosen) == ["large"]
    little = ablated(["large", "small"], runner({"large@n1": 1.4}, noise=quiet()), spared=2**20)
    assert names(little.chosen) == ["large"]


def test_what_is_offered_where_it_is_as_fast_stays_only_where_it_is_proven() -> None:
    def kept(gain: float, seed: int) -> list[str]:
        parts = rewrites(["large", "freeze"])
        parts[-1] = replace(parts[-1], equal_is_enough=True)
        made = runner({"large@n1": 1.4, parts[-1].key: gain}, noise=quiet(seed))
        return names(ablate_all(parts, made, seed=seed).chosen)

    assert sum(kept(1.02, seed) == ["large"] for seed in range(20)) >= 18
    assert all(kept(1.2, seed) == ["large", "freeze"] for seed in range(5))
