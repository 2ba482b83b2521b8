"""Takes windows: what may not run is refused, what does not count is repeated, what it costs is
remembered.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.results import RunFailed, Window
from pipetune.core.time_plan import Clock, Part, TimePlan
from pipetune.search.runner import Notify, Runner, silent

FEWEST_STEPS = 5  # of a training window

LONGEST_EPOCHS = 3
"""A training window may have this many times as many steps, so that it covers whole epochs."""

LONGEST_WARM_UP = 2
"""A window counts when AUTOTUNE's numbers stood still. One that does not is repeated, its warm-up doubled, up
to this many times the first. Where they still move they never stand still (on a busy machine they go back and
forth between two values), and that is how the plan runs: its windows count, and the result says so.
"""


class Refused(Exception):
    """A plan that must not run; the message is the reason."""


@dataclass(frozen=True)
class Taken:
    """A window that was taken: of which plan, when it was there (seconds of the budget), and its rate."""

    plan: str  # key
    unit: str  # "input" or "training"; short input windows among the first
    seconds: float
    rate: float
    step_seconds: float  # of an element, or of a training step


class Meter:
    """Windows of plans, in seconds of `clock`.

    Args:
        memory_limit_bytes: plans predicted above it raise `Refused` before they run.
        conflict: why the rewrites of a plan must not stand together; empty if they may.
        failed: keys of plans that broke a worker before this one, with the reason; they fail without being
            run.
    """

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        *,
        budget: TimePlan,
        memory_limit_bytes: float | None = None,
        window_seconds: float = 1.0,
        warmup_seconds: float = 0.5,
        steps: int = 10,
        failed: Mapping[str, str] | None = None,
        conflict: Callable[[Plan], str] = lambda plan: "",
        notify: Notify = silent,
    ) -> None:
        self.runner = runner
        self.clock = clock
        self.budget = budget
        self.memory_limit_bytes = memory_limit_bytes
        self.window_seconds = window_seconds
        self.warmup_seconds = warmup_seconds
        self.steps = steps
        self.conflict = conflict
        self.notify = notify
        self._failed = dict(failed or {})
        self.restless: list[str] = []  # keys of plans whose AUTOTUNE numbers never stood still
        self._as_written_restless = False
        self._warm_up: dict[str, float] = {}
        self._costs: dict[str, list[float]] = defaultdict(list)
        self.taken: list[Taken] = []

    def cost(self, unit: str) -> float:
        """Seconds one window is expected to take, first element and warm-up included.

        The mean of the last few: a round of windows costs their sum. One that took far longer than usual (a
        cache was filled before it) is left out.
        """
        costs = self._costs[unit][-12:]
        if costs:
            usual = 3 * statistics.median(costs)
            return statistics.fmean(cost for cost in costs if cost <= usual)
        return 2 * (self.window_seconds + self.warmup_seconds)

    def knows(self, unit: str) -> bool:
        """Whether a window of this unit was ever taken, so that `cost` is more than a guess."""
        return bool(self._costs[unit])

    def expect(self, unit: str, seconds: float) -> None:
        """Forget what windows of this unit cost before: from now on about `seconds`."""
        self._costs[unit] = [seconds]

    def whole_epochs(self, steps: int, *, most: int) -> int:
        """`steps`, or as many as make whole epochs where that is at most `LONGEST_EPOCHS` times as many, and `most`.

        A shuffle buffer is emptied at the end of an epoch and filled at the start of the next: a window inside an
        epoch never sees what that costs.
        """
        epoch = self.runner.epoch_steps
        if epoch is None:
            return steps
        whole = epoch * -(-steps // epoch)
        return whole if whole <= min(LONGEST_EPOCHS * steps, most) else steps

    def shorten(self, unit: str, *, seconds: float) -> None:
        """Shorten windows of this unit, down to half, where one costs more than `seconds`."""
        cost = self.cost(unit)
        if not self.knows(unit) or cost <= seconds:
            return
        if unit == "input":
            shorter = max(self.window_seconds / 2, self.window_seconds - (cost - seconds))
            self.expect(unit, cost - (self.window_seconds - shorter))
            self.window_seconds = shorter
        else:
            steps = max(FEWEST_STEPS, self.steps // 2, round(self.steps * seconds / cost))
            epoch = self.runner.epoch_steps
            if epoch is not None and self.steps % epoch == 0:
                steps = min(self.steps, epoch * -(-steps // epoch))
            self.expect(unit, cost * steps / self.steps)
            self.steps = steps

    def check(self, plan: Plan) -> None:
        """Let a plan run, or not.

        Raises:
            Refused: predicted above the memory limit, or its rewrites must not stand together.
            RunFailed: it broke a worker before.
        """
        if plan.key in self._failed:
            raise RunFailed(self._failed[plan.key])
        conflict = self.conflict(plan)
        if conflict:
            raise Refused(f"not legal together: {conflict}")
        if self.memory_limit_bytes is None:
            return
        predicted = self.runner.predicted_bytes(plan)
        if predicted > self.memory_limit_bytes:
            need, limit = predicted / 2**20, self.memory_limit_bytes / 2**20
            raise Refused(f"would need {need:,.0f} MiB, the limit is {limit:,.0f} MiB")

    def window(self, plan: Plan, unit: str, *, part: Part, short: bool = False) -> Window:
        """One window of `plan`; `unit` is "input" or "training", `short` halves it for screening.

        Raises:
            OutOfBudget: no time left in `part`.
            Refused, RunFailed: as `check`; and the window failed or delivered nothing.
        """
        self.check(plan)
        if unit == "training":
            return self._timed(plan, unit, part, partial(self.runner.training_window, plan, steps=self.steps))
        seconds = self.window_seconds / 2 if short else self.window_seconds
        warm_up = self._warm_up.get(plan.key, self.warmup_seconds)
        while True:
            window = self._timed(
                plan,
                "screening" if short else unit,
                part,
                partial(self.runner.input_window, plan, seconds=seconds, warmup_seconds=warm_up),
            )
            if short or window.converged or window.exhausted or self._restless(plan):
                return window  # a short one screens only, and never becomes a result
            if warm_up >= LONGEST_WARM_UP * self.warmup_seconds:
                self.restless.append(plan.key)
                self._as_written_restless |= not plan.edits
                self._warm_up.pop(plan.key, None)  # the longer one bought nothing
                return window
            warm_up = max(2 * warm_up, 0.1)
            self._warm_up[plan.key] = warm_up

    def _restless(self, plan: Plan) -> bool:
        """Whether this plan, or the pipeline as written, was seen never to converge."""
        return plan.key in self.restless or self._as_written_restless

    def _timed(self, plan: Plan, unit: str, part: Part, measure: Callable[[], Window]) -> Window:
        self.budget.require(part, self.cost(unit))
        self.notify("trying", plan=plan, part=part)  # if the process dies now, it was this plan
        before = self.clock.now()
        try:
            window = measure()
        except PipetuneError as problem:  # edits that cannot be applied together, a step that cannot be replayed
            raise RunFailed(problem.message) from problem
        finally:
            self._costs[unit].append(self.clock.now() - before)
        if window.steps <= 0 or window.examples <= 0 or window.wall_seconds <= 0:
            raise RunFailed("the window delivered no element")
        kind = "training" if unit == "training" else "input"
        self.taken.append(Taken(plan.key, kind, self.budget.spent(), rate_of(window, kind), window.step_seconds))
        return window

    def median_rate(self, plan: Plan, unit: str) -> float | None:
        """The median over all its windows of this unit, short ones among them; None where there was none."""
        rates = [one.rate for one in self.taken if one.plan == plan.key and one.unit == unit]
        return statistics.median(rates) if rates else None

    def median_step(self, plan: Plan, unit: str) -> float | None:
        """The median seconds of an element, or of a training step; None where there was no window."""
        steps = [one.step_seconds for one in self.taken if one.plan == plan.key and one.unit == unit]
        return statistics.median(steps) if steps else None

    def first_reached(self, plan: Plan, unit: str, *, share: float) -> float | None:
        """Seconds until a plan was first measured whose median rate is `share` of this one's, or more."""
        target = self.median_rate(plan, unit)
        if target is None:
            return None
        rates: dict[str, list[float]] = defaultdict(list)
        first: dict[str, float] = {}
        for one in self.taken:
            if one.unit == unit:
                rates[one.plan].append(one.rate)
                first.setdefault(one.plan, one.seconds)
        return min(first[key] for key, found in rates.items() if statistics.median(found) >= share * target)


def rate_of(window: Window, unit: str) -> float:
    """Examples per second (input) or steps per second (training)."""
    return 1 / window.step_seconds if unit == "training" else window.examples_per_second
