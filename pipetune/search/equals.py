"""Rewrites that need not be faster to be worth an offer: measured not slower, beside the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan, Rewrite, SetArgument
from pipetune.core.results import Interval, Outcome, Trial
from pipetune.core.session import OptionalRewrite
from pipetune.search.adding import affordable_pairs, measure_added
from pipetune.search.kit import SearchContext
from pipetune.search.statistics import ratio_interval

NOT_SLOWER = 0.97
"""The margin of non-inferiority: a whole 95 % interval above it means a loss of at most 3 %."""

FEWEST_PAIRS, MOST_PAIRS = 6, 16


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
        pairs = affordable_pairs(kit, waiting=len(rewrites) - position, fewest=FEWEST_PAIRS, most=MOST_PAIRS)
        if not pairs:
            found.offers.append(OptionalRewrite(rewrite, None, "", "no time was left to measure that it is not slower"))
            continue
        added = measure_added(rewrite, plan or kit.base, kit, pairs=pairs, fewest=FEWEST_PAIRS)
        if added is None:
            continue
        gain = ratio_interval(added.ratios) if len(added.ratios) >= FEWEST_PAIRS and not added.why else None
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
