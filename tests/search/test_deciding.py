"""Decisions happen at 8, 16 and 32 rounds, and nowhere else."""

from __future__ import annotations

import random
from collections import Counter

from pipetune.core.edits import Plan
from pipetune.core.measurement import Outcome
from pipetune.search.budget import Budget, Part
from pipetune.search.deciding import Decision, decide
from pipetune.search.meter import Meter
from pipetune.search.pairs import pair
from pipetune.testing.runner import FakeRunner, Noise, rewrite
from tests.search.scenes import runner

BASE = Plan("defaults")


def plan(name: str) -> Plan:
    return Plan("tuned", (rewrite(name),))


def decided(made: FakeRunner, *names: str, seconds: float = 10_000, seed: int = 0) -> Decision:
    meter = Meter(made, made.clock, budget=Budget(seconds, made.clock))
    plans = [plan(name) for name in names]
    return decide(plans, BASE, meter, draw=random.Random(seed), unit="input", part=Part.SEARCH)


def test_a_large_gain_is_accepted_at_the_first_look() -> None:
    (trial,) = decided(runner({"a@n1": 1.3}), "a").trials
    assert trial.outcome is Outcome.ACCEPTED
    assert len(trial.ratios) == 8
    assert trial.gain is not None and trial.gain.low > 1.03


def test_nothing_to_gain_is_given_up_at_the_first_look() -> None:
    (trial,) = decided(runner(), "a").trials
    assert trial.outcome is Outcome.REJECTED
    assert len(trial.ratios) == 8


def test_looks_are_at_8_16_and_32_pairs_only() -> None:
    lengths: Counter[int] = Counter()
    for seed in range(40):
        made = runner({"a@n1": 1.06}, noise=Noise(spread=0.06, seed=seed))
        (trial,) = decided(made, "a", seed=seed).trials
        lengths[len(trial.ratios)] += 1
    assert set(lengths) == {8, 16, 32}


def test_a_look_that_does_not_fit_is_not_begun() -> None:
    made = runner({"a@n1": 1.06}, noise=Noise(spread=0.08, seed=3))
    (trial,) = decided(made, "a", seconds=45).trials
    assert trial.outcome is Outcome.UNDECIDED
    assert trial.why == "not decided after 0 pairs: the time was over"
    assert len(trial.ratios) in (0, 8)


def test_plans_of_one_decision_share_the_base() -> None:
    made = runner({"a@n1": 1.3})
    decision = decided(made, "a", "b", "c")
    counts = Counter(key for _, key in made.windows)
    assert counts["defaults"] == counts["a@n1"] == counts["b@n1"] == 8
    assert [trial.plan.key for trial in decision.accepted] == ["a@n1"]


def test_a_gain_below_the_rule_is_not_accepted_however_sure() -> None:
    (trial,) = decided(runner({"a@n1": 1.02}, noise=Noise(spread=0.001)), "a").trials
    assert trial.outcome is Outcome.REJECTED


def test_a_failing_plan_leaves_and_the_others_go_on() -> None:
    decision = decided(runner({"b@n1": 1.3}, fails={"a@n1": "raised"}), "a", "b")
    assert [trial.outcome for trial in decision.trials] == [Outcome.FAILED, Outcome.ACCEPTED]


def test_pairs_come_in_both_orders_from_a_kept_seed() -> None:
    def order(seed: int) -> list[str]:
        made = runner()
        meter = Meter(made, made.clock, budget=Budget(10_000, made.clock))
        pair(plan("a"), BASE, meter, count=20, seed=seed)
        return [key for _, key in made.windows][::2]

    assert set(order(1)) == {"a@n1", "defaults"}
    assert order(1) == order(1)
    assert order(1) != order(2)
