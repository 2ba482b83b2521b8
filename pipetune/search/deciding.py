"""The decision on a few plans against one base: planned looks, Holm, futility, and never in between."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, Outcome, OutOfBudget, Trial
from pipetune.search.budget import GRACE, Part
from pipetune.search.meter import Meter
from pipetune.search.pairs import Arm, measure_round, ratios
from pipetune.search.statistics import ACCEPT_ABOVE, LOOKS, TOTAL_ERROR, holm, p_value, ratio_interval


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


def rounds_seconds(arms: int, meter: Meter, unit: str, *, rounds: int = LOOKS[0]) -> float:
    """Seconds that `rounds` rounds of `arms` windows (the base counted) are expected to take."""
    return arms * rounds * meter.cost(unit)


def decide(
    plans: Sequence[Plan],
    base: Plan,
    meter: Meter,
    *,
    draw: random.Random,
    unit: str,
    part: Part,
    last: Part | None = None,
    kind: str = "search",
) -> Decision:
    """Measure `plans` against `base` until the first look at which one is proven faster, or the time is up.

    At look k of 8, 16, 32 rounds a plan is accepted when the low end of its interval is above `ACCEPT_ABOVE`,
    the error being `TOTAL_ERROR` / 3 (its share of the looks) divided over all plans of this decision by
    Holm. A plan whose 95 % interval ends below `ACCEPT_ABOVE` is given up early, which can only lower the
    error. The first acceptance ends the decision: plans measured beside it and not proven by then are
    undecided.

    Args:
        part: whose time the first look may use.
        last: whose time the later looks may use, where that is more: what a look leaves undecided would leave the
            later parts nothing to do.

    Raises:
        RunFailed: the base cannot be measured.
    """
    candidates = [_Candidate(Arm(plan)) for plan in plans]
    base_arm = Arm(base)
    for look in LOOKS:
        running = [candidate for candidate in candidates if candidate.outcome is None]
        if not running or any(candidate.outcome is Outcome.ACCEPTED for candidate in candidates):
            break
        if look != LOOKS[0]:
            part = last or part
        missing = look - len(base_arm.rates)
        seconds = rounds_seconds(len(running) + 1, meter, unit, rounds=missing)
        if look == LOOKS[0]:
            seconds -= 0.8 * GRACE * meter.budget.seconds  # without a first look all before was for nothing
        if not meter.budget.affords(part, seconds):
            break
        try:
            for _ in range(missing):
                arms = [base_arm, *(candidate.arm for candidate in running)]
                measure_round(arms, meter, draw, unit=unit, part=part)
                for candidate in running:
                    _note_failure(candidate)
                running = [candidate for candidate in running if candidate.outcome is None]
                if not running:
                    break
        except OutOfBudget:
            break
        _look(candidates, base_arm)
    proven = any(candidate.outcome is Outcome.ACCEPTED for candidate in candidates)
    return Decision(tuple(_trial(one, base_arm, unit, kind, proven=proven) for one in candidates))


def _note_failure(candidate: _Candidate) -> None:
    if candidate.arm.failure:
        candidate.outcome = Outcome.REFUSED if candidate.arm.refused else Outcome.FAILED
        candidate.why = candidate.arm.failure


def _look(candidates: Sequence[_Candidate], base: Arm) -> None:
    """Accept and give up; plans that left before count as never to be accepted."""
    error = TOTAL_ERROR / len(LOOKS)
    judged = [candidate.outcome is None for candidate in candidates]
    measured = [ratios(candidate.arm, base) for candidate in candidates]
    values = [p_value(sample) if open_ else 1.0 for sample, open_ in zip(measured, judged, strict=True)]
    for candidate, sample, open_, passed in zip(
        candidates, measured, judged, holm(values, error=error), strict=True
    ):
        if not open_:
            continue
        if passed is not None:
            candidate.outcome = Outcome.ACCEPTED
            candidate.gain = ratio_interval(sample, error=2 * passed)
            candidate.why = f"proven faster after {len(sample)} pairs"
            continue
        interval = ratio_interval(sample)
        if interval.high < ACCEPT_ABOVE:
            candidate.outcome = Outcome.REJECTED
            candidate.gain = interval
            candidate.why = f"no gain of {ACCEPT_ABOVE - 1:.0%} to be had, after {len(sample)} pairs"
        elif len(sample) >= LOOKS[-1]:
            candidate.outcome = Outcome.REJECTED
            candidate.gain = interval
            candidate.why = f"not proven {ACCEPT_ABOVE - 1:.0%} faster after {len(sample)} pairs"


def _trial(candidate: _Candidate, base: Arm, unit: str, kind: str, *, proven: bool) -> Trial:
    sample = ratios(candidate.arm, base)
    outcome, why, gain = candidate.outcome, candidate.why, candidate.gain
    if outcome is None:
        outcome = Outcome.UNDECIDED
        gain = ratio_interval(sample) if len(sample) >= LOOKS[0] else None
        why = "another plan was proven first" if proven else f"not decided after {len(sample)} pairs: the time was over"
    return Trial(
        plan=candidate.arm.plan,
        outcome=outcome,
        why=why,
        gain=gain,
        kind=kind,
        unit=unit,
        ratios=sample,
        seconds=candidate.arm.seconds,
    )
