"""The race of plans against one base: rounds of windows, planned looks, Holm, futility, and never in between.

In a round every arm is measured once, in an order drawn from a kept seed. Several plans tried against one base share
its window in a round. Under a random order, slow changes of the machine's speed fall on either side alike, and a ratio
of two equal plans is above one as often as below.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan
from pipetune.core.results import Interval, Outcome, OutOfBudget, RunFailed, Trial, Window
from pipetune.core.time_plan import Part
from pipetune.search.meter import Meter, Refused, rate_of
from pipetune.search.neighbours import undisturbed, usable_cores
from pipetune.search.statistics import (
    ACCEPT_ABOVE,
    FEWEST_PAIRS,
    LOOKS,
    TOTAL_ERROR,
    holm,
    p_value,
    ratio_interval,
)


@dataclass
class Arm:
    """One plan in rounds of windows: its window in every round so far, and why it left, if it did."""

    plan: Plan
    unit: str  # of its windows: "input" or "training"
    windows: list[Window] = field(default_factory=list)
    failure: str = ""
    refused: bool = False
    seconds: float = 0.0

    @property
    def running(self) -> bool:
        return not self.failure

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return len(self.windows)


def ratios(arm: Arm, base: Arm) -> tuple[float, ...]:
    """The rate of `arm` over that of `base`, round by round, for as long as both ran, as if nobody else had run."""
    both = zip(*undisturbed(arm.windows, base.windows), strict=False)
    return tuple(rate_of(one, arm.unit) / rate_of(other, arm.unit) for one, other in both)


def measure_round(arms: Sequence[Arm], meter: Meter, draw: random.Random, *, part: Part) -> None:
    """One window of every running arm, in random order. The first arm is the base: its failure is
    everybody's.

    A failing arm leaves (`failure` says why); the rest of the round goes on.

    Raises:
        RunFailed: the base failed.
        OutOfBudget: the part is over; the windows of the unfinished round are dropped.
    """
    order = [arm for arm in arms if arm.running]
    complete = arms[0].rounds
    draw.shuffle(order)
    try:
        for arm in order:
            before = meter.clock.now()
            try:
                arm.windows.append(meter.window(arm.plan, arm.unit, part=part))
            except (RunFailed, Refused) as problem:
                if arm is arms[0]:
                    raise RunFailed(f"{arm.plan.name}: {problem}") from problem
                arm.failure = str(problem) or type(problem).__name__
                arm.refused = isinstance(problem, Refused)
            finally:
                arm.seconds += meter.clock.now() - before
    except BaseException:
        for arm in arms:
            del arm.windows[complete:]
        raise


FUTILE = 0.1
"""A plan is given up where less than this is left for a gain that counts (one-sided): the limit below which a session
says that there is nothing to gain."""


@dataclass(frozen=True)
class Decision:
    """What became of each plan, in the order given; `accepted` are those proven faster than the base."""

    trials: tuple[Trial, ...]

    @property
    def accepted(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.outcome is Outcome.ACCEPTED)


@dataclass
class _Candidate:
    """An arm and what is known of it."""

    arm: Arm
    outcome: Outcome | None = None
    why: str = ""
    gain: Interval | None = None
    earlier: tuple[float, ...] = ()

    def ratios(self, base: Arm) -> tuple[float, ...]:
        """Of all pairs, those of an earlier race first."""
        return (*self.earlier, *ratios(self.arm, base))


def decide(
    plans: Sequence[Plan],
    base: Plan,
    meter: Meter,
    *,
    draw: random.Random,
    unit: str,
    part: Part,
    error: float = TOTAL_ERROR,
    kind: str = "search",
    earlier: Sequence[float] = (),
) -> Decision:
    """Measure `plans` against `base` until a look proves one faster or gives all up, or the time of `part` is up.

    At a look (after `LOOKS` pairs) a plan is accepted when the low end of its interval is above `ACCEPT_ABOVE`, the
    error being as much of `error` as pairs were added since the last look, divided over all plans of the race by Holm.
    Where the time is up a last look spends what is left: when that is, the ratios do not say. A plan is given up where
    a gain that counts is out of sight (`FUTILE`), which can only lower the error. The first acceptance ends the race:
    plans measured beside it and not proven by then are undecided.

    Args:
        part: the part of the budget whose end ends the race.
        error: chance that any of these plans is accepted wrongly.
        earlier: ratios of a race that this one goes on with, of one plan; looks are taken after as many new pairs.

    Raises:
        RunFailed: the base cannot be measured.
    """
    candidates = [_Candidate(Arm(plan, unit), earlier=tuple(earlier)) for plan in plans]
    base_arm, spent = Arm(base, unit), 0.0
    while base_arm.rounds < LOOKS[-1]:
        running = [candidate for candidate in candidates if candidate.outcome is None]
        if not running or any(candidate.outcome is Outcome.ACCEPTED for candidate in candidates):
            break
        try:
            measure_round([base_arm, *(one.arm for one in running)], meter, draw, part=part)
        except OutOfBudget:
            if base_arm.rounds >= FEWEST_PAIRS:
                _look(candidates, base_arm, error=error - spent)
            break
        for candidate in running:
            _note_failure(candidate)
        if base_arm.rounds in LOOKS:
            share = error * base_arm.rounds / LOOKS[-1] - spent
            spent += share
            _look(candidates, base_arm, error=share)
    proven = any(candidate.outcome is Outcome.ACCEPTED for candidate in candidates)
    return Decision(tuple(_trial(one, base_arm, unit, kind, proven=proven) for one in candidates))


def _note_failure(candidate: _Candidate) -> None:
    if candidate.arm.failure:
        candidate.outcome = Outcome.REFUSED if candidate.arm.refused else Outcome.FAILED
        candidate.why = candidate.arm.failure


def _look(candidates: Sequence[_Candidate], base: Arm, *, error: float) -> None:
    """Accept and give up; plans that left before count as never to be accepted."""
    judged = [candidate.outcome is None for candidate in candidates]
    measured = [candidate.ratios(base) for candidate in candidates]
    values = [p_value(sample) if open_ else 1.0 for sample, open_ in zip(measured, judged, strict=True)]
    for candidate, sample, open_, passed in zip(candidates, measured, judged, holm(values, error=error), strict=True):
        if not open_:
            continue
        if passed is not None:
            candidate.outcome = Outcome.ACCEPTED
            candidate.gain = ratio_interval(sample, error=2 * passed)
            candidate.why = f"proven faster after {len(sample)} pairs"
            continue
        interval = ratio_interval(sample)
        if ratio_interval(sample, error=2 * FUTILE).high < ACCEPT_ABOVE:
            candidate.outcome = Outcome.REJECTED
            candidate.gain = interval
            candidate.why = f"no gain of {ACCEPT_ABOVE - 1:.0%} to be had, after {len(sample)} pairs"
        elif len(sample) >= LOOKS[-1]:
            candidate.outcome = Outcome.UNDECIDED
            candidate.gain = interval
            candidate.why = f"not proven {ACCEPT_ABOVE - 1:.0%} faster after {len(sample)} pairs"


def _trial(candidate: _Candidate, base: Arm, unit: str, kind: str, *, proven: bool) -> Trial:
    sample = candidate.ratios(base)
    outcome, why, gain = candidate.outcome, candidate.why, candidate.gain
    if outcome is None:
        outcome = Outcome.UNDECIDED
        gain = ratio_interval(sample) if len(sample) >= FEWEST_PAIRS else None
        pairs = f"{len(sample)} pairs" if len(sample) != 1 else "1 pair"
        why = "another plan was proven first" if proven else f"the time was up after {pairs}"
    return Trial(
        plan=candidate.arm.plan,
        outcome=outcome,
        why=why,
        gain=gain,
        kind=kind,
        unit=unit,
        ratios=sample,
        seconds=candidate.arm.seconds,
        usable_cores=(usable_cores(candidate.arm.windows), usable_cores(base.windows)),
    )
