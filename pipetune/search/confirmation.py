"""The last measurement of a plan: fresh windows of it beside the script as it is, the only numbers a user sees.

None of them took part in choosing the plan. Where the plan is a patch, each window is taken in a process of its own
script, patched or as it is (`supervisor.verification`); where no such process can be had, in the one that searched.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pipetune.core.edits import Plan
from pipetune.core.results import Comparison, Interval, Outcome, Rate, RunFailed, Trial, Window, WindowPair
from pipetune.core.session import NOTHING_BELOW, Candidate, TrainingResult
from pipetune.core.settings import Settings
from pipetune.core.time_plan import Clock, SystemClock
from pipetune.search.baselines import DEFAULTS, MOST_STEPS, rate_from
from pipetune.search.evidence import evidence_of_pairs
from pipetune.search.meter import FEWEST_STEPS, LONGEST_EPOCHS, rate_of
from pipetune.search.neighbours import undisturbed
from pipetune.search.runner import Notify, silent
from pipetune.search.statistics import ACCEPT_ABOVE, ratio_interval

AUTOTUNE = "autotune"
TUNED = "tuned"

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
"""Of an epoch: what its first element takes (a shuffle buffer is filled) counts from here on.

Windows are then whole epochs, or where these are too long, the first element of each window counts once an epoch."""

_NOTABLE = 1.03  # by what factor other processes change the ratio where that is said; by judgement

_PROBE_STEPS = 10
_WORDS = {DEFAULTS: "the script as it is", AUTOTUNE: "AUTOTUNE everywhere"}
_BESIDE_ROUNDS = 3
_FEWEST_BESIDE = 3  # pairs: the interval of two spans a factor of 100 as a rule
_BLOCK = LOOKS[0]  # pairs of one sequence ABBA


class Windows(Protocol):
    """Takes windows, each on a fresh iterator; whatever one changes is put back."""

    @property
    def trains(self) -> bool:
        """Whether training windows are possible."""
        ...

    @property
    def epoch_steps(self) -> int | None:
        """Elements per epoch, a training step each; None where nobody knows."""
        ...

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        """Consume the input alone; may raise `RunFailed`."""
        ...

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        """Take training steps; may raise `RunFailed`."""
        ...


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
        return Trial(
            plan,
            Outcome.ACCEPTED if self.confirmed else Outcome.REJECTED if self.gain else Outcome.FAILED,
            self.why,
            gain=self.gain,
            kind=kind,
            unit=self.unit,
            ratios=self.ratios,
            windows=self.pairs,
        )


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
        plan: what is measured.
        runner: takes the windows.
        baselines: "defaults", the script as it is; "autotune", measured beside them where there is time.
        settings: seed and steps of a window.
        seconds: for the pairs, and what is measured beside them; those of the first look are taken in any case.
        claimed: the trial that the search has accepted this plan by, over the script as it is or what the plan was
            before; what it says in another unit does not count.
        step_seconds: of a training step as it is, where it is known.
        bound_step_seconds: of a step on one repeated batch; shown beside the others.
        clock: what the time is measured by.
        notify: hears "trying" before each window, "pair" behind each pair, and "proven" before what only informs.
        visit: where only one of both can be there at a time, called before the windows of one begin; they are then
            taken in the order ABBA.
        beside_seconds: what may be measured beside the pairs of a confirmed plan, as far as `seconds` are left for it.
    """
    race = _Race(plan, runner, baselines, settings, seconds, claimed, clock or SystemClock(), notify, visit)
    try:
        race.begin(step_seconds)
        before = race.claimed_gain
        gain = race.decide(before)
    except RunFailed as problem:
        return Confirmation(False, f"It was not measured: {str(problem).rstrip('.')}.", race.unit)
    spoken = f"{gain.median:.2f} times as fast ({gain.low:.2f} to {gain.high:.2f}, {gain.pairs} pairs)"
    beside, alone = race.measured_ratio(), statistics.median(race.ratios())
    if max(beside, alone) > _NOTABLE * min(beside, alone):
        spoken += f", without the other processes of this machine; beside them {beside:.2f}"
    confirmed = gain.low > race.least
    if confirmed:
        notify("proven", median=gain.median)
        race.look_beside(beside_seconds)
        why = f"Measured anew: {spoken}."
        if before is not None and gain.high < before.low:
            why += f" The search had measured {before.low:.2f} to {before.high:.2f}."
    else:
        less = "slower" if gain.high < 1 else "not faster" if gain.high < ACCEPT_ABOVE else "not proven faster"
        why = f"It is {less}: {spoken}."
    inputs = {name: taken for name in race.contenders if (taken := race.taken[name, "input"])}
    return Confirmation(
        confirmed=confirmed,
        why=why,
        unit=race.unit,
        gain=gain,
        pairs=tuple(race.pairs),
        ratios=tuple(race.ratios()),
        input_speedup=gain if race.unit == "input" else race.speedup(DEFAULTS, "input"),
        input_speedup_over_autotune=race.speedup(AUTOTUNE, "input"),
        training=race.training(gain, bound_step_seconds) if race.unit == "training" else None,
        rates={name: rate_from(taken) for name, taken in inputs.items()},
    )


class _Race:
    """Windows of the contenders, and what they show."""

    def __init__(
        self,
        plan: Plan,
        runner: Windows,
        baselines: Mapping[str, Plan],
        settings: Settings,
        limit_seconds: float,
        claimed: Trial | None,
        clock: Clock,
        notify: Notify,
        visit: Callable[[Plan], None] | None,
    ) -> None:
        self.contenders = {TUNED: plan, DEFAULTS: baselines[DEFAULTS]}
        if AUTOTUNE in baselines and visit is None:
            self.contenders[AUTOTUNE] = baselines[AUTOTUNE]
        self.unit = "training" if runner.trains else "input"
        self.pairs: list[WindowPair] = []
        self.taken: dict[tuple[str, str], list[Window]] = defaultdict(list)  # by contender and unit
        self._beside: dict[str, list[float]] = defaultdict(list)  # ratios over "autotune", by unit
        self._runner, self._settings, self._visit, self._claimed = runner, settings, visit, claimed
        self._clock, self._notify = clock, notify
        self._draw = random.Random(settings.seed + 1)
        self._started, self._limit_seconds = clock.now(), limit_seconds
        self._seconds_of_pairs = 0.0
        self._steps = settings.steps or _PROBE_STEPS
        self._seconds = _LEAST_SECONDS
        self._epoch_steps: int | None = None  # set where the first element of a window counts once an epoch

    @property
    def least(self) -> float:
        """What the low end of the interval has to lie above."""
        return 1.0 if self.unit == "training" else ACCEPT_ABOVE

    @property
    def claimed_gain(self) -> Interval | None:
        """What the search has measured in the unit that decides."""
        return self._claimed.gain if self._claimed is not None and self._claimed.unit == self.unit else None

    # -- how long windows are

    def begin(self, step_seconds: float | None) -> None:
        """One window of both that does not count: it traces, compiles, fills the page cache, and shows what one takes.

        Where the script's own training steps cannot be timed after all, the input alone is measured.
        """
        seen = [step_seconds] if step_seconds else []
        longest = math.inf
        if self._visit is None:
            longest = 0.0
            for name in (DEFAULTS, TUNED):
                try:
                    window = self._window(name, self.unit)
                except RunFailed:
                    if name == TUNED or self.unit == "input":
                        raise
                    self.unit = "input"
                    return self.begin(None)
                longest = max(longest, window.first_seconds)
                seen.append(window.step_seconds)
            most = min(_MOST_SECONDS, _WINDOWS_SHARE * self._limit_seconds / (2 * LOOKS[0]))
            clear = self.claimed_gain is not None and self.claimed_gain.median > CLEAR
            self._seconds = _LEAST_SECONDS if clear else max(_LEAST_SECONDS, min(longest, most))
        if self.unit == "training" and seen and not self._settings.steps:
            # As long for the slower of both; the faster is to be seen for a while, too.
            wanted = max(self._seconds / max(seen), self._seconds / 4 / min(seen))
            self._steps = min(max(math.ceil(wanted), FEWEST_STEPS), MOST_STEPS)
            epoch = self._runner.epoch_steps
            if epoch and longest > _START * epoch * max(seen):
                whole = epoch * -(-self._steps // epoch)
                seconds = 2 * LOOKS[0] * whole * max(seen)
                if whole <= min(LONGEST_EPOCHS * self._steps, MOST_STEPS) and seconds <= self._limit_seconds:
                    self._steps = whole
                else:
                    self._epoch_steps = epoch

    # -- windows

    def _window(self, name: str, unit: str) -> Window:
        plan = self.contenders[name]
        self._notify("trying", plan=plan)
        try:
            if unit == "training":
                return self._runner.training_window(plan, steps=self._steps)
            return self._runner.input_window(plan, seconds=self._seconds, warmup_seconds=self._seconds / 2)
        except RunFailed as problem:
            raise RunFailed(f"{_WORDS.get(name, plan.name)}: {problem}") from problem

    def _keep(self, name: str, unit: str) -> Window:
        window = self._window(name, unit)
        self.taken[name, unit].append(window)
        return window

    def _side_by_side(self) -> None:
        order = self._draw.sample((TUNED, DEFAULTS), 2)
        windows = {name: self._keep(name, self.unit) for name in order}
        self._pair(windows[TUNED], windows[DEFAULTS], tuned_first=order[0] == TUNED)

    def _in_turn(self) -> None:
        """ABBA, each in a fresh process; a window of each that does not count comes first."""
        first, second = self._draw.sample((TUNED, DEFAULTS), 2)
        windows: dict[str, list[Window]] = {TUNED: [], DEFAULTS: []}
        assert self._visit is not None
        for name in (first, second, second, first):
            self._visit(self.contenders[name])
            self._window(name, self.unit)
            windows[name] += [self._keep(name, self.unit) for _ in range(_BLOCK // 2)]
            if self.unit == "training":
                self._keep(name, "input")
        for number, (tuned, original) in enumerate(zip(windows[TUNED], windows[DEFAULTS], strict=True)):
            self._pair(tuned, original, tuned_first=(first == TUNED) == (number < _BLOCK // 2))

    def _pair(self, tuned: Window, original: Window, *, tuned_first: bool) -> None:
        tuned, original = replace(tuned, intervals=()), replace(original, intervals=())
        self.pairs.append(WindowPair(tuned, original, tuned_first))
        self._notify("pair", pairs=len(self.pairs), ratio=statistics.median(self.ratios()))

    # -- decisions

    def decide(self, claimed: Interval | None) -> Interval:
        """Takes pairs until a look decides, or the next would take more than there is time for."""
        begun = self._clock.now()
        found: Interval | None = None
        for look, error in zip(LOOKS, ERRORS, strict=True):
            each = (self._clock.now() - begun) / max(1, len(self.pairs))
            if found is not None and self._spent() + each * (look - len(self.pairs)) > self._limit_seconds:
                break
            while len(self.pairs) < look:
                self._side_by_side() if self._visit is None else self._in_turn()
            found = ratio_interval(self.ratios(), error=error)
            as_claimed = claimed is None or found.high >= claimed.low
            if found.high < ACCEPT_ABOVE or (found.low > self.least and _good(found) and as_claimed):
                break
        assert found is not None
        self._seconds_of_pairs = self._clock.now() - begun
        return replace(found, method="t on log ratios, 95 %")  # or more: what the looks may err by is together 5 %

    def _spent(self) -> float:
        return self._clock.now() - self._started

    def look_beside(self, most_seconds: float) -> None:
        """What is told and decides nothing: the input alone, AUTOTUNE everywhere.

        What would not fit is not begun. What is begun may end a round late: a first window builds its pipeline, and may
        fill a cache.
        """
        if self._visit is not None:
            return
        ends = self._spent() + min(most_seconds, self._limit_seconds - self._spent())
        each = self._seconds_of_pairs / (2 * len(self.pairs))
        begun: list[tuple[str, set[str]]] = []
        for unit, names in self._besides():
            told = any(unit == before and set(names) <= had for before, had in begun)
            if told or self._spent() + _BESIDE_ROUNDS * len(names) * each > ends:
                continue
            begun.append((unit, set(names)))
            for _ in range(_BESIDE_ROUNDS):
                if self._spent() > ends:
                    return
                try:
                    windows = {name: self._keep(name, unit) for name in self._draw.sample(names, len(names))}
                except RunFailed:
                    return  # it decides nothing
                if AUTOTUNE in windows:
                    self._beside[unit].append(self._rate(windows[TUNED], unit) / self._rate(windows[AUTOTUNE], unit))

    def _besides(self) -> list[tuple[str, tuple[str, ...]]]:
        """Units and contenders of the rounds that inform, the most wanted first."""
        known = AUTOTUNE in self.contenders
        training = self.unit == "training"
        found: list[tuple[str, tuple[str, ...]]] = [("input", tuple(self.contenders)), ("input", (TUNED, DEFAULTS))]
        return [*(found if training else ()), *([(self.unit, (TUNED, AUTOTUNE))] if known else ())]

    # -- results

    def ratios(self) -> list[float]:
        """Of the pairs, in the unit that decides, as if no other process had used the cores."""
        return self._ratios(
            *self._undisturbed([pair.tuned for pair in self.pairs], [pair.original for pair in self.pairs], self.unit)
        )

    def _undisturbed(self, tuned: Sequence[Window], original: Sequence[Window], unit: str) -> list[list[Window]]:
        """The windows as if nobody else had run; what both can use the windows of the search may have shown."""
        usable = self._claimed.usable_cores if self._claimed is not None and self._claimed.unit == unit else ()
        return undisturbed(tuned, original, usable=usable)

    def measured_ratio(self) -> float:
        """The median ratio of the pairs as they were measured, whatever other processes used."""
        return statistics.median(
            self._ratios([pair.tuned for pair in self.pairs], [pair.original for pair in self.pairs])
        )

    def _ratios(self, tuned: Sequence[Window], original: Sequence[Window]) -> list[float]:
        return [
            self._rate(one, self.unit) / self._rate(other, self.unit)
            for one, other in zip(tuned, original, strict=True)
        ]

    def _rate(self, window: Window, unit: str) -> float:
        """Steps or examples per second; of training steps over an epoch, where its start counts."""
        return rate_of(window, unit) if unit == "input" else 1 / self._step_seconds(window)

    def _step_seconds(self, window: Window) -> float:
        if self._epoch_steps is None:
            return window.step_seconds
        return (window.first_seconds + (self._epoch_steps - 1) * window.step_seconds) / self._epoch_steps

    def speedup(self, over: str, unit: str) -> Interval | None:
        """Of the plan; None where there are too few pairs to say anything."""
        if over == AUTOTUNE:
            sample = self._beside[unit]
        else:
            both = zip(*self._undisturbed(self.taken[TUNED, unit], self.taken[over, unit], unit), strict=False)
            sample = [self._rate(tuned, unit) / self._rate(other, unit) for tuned, other in both]
        return ratio_interval(sample) if len(sample) >= _FEWEST_BESIDE else None

    def training(self, gain: Interval, bound_step_seconds: float | None) -> TrainingResult:
        """The step times, and their ratios."""
        tuned, original = self._undisturbed(self.taken[TUNED, "training"], self.taken[DEFAULTS, "training"], "training")
        (autotune,) = undisturbed(self.taken[AUTOTUNE, "training"])
        return TrainingResult(
            defaults_step_ms=self._step_ms(original),
            tuned_step_ms=self._step_ms(tuned),
            bound_step_ms=None if bound_step_seconds is None else 1000 * bound_step_seconds,
            autotune_step_ms=self._step_ms(autotune),
            speedup=gain,
            speedup_over_autotune=self.speedup(AUTOTUNE, "training"),
        )

    def _step_ms(self, taken: Sequence[Window]) -> float | None:
        """The geometric mean: the interval of the speedup holds the ratio of two of them, of two medians it may not."""
        return 1000 * statistics.geometric_mean(map(self._step_seconds, taken)) if taken else None


def _good(found: Interval) -> bool:
    return found.low > CLEAR or found.high / found.low < NARROW
