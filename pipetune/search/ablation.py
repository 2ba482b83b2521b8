"""Ablation: each rewrite of the chosen plan left out in turn; what adds nothing is dropped."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, Outcome, OutOfBudget, RunFailed, Trial
from pipetune.core.time_plan import Part
from pipetune.search.evidence import Evidence, Gains
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Meter
from pipetune.search.race import Arm, ratios
from pipetune.search.statistics import ACCEPT_ABOVE, ratio_interval

LEAST_BYTES = 16 * 2**20
LEAST_SHARE = 0.10
"""Of what the pipeline as written is predicted to hold."""

NOT_SLOWER = 0.97
"""What spares memory stays unless windows show less of the rate than this with it."""

FEWEST_ROUNDS, MOST_ROUNDS = 4, 16

SURELY = 0.95
"""A rewrite of which it is as probable as this that it adds 3 %, or that it does not, needs no more windows."""


def spares_memory(rewrite: Rewrite, base: Plan, meter: Meter) -> bool:
    """Whether the rewrite lets the pipeline hold far fewer bytes: a shuffle before images are decoded, say."""
    least = max(LEAST_BYTES, LEAST_SHARE * meter.runner.predicted_bytes(base))
    return -rewrite.predicted_bytes >= least


def with_sparing(plan: Plan, rewrites: Sequence[Rewrite], gains: Gains, kit: SearchContext) -> Plan:
    """`plan` and what spares memory and is not expected to be slower, where time to ablate is left.

    Whether they are slower is for the ablation's pairs.
    """
    grown = plan
    for rewrite in rewrites:
        more = kit.composer.added(grown, rewrite)
        known = gains.added(rewrite, grown)
        slower = known.expected + known.deviation < math.log(NOT_SLOWER)
        if len(more.rewrites) > len(grown.rewrites) and spares_memory(rewrite, kit.base, kit.meter) and not slower:
            grown = grown if kit.composer.conflict(more) else more
    proof = kit.gate.cost(4 * kit.meter.cost("input"))
    added = len(grown.rewrites) > len(plan.rewrites) and _affords(grown, kit, more_seconds=proof)
    return grown if added and kit.gate.equal(grown) else plan


@dataclass(frozen=True)
class Ablated:
    """The plan after ablation, the gain of each rewrite left out once (by key), and what was tried."""

    plan: Plan
    gains: Mapping[str, Interval] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()


def ablate(plan: Plan, kit: SearchContext, gains: Gains) -> Ablated:
    """Measures the plan beside itself without each of its rewrites, in rounds of one window each.

    A rewrite stays where it is more probable than not that it adds what counts, by the model and the pairs together.
    It need not be proven anew: the plan was proven with it. One that spares memory stays unless it is shown to be
    slower; one that needs only be as fast (it is offered then) stays where it is proven faster.

    What adds least leaves first. Two rewrites that can stand for each other both seem to add nothing: where several
    do, the rest is ablated again, and where there is no time for that, only the one leaves.
    """
    found: dict[str, Interval] = {}
    trials: list[Trial] = []
    while len(plan.rewrites) > 1:
        if not _affords(plan, kit):
            note = "no time to leave out each rewrite in turn; the plan stands as proven whole"
            return Ablated(plan, found, tuple(trials), () if trials else (note,))
        spare = {one.key for one in plan.rewrites if spares_memory(one, kit.base, kit.meter)}
        arms = [Arm(plan, kit.unit), *(Arm(kit.composer.without(plan, [one]), kit.unit) for one in plan.rewrites)]
        try:
            _measure(plan, arms, kit, gains, spare)
        except RunFailed as problem:
            return Ablated(plan, found, tuple(trials), (f"ablation ended: {problem}",))
        measured = {
            one.key: ratio_interval(ratios(arms[0], arm))
            for one, arm in zip(plan.rewrites, arms[1:], strict=True)
            if arm.rounds >= FEWEST_ROUNDS and arm.running
        }
        if not measured and not trials:
            return Ablated(plan, notes=("ablation ended before it could tell anything",))
        idle = [
            one
            for one in plan.rewrites
            if one.key in measured
            and not _stays(one, measured[one.key], _known(plan, one, kit, gains), spares=one.key in spare)
        ]
        idle.sort(key=lambda one: (not one.equal_is_enough, measured[one.key].median))
        told = [
            _trial(one, arm, arms[0], measured.get(one.key), dropped=one in idle[:1], spares=one.key in spare, kit=kit)
            for one, arm in zip(plan.rewrites, arms[1:], strict=True)
        ]
        kit.tell(told)
        trials += told
        found |= measured
        if not idle:
            break
        plan = kit.composer.without(plan, idle[:1])
        if len(idle) == 1:
            break
    return Ablated(plan, found, tuple(trials))


def _known(plan: Plan, rewrite: Rewrite, kit: SearchContext, gains: Gains) -> Evidence:
    return gains.of(plan, kit.composer.without(plan, [rewrite]))


def _measure(plan: Plan, arms: Sequence[Arm], kit: SearchContext, gains: Gains, spare: Collection[str]) -> None:
    """The fewest rounds of all, then more of those that leave it open, up to `MOST_ROUNDS` or until the time is up.

    Args:
        plan: the whole plan.
        arms: the whole plan, then without each of its rewrites; their windows are filled in.
        kit: takes the windows.
        gains: learns the pairs.
        spare: keys of rewrites that spare memory.

    Raises:
        RunFailed: the plan itself cannot be measured any more.
    """
    doubtful = list(zip(plan.rewrites, arms[1:], strict=True))
    while doubtful and arms[0].rounds < MOST_ROUNDS:
        try:
            for _ in range(FEWEST_ROUNDS):
                kit.round([arms[0], *(arm for _, arm in doubtful)], Part.ABLATION)
        except OutOfBudget:
            return
        for _, arm in doubtful:
            if arm.running:
                gains.pairs[plan.key, arm.plan.key] = ratios(arms[0], arm)
        doubtful = [
            (one, arm)
            for one, arm in doubtful
            if arm.running and not _is_sure(_known(plan, one, kit, gains), arms[0], arm, spares=one.key in spare)
        ]
        if not kit.meter.budget.affords(Part.ABLATION, kit.seconds(len(doubtful) + 1, rounds=FEWEST_ROUNDS)):
            return


def _is_sure(known: Evidence, whole: Arm, arm: Arm, *, spares: bool) -> bool:
    if spares:
        return ratio_interval(ratios(whole, arm)).low > NOT_SLOWER
    return known.chance >= SURELY or known.chance <= 1 - SURELY


def _stays(rewrite: Rewrite, gain: Interval, known: Evidence, *, spares: bool) -> bool:
    if rewrite.equal_is_enough:
        return gain.median >= ACCEPT_ABOVE and gain.low > 1.0
    if spares:
        return gain.median >= NOT_SLOWER or gain.high >= 1.0
    return known.chance >= 0.5


def _affords(plan: Plan, kit: SearchContext, *, more_seconds: float = 0.0) -> bool:
    """Whether there is time for the fewest rounds of the plan and of it without each of its rewrites."""
    seconds = kit.seconds(len(plan.rewrites) + 1, rounds=FEWEST_ROUNDS)
    return kit.meter.budget.affords(Part.ABLATION, seconds + more_seconds)


def _trial(
    rewrite: Rewrite, arm: Arm, whole: Arm, gain: Interval | None, *, dropped: bool, spares: bool, kit: SearchContext
) -> Trial:
    if gain is None:
        outcome, why = Outcome.FAILED, f"without {rewrite.key}: {arm.failure or 'the time was up'}"
    elif dropped:
        outcome, why = Outcome.REJECTED, f"{rewrite.key} adds less than {ACCEPT_ABOVE - 1:.0%} to the plan"
    elif gain.low > 1.0:
        outcome, why = Outcome.ACCEPTED, f"without {rewrite.key} the plan is slower"
    elif spares:
        less = -rewrite.predicted_bytes / 2**20
        slower = "is not slower" if gain.median >= NOT_SLOWER else "is not shown to be slower"
        outcome, why = Outcome.ACCEPTED, f"{rewrite.key} {slower}, and holds {less:,.0f} MiB less"
    else:
        outcome, why = Outcome.UNDECIDED, f"{rewrite.key} is kept: the plan was proven with it and seems slower without"
    return Trial(
        plan=arm.plan,
        outcome=outcome,
        why=why,
        gain=gain,
        kind="ablation",
        unit=kit.unit,
        ratios=ratios(whole, arm),
        seconds=arm.seconds,
    )
