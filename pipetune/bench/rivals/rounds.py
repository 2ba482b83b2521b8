"""Rounds of windows: every contender once, in an order drawn anew, one after the other in one process."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from pipetune.bench import Say
from pipetune.bench.rivals.contenders import Contenders
from pipetune.core.benchmarks import EXPERT
from pipetune.core.results import RunFailed, Window
from pipetune.core.time_plan import Clock, Part, TimePlan
from pipetune.search.baselines import DEFAULTS
from pipetune.search.meter import Meter, Refused
from pipetune.search.runner import Runner

_ENDLESS_SECONDS = 1e6  # the rounds end the measuring, never a budget


@dataclass(frozen=True)
class Length:
    """How much is measured."""

    rounds: int
    window_seconds: float
    warmup_seconds: float


WHOLE = Length(rounds=10, window_seconds=0.8, warmup_seconds=0.4)
QUICK = Length(rounds=4, window_seconds=0.3, warmup_seconds=0.15)


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

    def meter_of(measuring: Runner) -> Meter:
        return Meter(
            measuring,
            clock,
            budget=TimePlan(_ENDLESS_SECONDS, clock),
            window_seconds=length.window_seconds,
            warmup_seconds=length.warmup_seconds,
        )

    ours, experts = meter_of(runner), meter_of(expert or runner)
    draw = random.Random(seed)
    windows: dict[str, list[Window]] = defaultdict(list)
    failed: dict[str, str] = {}
    same = [name for name, plan in found.plans.items() if not plan.edits and name not in (DEFAULTS, EXPERT)]
    for number in range(length.rounds):
        running = [name for name in found.plans if name not in failed and name not in same]
        say(f"round {number + 1} of {length.rounds}, {len(running)} pipelines in turn")
        for name in draw.sample(running, len(running)):
            try:
                meter = experts if name.startswith(EXPERT) else ours
                windows[name].append(meter.window(found.plans[name], "input", part=Part.SEARCH))
            except (RunFailed, Refused) as problem:
                if name == DEFAULTS:
                    raise RunFailed(f"The pipeline as written could not be measured: {problem}") from problem
                failed[name] = str(problem)
                windows.pop(name, None)
    return {**windows, **{name: windows[DEFAULTS] for name in same}}, failed
