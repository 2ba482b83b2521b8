"""Leaving out each rewrite in turn: what stays, what goes, and how long it is measured."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.time_plan import TimePlan
from pipetune.search.ablation import FEWEST_ROUNDS, MOST_ROUNDS, Ablated, ablate
from pipetune.search.composing import Composer
from pipetune.search.equality import EqualityGate
from pipetune.search.evidence import Forecast, Gains
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Meter
from pipetune.search.runner import silent
from pipetune.testing.runner import FakeRunner
from tests.search.scenes import names, quiet, rewrites, runner, shared


def ablated(
    rules: list[str], made: FakeRunner, *, seed: int = 0, budget_seconds: float = 240.0, spared: float = 0.0
) -> Ablated:
    """`spared`: bytes that the last one lets the pipeline hold less."""
    parts = rewrites(rules)
    parts[-1] = replace(parts[-1], predicted_bytes=-spared)
    return ablate_all(parts, made, seed=seed, budget_seconds=budget_seconds)


def ablate_all(parts: Sequence[Rewrite], made: FakeRunner, *, seed: int, budget_seconds: float = 240.0) -> Ablated:
    kit = kit_of(parts, made, seed=seed, budget_seconds=budget_seconds)
    gains = Gains(Forecast(None), kit.base, kit.composer, shares_processors=False)
    return ablate(kit.composer.plan(parts), kit, gains)


def kit_of(parts: Sequence[Rewrite], made: FakeRunner, *, seed: int, budget_seconds: float = 240.0) -> SearchContext:
    meter = Meter(made, made.clock, budget=TimePlan(budget_seconds, made.clock))
    gate = EqualityGate(made, made.clock, notify=silent)
    return SearchContext(Plan("defaults"), meter, Composer(tuple(parts)), gate, random.Random(seed), silent)


def test_what_adds_nothing_leaves() -> None:
    found = [ablated(["large", "idle"], runner({"large@n1": 1.4}, noise=quiet(seed)), seed=seed) for seed in range(20)]
    assert sum(names(one.plan) == ["large"] for one in found) >= 18


def test_a_small_gain_stays_in_a_plan_that_was_proven_with_it() -> None:
    """Proven whole, a plan does not lose a part worth 5 % in one run and keep it in the next."""
    gains = {"large@n1": 1.4, "small@n1": 1.05}
    kept = [names(ablated(["large", "small"], runner(gains, noise=shared(seed)), seed=seed).plan) for seed in range(40)]
    assert kept.count(["large", "small"]) >= 34


def test_a_part_the_plan_clearly_needs_takes_no_more_windows() -> None:
    found = ablated(["large", "small"], runner({"large@n1": 1.4, "small@n1": 1.05}, noise=quiet()))
    assert found.gains["large@n1"].pairs == FEWEST_ROUNDS
    assert FEWEST_ROUNDS < found.gains["small@n1"].pairs <= MOST_ROUNDS


def test_without_time_for_the_fewest_rounds_nothing_is_dropped() -> None:
    made = runner({"large@n1": 1.4}, noise=quiet())
    found = ablated(["large", "idle"], made, budget_seconds=2.0)
    assert names(found.plan) == ["large", "idle"] and "no time" in found.notes[0]


def test_what_spares_memory_stays_unless_it_is_slower() -> None:
    idle = [
        ablated(["large", "small"], runner({"large@n1": 1.4}, noise=shared(seed)), seed=seed, spared=2**27)
        for seed in range(20)
    ]
    assert sum(names(one.plan) == ["large", "small"] for one in idle) >= 19
    assert any("128 MiB less" in trial.why for one in idle for trial in one.trials)
    slow = ablated(["large", "small"], runner({"large@n1": 1.4, "small@n1": 0.9}, noise=quiet()), spared=2**27)
    assert names(slow.plan) == ["large"]
    little = ablated(["large", "small"], runner({"large@n1": 1.4}, noise=quiet()), spared=2**20)
    assert names(little.plan) == ["large"]


def test_what_is_offered_where_it_is_as_fast_stays_only_where_it_is_proven() -> None:
    def kept(gain: float, seed: int) -> list[str]:
        parts = rewrites(["large", "freeze"])
        parts[-1] = replace(parts[-1], equal_is_enough=True)
        made = runner({"large@n1": 1.4, parts[-1].key: gain}, noise=quiet(seed))
        return names(ablate_all(parts, made, seed=seed).plan)

    assert sum(kept(1.02, seed) == ["large"] for seed in range(20)) >= 18
    assert all(kept(1.2, seed) == ["large", "freeze"] for seed in range(5))
