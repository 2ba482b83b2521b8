"""Takes windows: what may not run is refused, what does not count is repeated, what it costs is remembered."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Rate, RunFailed, Window
from pipetune.core.results import Outcome
from pipetune.core.time_plan import Clock, Part, TimePlan
from pipetune.search.runner import Notify, Runner, silent
from pipetune.search.statistics import FEWEST_PAIRS, USUAL_PAIRS, rate_of

FEWEST_STEPS, MOST_STEPS = 5, 200  # of a training window
FEWEST_SLOW_STEPS = 2
LONG_ENOUGH_SECONDS = 1.25
"""Of a training window: where steps are so slow that fewer than `FEWEST_STEPS` take as long, fewer are measured, but
`FEWEST_SLOW_STEPS` at least. By judgement: the fewest of a quarter of a second each."""

LONGEST_PERIODS = 3
"""A training window may have this many times as many steps, so that it covers whole periods of the input."""

LONGEST_WARM_UP = 2
"""A window counts when AUTOTUNE's numbers stood still. One that does not is repeated, its warm-up doubled, up
to this many times the first. Where they still move they never stand still (on a busy machine they go back and
forth between two values), and that is how the plan runs: its windows count, and the result says so.
"""


def fewest_steps(step_seconds: float, *, usual: int = FEWEST_STEPS) -> int:
    """Returns the `usual` steps of a short training window, or fewer where a step takes so long."""
    return max(FEWEST_SLOW_STEPS, min(usual, math.ceil(LONG_ENOUGH_SECONDS / step_seconds)))


class Refused(RunFailed):
    """A plan must not run; the message is the reason."""


def outcome_of(problem: RunFailed) -> Outcome:
    """Returns what a plan that was not measured is called."""
    return Outcome.REFUSED if isinstance(problem, Refused) else Outcome.FAILED


@dataclass(frozen=True)
class EarlierWindows:
    """What windows of the pipeline as written took before the search, in seconds."""

    step: float  # of a training step
    around_steps: float  # of a training window, beside its steps
    around_input: float  # of a window of the input alone, beside the time it measures


@dataclass(eq=False)
class Meter:
    """Windows of plans, in seconds of `clock`."""

    runner: Runner  # takes the windows
    clock: Clock
    _: KW_ONLY
    budget: TimePlan  # of the whole analysis
    window_seconds: float = 1.0  # of an input window; the warm-up takes half as long
    memory_limit_bytes: float | None = None  # plans predicted above it are refused; None for no limit
    failed: Mapping[str, str] = field(default_factory=dict)
    """By keys of plans that broke a worker before this one, the reason; they fail without being run."""
    conflict: Callable[[Plan], str] = lambda plan: ""  # why the rewrites of a plan must not stand together
    notify: Notify = silent  # hears of each window before it begins

    def __post_init__(self) -> None:
        self._warmup_seconds = self.window_seconds / 2
        self.steps = 2 * FEWEST_STEPS  # of a training window
        self._fewest_steps = FEWEST_STEPS
        self.misses_pauses = False  # training windows are too short to see the pauses of the input
        self.not_converged: list[str] = []  # keys of plans whose AUTOTUNE numbers never stood still
        self._original_not_converged = False
        self._warm_up: dict[str, float] = {}  # seconds, by key of plans that need a longer one
        self._costs: dict[str, list[float]] = defaultdict(list)
        self._windows: dict[tuple[str, str], list[Window]] = defaultdict(list)  # by key of the plan, and unit

    # -- what windows cost, and how long they are

    def cost(self, unit: str) -> float:
        """Seconds one window is expected to take, first element and warm-up included.

        The mean of the last few: a round costs their sum. One that took far longer (it filled a cache) is left out.
        """
        costs = self._costs[unit][-12:]
        if costs:
            usual = 3 * statistics.median(costs)
            return statistics.fmean(cost for cost in costs if cost <= usual)
        return 2 * (self.window_seconds + self._warmup_seconds)

    def fill_seconds(self, plan: Plan, *, base: Plan) -> float:
        """Seconds that filling a plan's caches may take before its first window: an epoch of `base`; 0 if unknown."""
        if self._windows[plan.key, "input"] or self._windows[plan.key, "training"]:
            return 0.0
        steps, step = self.runner.epoch_steps, self.median_step(base, "input")
        epoch = steps * step if steps and step is not None else None
        return self.runner.seconds_to_fill(plan, epoch) or 0.0

    def knows(self, unit: str) -> bool:
        """Whether a window of this unit was ever taken, so that `cost` is more than a guess."""
        return bool(self._costs[unit])

    def expect(self, unit: str, seconds: float) -> None:
        """Forget what windows of this unit cost before: from now on about `seconds`."""
        self._costs[unit] = [seconds]

    def choose_steps(
        self, base: Plan, *, steps: int | None, earlier: EarlierWindows | None = None, part: Part = Part.SEARCH
    ) -> None:
        """Set how many steps a training window has.

        Args:
            base: the pipeline as written.
            steps: what the user asked for; None for about as long as two input windows, fewer where a usual
                race (8 pairs) would not fit into what is left for the search, and whole periods of the input where
                they are short enough (`whole_periods`).
            earlier: how long steps take; None: a window is taken for that, and thrown away.
            part: whose time the windows will use.

        Raises:
            RunFailed: the consumer cannot be switched.
            OutOfBudget: no time for a training window.
        """
        self.steps = steps or 2 * FEWEST_STEPS
        if earlier is None:
            before = self.clock.now()
            window = self.window(base, "training", part=part)
            step, overhead = window.step_seconds, max(0.0, self.clock.now() - before - window.wall_seconds)
        else:
            step, overhead = earlier.step, earlier.around_steps
        if not steps:
            room = 0.7 * self.budget.left(part) / (2 * USUAL_PAIRS) - overhead
            self._fewest_steps = fewest_steps(step)
            fitting = min(max(math.ceil(min(2 * self.window_seconds, room) / step), self._fewest_steps), MOST_STEPS)
            most = max(fitting, math.ceil(room / step))
            self.steps = whole_periods(fitting, self._period, most=most) or fitting
            self._reach_pauses(step, overhead, part)
        self.expect("training", overhead + self.steps * step)

    @property
    def _period(self) -> int | None:
        """Elements after which the input begins again with what it does: to the next pause, or of an epoch."""
        return self.runner.pause.elements if self.runner.pause is not None else self.runner.epoch_steps

    def _reach_pauses(self, step: float, overhead: float, part: Part) -> None:
        """Makes training windows as long as from one pause of the input to the next, if a few pairs of them fit."""
        pause = self.runner.pause
        if pause is None or not pause.missed_by(self.steps, step):
            return
        whole = overhead + pause.elements * step + pause.seconds
        if 2 * FEWEST_PAIRS * whole <= self.budget.left(part):
            self.steps = pause.elements
        else:
            self.misses_pauses = True

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
            steps = max(self._fewest_steps, self.steps // 2, round(self.steps * seconds / cost))
            period = self._period
            if period is not None and self.steps % period == 0:
                steps = min(self.steps, period * -(-steps // period))
            self.expect(unit, cost * steps / self.steps)
            self.steps = steps

    # -- windows

    def check(self, plan: Plan) -> None:
        """Let a plan run, or not.

        Raises:
            Refused: predicted above the memory limit, or its rewrites must not stand together.
            RunFailed: it broke a worker before.
        """
        if plan.key in self.failed:
            raise RunFailed(self.failed[plan.key])
        if conflict := self.conflict(plan):
            raise Refused(f"not legal together: {conflict}")
        limit = self.memory_limit_bytes
        if limit is not None and (predicted := self.runner.predicted_bytes(plan)) > limit:
            raise Refused(f"would need {predicted / 2**20:,.0f} MiB, the limit is {limit / 2**20:,.0f} MiB")

    def window(self, plan: Plan, unit: str, *, part: Part, short: bool = False) -> Window:
        """One window of `plan`; `unit` is "input" or "training", `short` halves it for screening.

        Raises:
            OutOfBudget: no time left in `part`.
            RunFailed: as `check`; or the window failed or delivered nothing.
        """
        self.check(plan)
        if unit == "training":
            return self._timed(plan, unit, part, partial(self.runner.training_window, plan, steps=self.steps))
        seconds = self.window_seconds / 2 if short else self.window_seconds
        warm_up = self._warm_up.get(plan.key, self._warmup_seconds)
        while True:
            measure = partial(self.runner.input_window, plan, seconds=seconds, warmup_seconds=warm_up)
            window = self._timed(plan, "screening" if short else unit, part, measure)
            not_converged = plan.key in self.not_converged or self._original_not_converged
            if short or window.converged or not_converged:
                return window  # a short one screens only, and never becomes a result
            if warm_up >= LONGEST_WARM_UP * self._warmup_seconds:
                self.not_converged.append(plan.key)
                self._original_not_converged |= not plan.edits
                self._warm_up.pop(plan.key, None)  # the longer one bought nothing
                return window
            warm_up = max(2 * warm_up, 0.1)
            self._warm_up[plan.key] = warm_up

    def _timed(self, plan: Plan, unit: str, part: Part, measure: Callable[[], Window]) -> Window:
        self.budget.require(part, self.cost(unit))
        self.notify("trying", plan=plan)  # if the process dies now, it was this plan
        before = self.clock.now()
        try:
            window = measure()
        except PipetuneError as problem:  # edits that cannot be applied together, a step that cannot be replayed
            raise RunFailed(problem.message) from problem
        finally:
            self._costs[unit].append(self.clock.now() - before)
        if window.steps <= 0 or window.examples <= 0 or window.wall_seconds <= 0:
            raise RunFailed("the window delivered no element")
        if unit == "training":
            window = window.counting_start(self.runner.epoch_steps)
        kind = "training" if unit == "training" else "input"
        self._windows[plan.key, kind].append(window)
        return window

    # -- what windows of a plan have shown, short ones among them

    def rates(self, plan: Plan, unit: str) -> list[float]:
        """Returns the rate in each of its windows of this unit."""
        return [rate_of(window, unit) for window in self._windows[plan.key, unit]]

    def median_rate(self, plan: Plan, unit: str) -> float | None:
        """Returns the median rate; None where there was no window."""
        rates = self.rates(plan, unit)
        return statistics.median(rates) if rates else None

    def median_step(self, plan: Plan, unit: str) -> float | None:
        """Returns the median seconds of an element, or of a training step; None where there was no window."""
        steps = [window.step_seconds for window in self._windows[plan.key, unit]]
        return statistics.median(steps) if steps else None


def whole_periods(steps: int, period: int | None, *, most: int) -> int | None:
    """Returns `steps` rounded up to whole periods.

    Rounded down, if that is more than `most`, or more than `LONGEST_PERIODS` times as many. None if no period fits.

    A shuffle buffer is emptied at the end of an epoch and filled at the start of the next, and an input that loads a
    file at a time pauses between two: a window inside of a period never sees what that costs, and one of a period and a
    half sees it once.
    """
    if not period:
        return None
    whole = period * -(-steps // period)
    return whole if whole <= min(LONGEST_PERIODS * steps, most) else period * (steps // period) or None


def rate_from(windows: Sequence[Window]) -> Rate:
    """The medians over windows of one plan, input alone."""
    return Rate(
        examples_per_second=statistics.median(window.examples_per_second for window in windows),
        batches_per_second=statistics.median(window.steps / window.wall_seconds for window in windows),
        cpu_us_per_example=1e6 * statistics.median(window.cpu_seconds_per_example for window in windows),
        first_batch_seconds=statistics.median(window.first_seconds for window in windows),
    )
