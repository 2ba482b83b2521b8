"""The last measurement of a plan: fresh windows of it beside the script as it is, the only numbers a user sees.

None of them took part in choosing the plan. Where the plan is a patch, each window is taken in a process of its own
script, patched or as it is (`supervisor.verification`); where no such process can be had, in the one that searched.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, OutOfBudget, Rate, RunFailed, Window, WindowPair
from pipetune.core.results import Comparison, Outcome, Trial
from pipetune.core.session import NOTHING_BELOW, Candidate, TrainingResult
from pipetune.core.settings import Settings
from pipetune.core.time_plan import Clock, SystemClock
from pipetune.search.composing import TUNED
from pipetune.search.evidence import evidence_of_pairs
from pipetune.search.meter import MOST_STEPS, fewest_steps, rate_from, whole_periods
from pipetune.search.race import Arm, race
from pipetune.search.runner import DEFAULTS, Notify, Windows, silent
from pipetune.search.statistics import ACCEPT_ABOVE, rate_ratios, ratio_interval, undisturbed

AUTOTUNE = "autotune"

LOOKS = (6, 12, 18)
"""Pairs after which a decision is made: six at least, more of them where six leave it open."""

ERRORS = (0.025, 0.015, 0.010)
"""Of the interval of each look: together 5 %, so that 95 % hold whichever look is the last (the union bound)."""

NARROW, CLEAR = 1.25, 1.2
"""A proven interval is good enough where it is as narrow (high / low), or lies as far above 1."""

_LEAST_SECONDS, _MOST_SECONDS = 0.6, 2.0
"""Of a window: as long as its first element takes (a shuffle buffer is filled), within these and `_WINDOWS_SHARE`.

The least where the search has measured a clear gain: six short pairs prove it, and the patch is there sooner."""

_WINDOWS_SHARE = 0.5
"""Of the time: what the windows of the first look may take in all; beside each its first element takes time, too."""

_START = 0.05
"""Of an epoch: where its first element takes more (a shuffle buffer is filled), windows are whole epochs, if there is
time for these."""

_PATIENCE = 1.2  # times the seconds that there are, which windows with a pause may take: nothing shorter tells anything

_NOTABLE = 1.03  # by what factor other processes change the ratio where that is said; by judgement

_PROBE_STEPS = 10
_WORDS = {DEFAULTS: "the script as it is", AUTOTUNE: "AUTOTUNE everywhere"}
_BESIDE_ROUNDS = 3  # the interval of two pairs spans a factor of 100 as a rule
_BLOCK = LOOKS[0]  # pairs of one sequence ABBA


@dataclass(frozen=True)
class Confirmation:
    """What the fresh numbers say. Not confirmed means: nothing is recommended."""

    confirmed: bool
    why: str
    unit: str = "input"  # what decided: "input" or "training"
    gain: Interval | None = None  # of the plan over the script as it is, in that unit
    pairs: tuple[WindowPair, ...] = ()
    ratios: tuple[float, ...] = ()  # of the pairs
    input_speedup: Interval | None = None
    input_speedup_over_autotune: Interval | None = None
    training: TrainingResult | None = None
    rates: dict[str, Rate] = field(default_factory=dict)  # "defaults", "autotune", "tuned": the input alone

    def gains(self, plan: Plan, searched: Mapping[str, Interval]) -> dict[str, Interval]:
        """Returns what each rewrite of `plan` gains, by key: as searched, a single one as measured now."""
        if self.confirmed and self.gain is not None and len(plan.rewrites) == 1:
            return {plan.rewrites[0].key: self.gain}
        return dict(searched)

    def candidate(self, plan: Plan, comparison: Comparison | None) -> Candidate | None:
        """`plan`, not confirmed, as a candidate; None if these pairs leave no gain in sight."""
        if len(self.ratios) < 2:
            return None
        known = evidence_of_pairs(self.ratios)
        if known.probability < NOTHING_BELOW:
            return None
        return Candidate(plan, known.interval, known.probability, self.unit, self.why, comparison)

    def trial(self, plan: Plan, *, kind: str) -> Trial:
        """This as a trial of `plan`."""
        outcome = Outcome.ACCEPTED if self.confirmed else Outcome.REJECTED if self.gain else Outcome.FAILED
        return Trial(plan, outcome, self.why, self.gain, kind, self.unit, self.ratios, windows=self.pairs)


def confirm(
    plan: Plan,
    runner: Windows,
    *,
    baselines: Mapping[str, Plan],
    settings: Settings,
    seconds: float,
    claimed: Trial | None = None,
    step_seconds: float | None = None,
    bound_step_seconds: float | None = None,
    clock: Clock | None = None,
    notify: Notify = silent,
    visit: Callable[[Plan], None] | None = None,
    beside_seconds: float = math.inf,
) -> Confirmation:
    """Measure `plan` and the script as it is in pairs of windows, in an order drawn for each pair.

    In training steps where they can be timed, else the input alone. Confirmed: the low end of the interval lies above
    1 (the input alone: above `ACCEPT_ABOVE`). What lies wholly below what was `claimed` is measured for longer, and
    said, but is no reason to withhold it: what a change is worth depends on what runs beside it (the `csv` example on
    two shared cores, measured right each time: 7.4 to 10.9, an hour later 5.6 to 8.2, then 4.2 to 7.2), and the number
    that is shown is the one of this measurement.

    Args:
        baselines: "defaults", the script as it is; "autotune", measured beside them where there is time.
        settings: seed and steps of a window.
        seconds: for the pairs, and what is measured beside them; those of the first look are taken in any case.
        claimed: the trial that the search has accepted this plan by, over the script as it is or what the plan was
            before; what it says in another unit does not count.
        step_seconds: of a training step as it is, where it is known.
        bound_step_seconds: of a step on one repeated batch; shown beside the others.
        notify: hears "trying" before each window, "pair" behind each pair, and "proven" before what only informs.
        visit: called before the windows of one begin, where only one can be there at a time; the order is then ABBA.
        beside_seconds: what may be measured beside the pairs of a confirmed plan, as far as `seconds` are left for it.
    """
    pair = _Pair(plan, runner, baselines, settings, seconds, claimed, clock or SystemClock(), notify, visit)
    try:
        pair.begin(step_seconds)
        gain = pair.decide()
    except (RunFailed, _NotMeasured) as problem:
        return Confirmation(False, f"It was not measured: {str(problem).rstrip('.')}.", pair.unit)
    ratios = pair.ratios()
    spoken = f"{gain.median:.2f} times as fast ({gain.low:.2f} to {gain.high:.2f}, {gain.pairs} pairs)"
    beside, alone = statistics.median(pair.ratios(as_measured=True)), statistics.median(ratios)
    if max(beside, alone) > _NOTABLE * min(beside, alone):
        spoken += f", without the other processes of this machine; with them {beside:.2f}"
    confirmed = gain.low > pair.least
    if confirmed:
        notify("proven", median=gain.median)
        pair.measure_beside(beside_seconds)
        why = f"Measured again: {spoken}."
        if pair.claimed is not None and gain.high < pair.claimed.low:
            why += f" The search had measured {pair.claimed.low:.2f} to {pair.claimed.high:.2f}."
    else:
        less = "slower" if gain.high < 1 else "not faster" if gain.high < ACCEPT_ABOVE else "not proven faster"
        why = f"It is {less}: {spoken}."
    return Confirmation(
        confirmed=confirmed,
        why=why,
        unit=pair.unit,
        gain=gain,
        pairs=tuple(pair.pairs),
        ratios=tuple(ratios),
        input_speedup=gain if pair.unit == "input" else pair.input_speedup(),
        input_speedup_over_autotune=pair.speedup_over_autotune("input"),
        training=pair.training(gain, bound_step_seconds) if pair.unit == "training" else None,
        rates={name: rate_from(taken) for name in pair.contenders if (taken := pair.arm(name, "input").taken)},
    )


class _NotMeasured(Exception):
    """One of both could not be measured: the message says which, and why. No race goes on without it."""


@dataclass
class _Pair:
    """The plan and the script as it is, side by side, and what their windows show; arguments as of `confirm`."""

    plan: Plan
    runner: Windows
    baselines: Mapping[str, Plan]
    settings: Settings
    limit_seconds: float
    accepted: Trial | None
    clock: Clock
    notify: Notify
    visit: Callable[[Plan], None] | None

    def __post_init__(self) -> None:
        self.contenders = {TUNED: self.plan, DEFAULTS: self.baselines[DEFAULTS]}
        if AUTOTUNE in self.baselines and self.visit is None:
            self.contenders[AUTOTUNE] = self.baselines[AUTOTUNE]
        self.unit = "training" if self.runner.trains else "input"
        self.pairs: list[WindowPair] = []
        self._arms: dict[tuple[str, str], Arm] = {}  # by contender and unit
        self._order: list[str] = []  # names of the contenders whose windows were taken
        self._draw = random.Random(self.settings.seed + 1)
        self._started = self.clock.now()
        self._seconds_of_pairs = 0.0
        self._steps = self.settings.steps or _PROBE_STEPS
        self._seconds = _LEAST_SECONDS

    @property
    def least(self) -> float:
        """What the low end of the interval has to lie above."""
        return 1.0 if self.unit == "training" else ACCEPT_ABOVE

    @property
    def claimed(self) -> Interval | None:
        """What the search has measured in the unit that decides."""
        return self.accepted.gain if self.accepted is not None and self.accepted.unit == self.unit else None

    def arm(self, name: str, unit: str) -> Arm:
        """Returns the windows of a contender."""
        plan = self.contenders.get(name, Plan(name))
        return self._arms.setdefault((name, unit), Arm(plan, unit, _WORDS.get(name, plan.name)))

    # -- how long windows are

    def begin(self, step_seconds: float | None) -> None:
        """One window of both that does not count: it traces, compiles, fills the page cache, and shows what one takes.

        Where the script's own training steps cannot be timed after all, the input alone is measured.
        """
        seen = [step_seconds] if step_seconds else []
        if step_seconds and not self.settings.steps:
            self._steps = fewest_steps(step_seconds, usual=_PROBE_STEPS)
        longest = math.inf
        if self.visit is None:
            longest = 0.0
            for name in (DEFAULTS, TUNED):
                try:
                    window = self._window(self.arm(name, self.unit))
                except _NotMeasured:
                    if name == TUNED or self.unit == "input":
                        raise
                    self.unit = "input"
                    return self.begin(None)
                longest = max(longest, window.first_seconds)
                seen.append(window.wall_seconds / window.steps)
            most = min(_MOST_SECONDS, _WINDOWS_SHARE * self.limit_seconds / (2 * LOOKS[0]))
            clear = self.claimed is not None and self.claimed.median > CLEAR
            self._seconds = _LEAST_SECONDS if clear else max(_LEAST_SECONDS, min(longest, most))
        if self.unit == "training" and seen and not self.settings.steps:
            # As long for the slower of both; the faster is to be seen for a while, too.
            wanted = max(self._seconds / max(seen), self._seconds / 4 / min(seen))
            self._steps = min(max(math.ceil(wanted), fewest_steps(max(seen))), MOST_STEPS)
            epoch = self.runner.epoch_steps
            if epoch and longest > _START * epoch * max(seen):
                fitting = int(self.limit_seconds / (2 * LOOKS[0] * max(seen)))
                self._steps = whole_periods(self._steps, epoch, most=min(fitting, MOST_STEPS)) or self._steps
            self._reach_pauses(max(seen))

    def _reach_pauses(self, step_seconds: float) -> None:
        """Makes windows as long as from one pause of the input to the next: shorter ones see none."""
        pause = self.runner.pause
        if pause is None or not pause.missed_by(self._steps, step_seconds):
            return
        # Both begin with a pause, and the script as it is has another one.
        if LOOKS[0] * (2 * pause.elements * step_seconds + 3 * pause.seconds) > _PATIENCE * self.limit_seconds:
            raise _NotMeasured(
                f"windows as long as the {pause.elements:,} steps between two pauses of the input take too long"
            )
        self._steps = pause.elements

    # -- windows

    def _window(self, arm: Arm) -> Window:
        """A window of a contender; the first that fails ends the race."""
        self.notify("trying", plan=arm.plan)
        try:
            if arm.unit == "training":
                window = self.runner.training_window(arm.plan, steps=self._steps)
                return window.counting_start(self.runner.epoch_steps)
            return self.runner.input_window(arm.plan, seconds=self._seconds, warmup_seconds=self._seconds / 2)
        except RunFailed as problem:
            raise _NotMeasured(f"{arm.name}: {problem}") from problem

    def _take(self, arm: Arm) -> Window:
        self._order.append(arm.name)
        return self._window(arm)

    def _take_beside(self, arm: Arm) -> Window:
        """A window that decides nothing: where it fails there is no more to tell."""
        try:
            return self._window(arm)
        except _NotMeasured as problem:
            raise OutOfBudget(str(problem)) from problem

    def _visit_in_turn(self) -> None:
        """Windows in the order ABBA, each in a fresh process; a window of each that does not count comes first."""
        assert self.visit is not None
        order = self._draw.sample((TUNED, DEFAULTS), 2)
        windows: dict[str, list[Window]] = {TUNED: [], DEFAULTS: []}
        for name in (*order, *reversed(order)):
            arm = self.arm(name, self.unit)
            self.visit(arm.plan)
            self._window(arm)
            for _ in range(_BLOCK // 2):
                arm.taken.append(self._window(arm))
            windows[name] += arm.taken[-_BLOCK // 2 :]
            if self.unit == "training":
                alone = self.arm(name, "input")
                alone.taken.append(self._window(alone))
        for number, (tuned, original) in enumerate(zip(windows[TUNED], windows[DEFAULTS], strict=True)):
            self._pair(tuned, original, tuned_first=(order[0] == TUNED) == (number < _BLOCK // 2))

    def _pair(self, tuned: Window, original: Window, *, tuned_first: bool) -> None:
        tuned, original = replace(tuned, intervals=()), replace(original, intervals=())
        self.pairs.append(WindowPair(tuned, original, tuned_first))
        self.notify("pair", pairs=len(self.pairs), ratio=statistics.median(self.ratios()))

    # -- decisions

    def decide(self) -> Interval:
        """Takes pairs until a look decides, or those of the next would take more than there is time for.

        Raises:
            _NotMeasured: one of both failed.
        """
        begun = self.clock.now()
        gain: Interval | None = None

        def is_over(pairs: int) -> bool:
            nonlocal gain
            if pairs not in LOOKS:
                return False
            look = LOOKS.index(pairs)
            gain = ratio_interval(self.ratios(), error=ERRORS[look])
            good = gain.low > CLEAR or gain.high / gain.low < NARROW
            as_claimed = self.claimed is None or gain.high >= self.claimed.low
            if gain.high < ACCEPT_ABOVE or (gain.low > self.least and good and as_claimed) or pairs == LOOKS[-1]:
                return True
            each = (self.clock.now() - begun) / pairs
            return self._spent() + each * (LOOKS[look + 1] - pairs) > self.limit_seconds

        tuned, original = self.arm(TUNED, self.unit), self.arm(DEFAULTS, self.unit)

        def end_of_round(rounds: int) -> bool:
            self._pair(tuned.taken[-1], original.taken[-1], tuned_first=self._order[-2] == tuned.name)
            return is_over(rounds)

        if self.visit is None:
            race([tuned], original, end_of_round, take=self._take, draw=self._draw, rounds=LOOKS[-1])
        while self.visit is not None and not is_over(len(self.pairs)):
            self._visit_in_turn()
        assert gain is not None
        self._seconds_of_pairs = self.clock.now() - begun
        return replace(gain, method="t on log ratios, 95 %")  # or more: what the looks may err by is together 5 %

    def _spent(self) -> float:
        return self.clock.now() - self._started

    def measure_beside(self, most_seconds: float) -> None:
        """What is told and decides nothing: the input alone, AUTOTUNE everywhere; the most wanted first.

        What would not fit is not begun. What is begun may end a round late: a first window builds, and may fill caches.
        """
        if self.visit is not None:
            return
        ends = self._spent() + min(most_seconds, self.limit_seconds - self._spent())
        each = self._seconds_of_pairs / (2 * len(self.pairs))
        wanted: list[tuple[str, Sequence[str]]] = []
        if self.unit == "training":
            wanted += [("input", tuple(self.contenders)), ("input", (TUNED, DEFAULTS))]
        if AUTOTUNE in self.contenders:
            wanted.append((self.unit, (TUNED, AUTOTUNE)))

        def is_late(rounds: int) -> bool:
            return self._spent() > ends

        for unit, names in wanted:
            known = unit != self.unit and self.arm(TUNED, unit).taken
            if known or self._spent() + _BESIDE_ROUNDS * len(names) * each > ends:
                continue
            arms = [self.arm(name, unit) for name in names]
            if race(arms, None, is_late, take=self._take_beside, draw=self._draw, rounds=_BESIDE_ROUNDS):
                return

    # -- results

    def ratios(self, *, as_measured: bool = False) -> list[float]:
        """Of the pairs, as if no other process had used the cores, or as they were measured."""
        tuned, original = [pair.tuned for pair in self.pairs], [pair.original for pair in self.pairs]
        if not as_measured:
            tuned, original = self._undisturbed(tuned, original, self.unit)
        return rate_ratios(tuned, original, self.unit)

    def _undisturbed(self, tuned: Sequence[Window], original: Sequence[Window], unit: str) -> list[list[Window]]:
        """The windows as if nobody else had run; what both can use the windows of the search may have shown."""
        usable = self.accepted.usable_cores if self.accepted is not None and self.accepted.unit == unit else ()
        return undisturbed(tuned, original, usable=usable)

    def input_speedup(self) -> Interval | None:
        """Of the input alone; None where there are too few pairs to say anything."""
        taken = self.arm(TUNED, "input").taken, self.arm(DEFAULTS, "input").taken
        tuned, original = self._undisturbed(*taken, "input")
        sample = rate_ratios(tuned, original, "input")
        return ratio_interval(sample) if len(sample) >= _BESIDE_ROUNDS else None

    def speedup_over_autotune(self, unit: str) -> Interval | None:
        """Over AUTOTUNE everywhere, from the rounds that both were in; None where there are too few of them."""
        autotune = self.arm(AUTOTUNE, unit).windows
        sample = rate_ratios(self.arm(TUNED, unit).windows[-len(autotune) :], autotune, unit)
        return ratio_interval(sample) if len(sample) >= _BESIDE_ROUNDS else None

    def training(self, gain: Interval, bound_step_seconds: float | None) -> TrainingResult:
        """The step times, and their ratios."""
        taken = {name: self.arm(name, "training").taken for name in (TUNED, DEFAULTS, AUTOTUNE)}
        tuned, original = self._undisturbed(taken[TUNED], taken[DEFAULTS], "training")
        (autotune,) = undisturbed(taken[AUTOTUNE])
        return TrainingResult(
            defaults_step_ms=self._step_ms(original),
            tuned_step_ms=self._step_ms(tuned),
            bound_step_ms=None if bound_step_seconds is None else 1000 * bound_step_seconds,
            autotune_step_ms=self._step_ms(autotune),
            speedup=gain,
            speedup_over_autotune=self.speedup_over_autotune("training"),
        )

    def _step_ms(self, taken: Sequence[Window]) -> float | None:
        """The geometric mean: the interval of the speedup holds the ratio of two of them, of two medians it may not."""
        return 1000 * statistics.geometric_mean(one.step_seconds for one in taken) if taken else None
