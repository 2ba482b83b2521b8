"""Rounds of windows, every contender once in an order drawn anew, in one process; and what the windows say."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipetune.bench import Say
from pipetune.bench.rivals.contenders import UNCACHED, Contenders
from pipetune.core.benchmarks import EXPERT, PIPETUNE
from pipetune.core.results import Interval, Rate, RunFailed, Window
from pipetune.core.time_plan import Clock, Part, TimePlan
from pipetune.search.meter import Meter, rate_from
from pipetune.search.race import Arm, race, with_meter
from pipetune.search.runner import DEFAULTS, Runner
from pipetune.search.statistics import ratio_interval

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


Windows = Mapping[str, Sequence[Window]]
"""By contender the window of each round; a contender that failed is absent."""


@dataclass(frozen=True)
class Judged:
    """What the windows of one workload say; ratios of rates, window by window of a round."""

    rates: Mapping[str, Rate]  # by rival
    ratio_over: Mapping[str, Interval]  # pipetune over each other
    without_cache: Mapping[str, Interval]
    over_defaults: Mapping[str, Interval]  # each over `defaults`


def judge(windows: Windows, contenders: Contenders) -> Judged:
    """Rates, and ratios with their intervals: t on the logarithms of the ratios of each round."""
    rivals = [name for name in contenders.plans if not name.endswith(UNCACHED)]
    bare = {name: contenders.without_cache(name) for name in rivals}
    return Judged(
        rates={name: rate_from(windows[name]) for name in rivals if windows.get(name)},
        ratio_over=_ratios(windows, PIPETUNE, {name: name for name in rivals if name != PIPETUNE}),
        without_cache=_ratios(
            windows, contenders.without_cache(PIPETUNE), {name: bare[name] for name in rivals if name != PIPETUNE}
        ),
        over_defaults={
            name: ratio
            for name in rivals
            if name != DEFAULTS and (ratio := _ratio(windows, name, DEFAULTS)) is not None
        },
    )


def _ratios(windows: Windows, ours: str, others: Mapping[str, str]) -> dict[str, Interval]:
    found = {name: _ratio(windows, ours, other) for name, other in others.items()}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _ratio(windows: Windows, one: str, other: str) -> Interval | None:
    """The rate of one contender over that of another, round by round; None with fewer than two rounds of both."""
    pairs = zip(windows.get(one, ()), windows.get(other, ()), strict=False)
    ratios = [above.examples_per_second / below.examples_per_second for above, below in pairs]
    return ratio_interval(ratios) if len(ratios) >= 2 else None
