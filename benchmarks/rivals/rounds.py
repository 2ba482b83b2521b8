"""Rounds of windows in one process: each round has a window of every contender, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import ProgressCallback
from benchmarks.rivals.contenders import UNCACHED, Contenders
from benchmarks.rivals.results import EXPERT, PIPETUNE, WorkloadResult
from pipetune.core.measurement import Interval, RunFailed, Window
from pipetune.core.time_plan import Clock, Part, TimePlan
from pipetune.search.meter import Meter, rate_from
from pipetune.search.race import Arm, race, with_meter
from pipetune.search.runner import DEFAULTS, Runner
from pipetune.search.statistics import ratio_interval

_UNLIMITED_SECONDS = 1e6  # the number of rounds ends the measurement, not a budget


@dataclass(frozen=True)
class Length:
    """How much is measured."""

    rounds: int
    window_seconds: float


WHOLE = Length(rounds=10, window_seconds=0.8)
QUICK = Length(rounds=4, window_seconds=0.3)


def measure_windows(
    contenders: Contenders,
    runner: Runner,
    clock: Clock,
    *,
    length: Length,
    seed: int,
    progress: ProgressCallback,
    expert: Runner | None = None,
) -> tuple[dict[str, list[Window]], dict[str, str]]:
    """Measures windows of all contenders in rounds.

    A plan that changes nothing is not measured: it gets the windows of the original pipeline, so that noise cannot look
    like a gain.

    Args:
        contenders: the plans.
        runner: measures them.
        clock: the time.
        length: number of rounds, and length of a window.
        seed: seed of the order in each round.
        progress: called before each round.
        expert: measures the plans of the expert.

    Returns:
        The windows by contender, one for each round; and for each contender that failed, the reason. It has no windows.

    Raises:
        RunFailed: the original pipeline failed.
    """

    def meter(arm_runner: Runner) -> Callable[[Arm], Window]:
        budget = TimePlan(_UNLIMITED_SECONDS, clock)
        return with_meter(Meter(arm_runner, clock, budget=budget, window_seconds=length.window_seconds), Part.SEARCH)

    measure, measure_expert = meter(runner), meter(expert or runner)
    arms = {
        name: Arm(plan, "input") for name, plan in contenders.plans.items() if plan.edits or name in (DEFAULTS, EXPERT)
    }

    def measure_arm(arm: Arm) -> Window:
        return measure_expert(arm) if arm.plan.name == EXPERT else measure(arm)

    def after_round(rounds: int) -> bool:
        if rounds < length.rounds:
            running = sum(arm.running for arm in arms.values())
            progress(f"round {rounds + 1} of {length.rounds}, {running} pipelines in turn")
        return bool(arms[DEFAULTS].failure)

    after_round(0)
    race(list(arms.values()), None, after_round, take=measure_arm, draw=random.Random(seed), rounds=length.rounds)
    failed = {name: arm.failure for name, arm in arms.items() if arm.failure}
    if DEFAULTS in failed:
        raise RunFailed(f"The current pipeline could not be measured: {failed[DEFAULTS]}")
    return {name: arms.get(name, arms[DEFAULTS]).windows for name in contenders.plans if name not in failed}, failed


Windows = Mapping[str, Sequence[Window]]
"""The windows of a contender, one for each round; contenders that failed are absent."""


def compare_rates(name: str, windows: Windows, contenders: Contenders) -> WorkloadResult:
    """Returns the rates and ratios of a workload; intervals are t intervals of the logarithms of each round's ratio."""
    rivals = [name for name in contenders.plans if not name.endswith(UNCACHED)]
    others = [name for name in rivals if name != PIPETUNE]
    return WorkloadResult(
        name,
        rivals={name: rate_from(windows[name]) for name in rivals if windows.get(name)},
        ratio_over=_ratios(windows, {name: (PIPETUNE, name) for name in others}),
        without_cache=_ratios(
            windows,
            {name: (contenders.without_cache(PIPETUNE), contenders.without_cache(name)) for name in others},
        ),
        over_defaults=_ratios(windows, {name: (name, DEFAULTS) for name in rivals if name != DEFAULTS}),
    )


def _ratios(windows: Windows, pairs: Mapping[str, tuple[str, str]]) -> dict[str, Interval]:
    """Returns by name the rate of the first contender over that of the second, unless they share less than 2 rounds."""
    intervals = {}
    for name, (first, second) in pairs.items():
        rounds = zip(windows.get(first, ()), windows.get(second, ()), strict=False)
        ratios = [above.examples_per_second / below.examples_per_second for above, below in rounds]
        if len(ratios) >= 2:
            intervals[name] = ratio_interval(ratios)
    return intervals
