"""Rewrites that are not in the plan and may be worth an offer: measured beside the plan, and never a way into it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Consent, Plan, Rewrite, Safety, SetArgument
from pipetune.core.results import Interval, Outcome, OutOfBudget, RunFailed, Trial
from pipetune.core.session import OptionalRewrite
from pipetune.core.settings import Settings
from pipetune.core.time_plan import COMPARISON, Part
from pipetune.search.expectation import Forecast
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Refused
from pipetune.search.race import Arm, ratios
from pipetune.search.statistics import ratio_interval


@dataclass(frozen=True)
class Added:
    """The plan with the rewrite, its rate over the plan's pair by pair, and what went wrong, if anything did."""

    plan: Plan
    ratios: tuple[float, ...]
    why: str  # it was not measured, or not often enough
    failure: str  # it failed while it was measured
    seconds: float


def affordable_pairs(kit: SearchContext, *, waiting: int, fewest: int, most: int) -> int:
    """Pairs for the next of `waiting` rewrites that share the time left; 0 for fewer than `fewest`."""
    share = kit.meter.budget.left(Part.INFORMATION) / waiting
    count = min(most, int(share / kit.seconds(2, rounds=1)))
    return count if count >= fewest else 0


def measure_added(rewrite: Rewrite, reference: Plan, kit: SearchContext, *, pairs: int, fewest: int) -> Added | None:
    """`reference` and `rewrite` over `reference`; None where that changes the data: the gate blames it.

    Args:
        fewest: pairs that are enough where the time ends before all are measured.
    """
    tried, budget = kit.composer.added(reference, rewrite), kit.meter.budget
    before = kit.meter.clock.now()
    arms, why = [Arm(reference), Arm(tried)], ""
    try:
        kit.meter.check(tried)
        usual = budget.usual_seconds(COMPARISON)
        longest = min(usual, _LONGER * kit.gate.cost(usual))
        if kit.gate.comparison(tried) is None and not budget.affords(Part.INFORMATION, longest):
            raise OutOfBudget("no time is left to compare it")
        if not kit.gate.equal(tried):
            kit.gate.blame(rewrite, tried)
            return None
        for _ in range(pairs):
            kit.round(arms, Part.INFORMATION)
    except OutOfBudget:
        why = "" if len(arms[1].rates) >= fewest else "the time ended before it was measured"
    except (RunFailed, Refused) as problem:
        why = str(problem)
    return Added(tried, ratios(arms[1], arms[0]), why, arms[1].failure, kit.meter.clock.now() - before)


_LONGER = 3.0  # times the longest comparison so far: what has to be compared differs from plan to plan, by judgement

NOT_SLOWER = 0.97
"""The margin of non-inferiority: a whole 95 % interval above it means a loss of at most 3 %."""

FEWEST_EQUAL_PAIRS, MOST_EQUAL_PAIRS = 6, 16


@dataclass
class Equals:
    """What came of them: offers, the trials behind them, and why others are not offered."""

    offers: list[OptionalRewrite] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)


def measure_equals(rewrites: Sequence[Rewrite], plan: Plan | None, kit: SearchContext) -> Equals:
    """Each rewrite added to the plan (or alone) over the plan (or the base), in pairs fixed beforehand.

    Never a way into the plan: the acceptance rule is the only one. Not offered: what the plan already says, what
    changes the data, and what is not shown to lose less than `NOT_SLOWER` allows.
    """
    found = Equals()
    for position, rewrite in enumerate(rewrites):
        if plan is not None and _overlaps(rewrite, plan):
            continue
        pairs = affordable_pairs(
            kit, waiting=len(rewrites) - position, fewest=FEWEST_EQUAL_PAIRS, most=MOST_EQUAL_PAIRS
        )
        if not pairs:
            found.offers.append(OptionalRewrite(rewrite, None, "", "no time was left to measure that it is not slower"))
            continue
        added = measure_added(rewrite, plan or kit.base, kit, pairs=pairs, fewest=FEWEST_EQUAL_PAIRS)
        if added is None:
            continue
        gain = ratio_interval(added.ratios) if len(added.ratios) >= FEWEST_EQUAL_PAIRS and not added.why else None
        why = added.why or added.failure or _judged(gain)
        trial = Trial(
            added.plan,
            Outcome.REJECTED,
            why,
            gain=gain,
            unit=kit.unit,
            ratios=added.ratios,
            seconds=added.seconds,
        )
        found.trials.append(trial)
        kit.tell([trial])
        if gain is not None and gain.low > NOT_SLOWER:
            found.offers.append(OptionalRewrite(rewrite, gain, "", why))
    return found


def _judged(gain: Interval | None) -> str:
    if gain is None:
        return "it was not measured often enough"
    if gain.low > NOT_SLOWER:
        return f"not slower, and not proven faster: offered, for it is as fast without AUTOTUNE ({gain.pairs} pairs)"
    return f"not shown to lose less than {1 - NOT_SLOWER:.0%}, after {gain.pairs} pairs"


def _overlaps(rewrite: Rewrite, plan: Plan) -> bool:
    """Whether the plan itself says a number that the rewrite would write."""
    said = {(edit.node, edit.name) for edit in plan.edits if isinstance(edit, SetArgument)}
    return any(isinstance(edit, SetArgument) and (edit.node, edit.name) in said for edit in rewrite.edits)


FEWEST_PAIRS, MOST_PAIRS = 4, 8

_SAME = 0.1
"""The model is off by less than this on most pipelines: what it expects within it is nothing."""

_CONSENT = {
    Safety.STATISTICAL: Consent.STATISTICAL,
    Safety.REORDERS: Consent.REORDER,
    Safety.APPROXIMATE: Consent.APPROXIMATE,
}


def missing_consent(rewrite: Rewrite, settings: Settings) -> str:
    """What to add to the command line so that `rewrite` may enter the plan: "--allow reorder,file-cache"."""
    wanted = set(rewrite.needs)
    if rewrite.safety in _CONSENT:
        wanted.add(_CONSENT[rewrite.safety])
    return "--allow " + ",".join(sorted(consent.value for consent in wanted - settings.allow))


def measure_offers(
    rewrites: Sequence[Rewrite], plan: Plan | None, kit: SearchContext, *, settings: Settings, forecast: Forecast
) -> tuple[list[OptionalRewrite], list[Trial]]:
    """Each rewrite added to the plan (or alone), over the plan (or the base), in 4 to 8 pairs fixed
    beforehand; those that the cost model expects most of come first.

    What no time is left for is offered unmeasured, with what the model expects. What changes the data beyond its
    safety class is not offered: the gate blames it.
    """
    offers: list[OptionalRewrite] = []
    trials: list[Trial] = []
    expected = {rewrite.key: _expected(rewrite, plan or kit.base, kit, forecast) for rewrite in rewrites}
    ranked = sorted(rewrites, key=lambda rewrite: -(expected[rewrite.key] or 1.0))
    for position, rewrite in enumerate(ranked):
        consent = missing_consent(rewrite, settings)
        pairs = affordable_pairs(kit, waiting=len(rewrites) - position, fewest=FEWEST_PAIRS, most=MOST_PAIRS)
        if not pairs:
            offers.append(OptionalRewrite(rewrite, None, consent, _unmeasured(expected[rewrite.key])))
            continue
        added = measure_added(rewrite, plan or kit.base, kit, pairs=pairs, fewest=FEWEST_PAIRS)
        if added is None:
            continue
        why = added.why or added.failure
        gain = ratio_interval(added.ratios) if not why and len(added.ratios) >= 2 else None
        offers.append(OptionalRewrite(rewrite, gain, consent, why))
        trial = Trial(
            added.plan,
            Outcome.REFUSED,
            f"needs {consent}" + (f"; {why}" if why else ""),
            gain=gain,
            unit=kit.unit,
            ratios=added.ratios,
            seconds=added.seconds,
        )
        trials.append(trial)
        kit.tell([trial])
    return offers, trials


def _expected(rewrite: Rewrite, reference: Plan, kit: SearchContext, forecast: Forecast) -> float | None:
    """What the input's rate would become, over that of `reference`, by the cost model; None where it cannot tell."""
    ours, theirs = forecast.rate(kit.composer.added(reference, rewrite)), forecast.rate(reference)
    return ours / theirs if ours and theirs and ours < math.inf else None


def _unmeasured(expected: float | None) -> str:
    text = "no time was left to measure it"
    if expected is None:
        return text
    if abs(expected - 1) < _SAME:
        return f"{text}; the cost model expects no other rate of the input"
    return f"{text}; the cost model expects the input alone to run {_times(expected)} as fast"


def _times(ratio: float) -> str:
    """Three figures: 1.24x, 41x, 1,280x."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{float(f'{ratio:.3g}'):,g}x"
