"""Leaving out each rewrite in turn: what stays, what goes, and how long it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.recorded import FakeRunner, Noise
from pipetune.core.measurement import Interval
from pipetune.search.search import FEWEST_ROUNDS, MOST_ROUNDS, ablate
from pipetune.search.state import SearchState
from tests.search.scenes import Scene, names, quiet, rewrites, runner, shared


def ablated(
    rules: list[str],
    made: FakeRunner,
    *,
    seed: int = 0,
    budget_seconds: float = 240.0,
    alone: Sequence[str] = (),
    **last: Any,
) -> SearchState:
    """All of these are in a plan that was proven; `alone`: those to be proven alone; `last`: what is so of the last."""
    parts = rewrites(rules)
    parts[-1] = replace(parts[-1], **last)
    state = Scene(parts, made, seed=seed, budget_seconds=budget_seconds).state()
    state.proven_alone = alone
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


def test_the_model_alone_keeps_nothing_that_the_plan_is_faster_without() -> None:
    """With noise, the pairs hardly narrow what the model expects: 0.6x of them left it more probable than not."""
    parts = rewrites(["large", "idle"])
    made, expected = runner({"large@n1": 1.4}, noise=Noise(spread=0.3, seed=2)), {"large@n1": 1.4, "idle@n1": 1.12}
    state = Scene(parts, made, expected=expected, budget_seconds=40.0, seed=2).state()
    state.chosen = whole = state.composer.plan(parts)
    ablate(state)
    assert state.added["idle@n1"].median < 1.0 and names(state.chosen) == ["large"]
    assert state.gains.of(whole, state.chosen).chance > 0.5


def test_a_part_the_plan_clearly_needs_takes_no_more_windows() -> None:
    found = ablated(["large", "small"], runner({"large@n1": 1.4, "small@n1": 1.05}, noise=quiet()))
    assert found.added["large@n1"].pairs == FEWEST_ROUNDS
    assert FEWEST_ROUNDS < found.added["small@n1"].pairs <= MOST_ROUNDS


def test_without_time_for_the_fewest_rounds_nothing_is_dropped() -> None:
    made = runner({"large@n1": 1.4}, noise=quiet())
    found = ablated(["large", "idle"], made, budget_seconds=2.0)
    assert names(found.chosen) == ["large", "idle"] and "no time" in found.notes[0]


@pytest.mark.parametrize("proven_before", [True, False])
def test_what_was_proven_before_a_cache_downstream_of_it_stays_for_the_first_epoch(proven_before: bool) -> None:
    parts = rewrites(["early", "cache"])
    above = {"is_above_cache": lambda one, plan: one.rule == "early" and len(plan.rewrites) > 1}
    state = Scene(parts, runner({"cache@n1": 4.0}, noise=quiet()), budget_seconds=240.0, **above).state()
    state.chosen = state.composer.plan(parts)
    if proven_before:
        state.added["early@n1"] = Interval(3.0, 2.8, 3.2, pairs=4, method="test")
    ablate(state)
    assert names(state.chosen) == (["early", "cache"] if proven_before else ["cache"])


def test_what_spares_memory_stays_unless_it_is_slower() -> None:
    def with_sparing(gain: float, spared: int, noise: Noise, seed: int = 0) -> SearchState:
        made = runner({"large@n1": 1.4, "small@n1": gain}, noise=noise)
        return ablated(["large", "small"], made, seed=seed, predicted_bytes=-spared)

    idle = [with_sparing(1.0, 2**27, shared(seed), seed) for seed in range(20)]
    assert sum(names(one.chosen) == ["large", "small"] for one in idle) >= 19
    assert any("128 MiB less" in trial.why for one in idle for trial in one.trials)
    assert names(with_sparing(0.9, 2**27, quiet()).chosen) == ["large"]
    assert names(with_sparing(1.0, 2**20, quiet()).chosen) == ["large"]


def test_a_number_in_place_of_autotune_stays_only_where_it_is_proven() -> None:
    def kept(gain: float, seed: int) -> list[str]:
        made = runner({"large@n1": 1.4, "freeze@n1": gain}, noise=quiet(seed))
        return names(ablated(["large", "freeze"], made, seed=seed, alone=["freeze@n1"]).chosen)

    assert sum(kept(1.02, seed) == ["large"] for seed in range(20)) >= 18
    assert all(kept(1.2, seed) == ["large", "freeze"] for seed in range(5))
