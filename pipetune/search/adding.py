"""One rewrite more than the plan has, measured beside the plan in pairs fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import OutOfBudget, RunFailed
from pipetune.core.time_plan import Part
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Refused
from pipetune.search.pairs import Arm, ratios


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
    tried = kit.composer.added(reference, rewrite)
    before = kit.meter.clock.now()
    arms, why = [Arm(reference), Arm(tried)], ""
    try:
        kit.meter.check(tried)
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
