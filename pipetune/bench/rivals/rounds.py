"""Rounds of windows: every contender once, in an order drawn anew, one after the other in one process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from pipetune.bench import Say
from pipetune.bench.rivals.contenders import Contenders
from pipetune.core.benchmarks import EXPERT
from pipetune.core.results import RunFailed, Window
from pipetune.core.time_plan import Clock, Part, TimePlan
from pipetune.search.meter import Meter
from pipetune.search.race import Arm, race, with_meter
from pipetune.search.runner import DEFAULTS, Runner

_ENDLESS_SECONDS = 1e6  # the rounds end the measuring, never a budget


@dataclass(frozen=True)
class Length:
    """How much is measured."""

    rounds: int
    window_seconds: float


WHOLE = Length(rounds=10, window_seconds=0.8)
QUICK = Length(rounds=4, window_seconds=0.3)


def take_windows(
    found: Contenders,
    runner: Runner,
    clock: Clock,
    *,
    length: Length,
    seed: int,
    say: Say,
    expert: Runner | None = None,
) -> tuple[dict[str, list[Window]], dict[str, str]]:
    """Windows by contender, one of each round; who fails leaves, with the reason.

    A plan that changes nothing is the pipeline as written, and has its windows: noise must not look like a gain. The
    plans of the expert are measured by the runner `expert`.

    Raises:
        RunFailed: the pipeline as written failed.
    """

    def taking(measuring: Runner) -> Callable[[Arm], Window]:
        budget = TimePlan(_ENDLESS_SECONDS, clock)
        return with_meter(Meter(measuring, clock, budget=budget, window_seconds=length.window_seconds), Part.SEARCH)

    ours, experts = taking(runner), taking(expert or runner)
    arms = {name: Arm(plan, "input") for name, plan in found.plans.items() if plan.edits or name in (DEFAULTS, EXPERT)}

    def take(arm: Arm) -> Window:
        return experts(arm) if arm.plan.name == EXPERT else ours(arm)

    def next_round(rounds: int) -> bool:
        if rounds < length.rounds:
            say(f"round {rounds + 1} of {length.rounds}, {sum(arm.running for arm in arms.values())} pipelines in turn")
        return bool(arms[DEFAULTS].failure)

    next_round(0)
    race(list(arms.values()), None, next_round, take=take, draw=random.Random(seed), rounds=length.rounds)
    failed = {name: arm.failure for name, arm in arms.items() if arm.failure}
    if DEFAULTS in failed:
        raise RunFailed(f"The current pipeline could not be measured: {failed[DEFAULTS]}")
    return {name: arms.get(name, arms[DEFAULTS]).windows for name in found.plans if name not in failed}, failed
