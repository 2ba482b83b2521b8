"""Screening: a first look at candidates by short windows and CPU seconds per element. Never a result."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Outcome, OutOfBudget, RunFailed, Trial, Window
from pipetune.core.time_plan import Part
from pipetune.search.composing import Composer
from pipetune.search.meter import Meter, Refused
from pipetune.search.runner import Notify
from pipetune.search.statistics import ACCEPT_ABOVE

PROMISE = ACCEPT_ABOVE
"""A number is tried in pairs when a window shows this much."""

BASE_EVERY = 4
"""Candidates between two windows of the base: the machine's speed drifts."""


@dataclass(frozen=True)
class Screened:
    """A candidate alone, over the base: 1.2 is 20 % better, of the rate and of the CPU seconds per example."""

    rewrite: Rewrite
    rate: float
    cpu: float


def _over(rewrite: Rewrite, window: Window, base: Sequence[Window]) -> Screened:
    rate = window.examples_per_second / statistics.fmean(one.examples_per_second for one in base)
    cpu_of_base = statistics.fmean(one.cpu_seconds_per_example for one in base)
    cpu = max(cpu_of_base, 1e-12) / max(window.cpu_seconds_per_example, 1e-12)
    return Screened(rewrite, rate, cpu)


class Screener:
    """Screens candidates one by one.

    Args:
        enough: says, before each window, whether there is time for it beside what must be kept.
    """

    def __init__(self, base: Plan, meter: Meter, *, notify: Notify, enough: Callable[[], bool]) -> None:
        self._base = base
        self._meter = meter
        self._notify = notify
        self._enough = enough
        self.trials: list[Trial] = []

    def alone(self, candidates: Sequence[Rewrite], composer: Composer) -> list[Screened]:
        """Each candidate alone, for as long as there is time; failed and refused ones are in `trials` only."""
        found: list[Screened] = []
        base: list[Window] = []
        for position, rewrite in enumerate(candidates):
            if not self._enough():
                break
            plan = composer.plan([rewrite])
            try:
                if position % BASE_EVERY == 0:
                    base = [*base[-1:], self._meter.window(self._base, "input", part=Part.SEARCH, short=True)]
                window = self.try_window(plan, "input", short=True)
            except OutOfBudget:
                break
            if window is None:
                continue
            found.append(_over(rewrite, window, base))
            self._note(plan, found[-1])
        return found

    def _note(self, plan: Plan, one: Screened) -> None:
        rate, cpu = one.rate - 1, 1 / one.cpu - 1
        why = f"short windows: {rate:+.0%} examples per second, {cpu:+.0%} CPU seconds per example"
        trial = Trial(plan, Outcome.SCREENED, why, kind="screening", ratios=(one.rate,))
        self.trials.append(trial)
        self._notify("trial", trial=trial)

    def try_window(self, plan: Plan, unit: str, *, short: bool) -> Window | None:
        """One window; None where the plan failed or was refused, which is then a trial."""
        before = self._meter.clock.now()
        try:
            return self._meter.window(plan, unit, part=Part.SEARCH, short=short)
        except (RunFailed, Refused) as problem:
            outcome = Outcome.REFUSED if isinstance(problem, Refused) else Outcome.FAILED
            trial = Trial(
                plan,
                outcome,
                str(problem),
                kind="screening",
                unit=unit,
                seconds=self._meter.clock.now() - before,
            )
            self.trials.append(trial)
            self._notify("trial", trial=trial)
            return None
