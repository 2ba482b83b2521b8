"""Decisions happen after 4 (or 3), 6, 8, 16 and 32 rounds, and when the time is up."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields, replace

import pytest

from benchmarks.recorded import FakeRunner, Noise, rewrite
from pipetune.core.edits import Plan
from pipetune.core.measurement import OutOfBudget, Window
from pipetune.core.results import Outcome, Trial
from pipetune.core.time_plan import Part, TimePlan
from pipetune.search.meter import Meter
from pipetune.search.race import Arm, decide, race
from tests.search.scenes import Scene, rough, runner

BASE = Plan("defaults")


def plan(name: str) -> Plan:
    return Plan("tuned", (rewrite(name),))


def decided(
    made: FakeRunner, *names: str, seconds: float = 10_000, seed: int = 0, expects_large_gain: bool = False
) -> tuple[Trial, ...]:
    meter, plans = Meter(made, made.clock, budget=TimePlan(seconds, made.clock)), [plan(name) for name in names]
    how = {"draw": random.Random(seed), "unit": "input", "part": Part.VERIFICATION}
    return decide(plans, BASE, meter, expects_large_gain=expects_large_gain, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gain", "spread", "outcome"),
    [(1.3, 0.01, Outcome.ACCEPTED), (1.0, 0.01, Outcome.REJECTED), (1.02, 0.001, Outcome.REJECTED)],
    ids=["large", "nothing", "below the rule, however sure"],
)
def test_what_is_clear_is_decided_at_the_first_look(gain: float, spread: float, outcome: Outcome) -> None:
    (trial,) = decided(runner({"a@n1": gain}, noise=Noise(spread=spread)), "a")
    assert trial.outcome is outcome and len(trial.ratios) == 4
    assert trial.gain is not None and (trial.gain.low > 1.03) is (outcome is Outcome.ACCEPTED)


def test_an_expected_large_gain_is_proven_by_three_pairs_and_a_smaller_one_later() -> None:
    lengths: dict[float, Counter[int]] = {3.0: Counter(), 1.5: Counter()}
    for gain, seen in lengths.items():
        for seed in range(20):
            made = runner({"a@n1": gain}, noise=Noise(spread=0.05, seed=seed))
            (trial,) = decided(made, "a", seed=seed, expects_large_gain=True)
            assert trial.outcome is Outcome.ACCEPTED
            seen[len(trial.ratios)] += 1
    assert lengths[3.0][3] >= 16 and set(lengths[3.0]) <= {3, 6}
    assert lengths[1.5][6] >= 5 and 4 not in lengths[1.5]


class WithLoad(FakeRunner):
    """Windows that know their load: as written it uses one core of two and has it; a plan uses both, and others one."""

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        window = super().input_window(plan, seconds=seconds, warmup_seconds=warmup_seconds)
        used, others = (1.5, 0.5) if plan.rewrites else (1.0, 0.0)
        seconds = window.wall_seconds
        return replace(window, cpu_seconds=used * seconds, others_seconds=others * seconds, cores=2)


def test_cores_that_both_can_use_stay_known_behind_the_race() -> None:
    made = runner({"a@n1": 1.3})
    loaded = WithLoad(**{each.name: getattr(made, each.name) for each in fields(made)})
    assert decided(loaded, "a")[0].usable_cores == (None, 1.0)
    assert decided(made, "a")[0].usable_cores == (None, None)


def test_cores_that_the_script_as_it_is_can_use_stay_known_behind_a_race_against_another_plan() -> None:
    made = runner({"a@n1": 1.5, "b@n1": 1.5})
    state = Scene("ab", WithLoad(**{each.name: getattr(made, each.name) for each in fields(made)})).state()
    first, second = (state.composer.plan(state.candidates[:count]) for count in (1, 2))
    (state.accepted,), state.chosen = state.race([first], Part.EXTENSION), first
    (later,) = state.race([second], Part.EXTENSION)
    assert state.accepted.usable_cores == later.usable_cores == (None, 1.0)


def test_with_time_looks_are_after_planned_numbers_of_pairs_only() -> None:
    lengths: Counter[int] = Counter()
    for seed in range(60):
        made = runner({"a@n1": 1.06}, noise=Noise(spread=0.06, seed=seed))
        (trial,) = decided(made, "a", seed=seed)
        lengths[len(trial.ratios)] += 1
    assert {8, 16, 32} <= set(lengths) <= {4, 6, 8, 16, 32}


def test_the_time_is_used_to_its_end_and_the_last_look_spends_what_is_left() -> None:
    outcomes: Counter[Outcome] = Counter()
    for seed in range(20):
        made = runner({"a@n1": 1.14}, noise=Noise(spread=0.08, seed=seed))
        began = made.clock.now()
        (trial,) = decided(made, "a", seconds=45, seed=seed)
        outcomes[trial.outcome] += 1
        if len(trial.ratios) not in (4, 6, 8):
            assert made.clock.now() - began > 42
            assert len(trial.ratios) > 8
        if trial.outcome is Outcome.UNDECIDED:
            assert trial.why == f"the time was up after {len(trial.ratios)} pairs"
    assert outcomes[Outcome.ACCEPTED] >= 10 and outcomes[Outcome.UNDECIDED] >= 1


def test_ten_times_as_fast_is_proven_by_three_pairs_beside_others_work() -> None:
    """Long windows: there is time for three pairs, and they say 10x."""
    proven = []
    for seed in range(20):
        made = runner({"a@n1": 10.0}, noise=rough(seed), first_seconds=5.0)
        (trial,) = decided(made, "a", seconds=45, seed=seed)
        proven.append(trial.outcome is Outcome.ACCEPTED and len(trial.ratios) == 3)
    assert sum(proven) >= 18


def test_plans_of_one_decision_share_the_base() -> None:
    made = runner({"a@n1": 1.3})
    trials = decided(made, "a", "b", "c")
    counts = Counter(key for _, key in made.windows)
    assert counts["defaults"] == counts["a@n1"] == counts["b@n1"] == 4
    assert [trial.plan.key for trial in trials if trial.outcome is Outcome.ACCEPTED] == ["a@n1"]


def test_a_failing_plan_leaves_and_the_others_go_on() -> None:
    trials = decided(runner({"b@n1": 1.3}, fails={"a@n1": "raised"}), "a", "b")
    assert [trial.outcome for trial in trials] == [Outcome.FAILED, Outcome.ACCEPTED]
    alone = runner({}, fails={"a@n1": "raised"})
    (trial,) = decided(alone, "a")
    assert (trial.outcome, trial.why) == (Outcome.FAILED, "raised") and len(alone.windows) <= 2, "none is left"


def test_pairs_come_in_both_orders_from_a_kept_seed() -> None:
    def order(seed: int) -> list[str]:
        made = runner({"a@n1": 1.06}, noise=Noise(spread=0.06))
        decided(made, "a", seed=seed)
        return [key for _, key in made.windows][::2]

    assert set(order(1)) == {"a@n1", "defaults"}
    assert order(1) == order(1)
    assert order(1) != order(2)


def test_windows_of_a_round_that_the_time_cut_short_do_not_count() -> None:
    made, taken = runner({"a@n1": 1.3}), 0

    def take(arm: Arm) -> Window:
        nonlocal taken
        taken += 1
        if taken > 5:
            raise OutOfBudget
        return made.input_window(arm.plan, seconds=0.5, warmup_seconds=0.1)

    arm, base = Arm(plan("a"), "input"), Arm(BASE, "input")
    assert race([arm], base, take=take, draw=random.Random(0), rounds=8)
    assert len(arm.taken) + len(base.taken) == 5
    assert len(arm.windows) == len(base.windows) == len(arm.ratios(base)) == 2
