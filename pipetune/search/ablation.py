"""Ablation: each rewrite of the chosen plan left out in turn; what adds nothing is dropped."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, Outcome, OutOfBudget, RunFailed, Trial
from pipetune.core.time_plan import Part
from pipetune.search.expectation import Expectation
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Meter
from pipetune.search.race import Arm, ratios
from pipetune.search.statistics import ACCEPT_ABOVE, block_intervals

LEAST_BYTES = 16 * 2**20
LEAST_SHARE = 0.10
"""Of what the pipeline as written is predicted to hold."""

NOT_SLOWER = 0.97
"""Windows must show this share of the rate without the rewrite."""


def spares_memory(rewrite: Rewrite, base: Plan, meter: Meter) -> bool:
    """Whether the rewrite lets the pipeline hold far fewer bytes: a shuffle before images are decoded, say."""
    least = max(LEAST_BYTES, LEAST_SHARE * meter.runner.predicted_bytes(base))
    return -rewrite.predicted_bytes >= least


FEWEST_ROUNDS, MOST_ROUNDS = 4, 16

NEEDED = 1.10
"""A rewrite whose whole interval lies above this after the fewest rounds needs no more of them."""

WORTH, NOT_BELOW = 1.02, 0.985
"""What a rewrite must seem to add, and what its interval must lie above, to stay in a plan that was proven with it."""

WHOLE = 0.97
"""What is left after dropping must keep this share of the whole plan's rate."""


@dataclass(frozen=True)
class Ablated:
    """The plan after ablation, the gain of each rewrite left out once (by key), and what was tried."""

    plan: Plan
    gains: dict[str, Interval]
    dropped: tuple[Rewrite, ...]
    trials: tuple[Trial, ...]
    note: str = ""


def ablate(plan: Plan, kit: SearchContext) -> Ablated:
    """Measure the plan beside itself without each of its rewrites, in rounds of one window each.

    The gain of a rewrite is the plan's rate over the rate without it. The fewest rounds (4) are of all; those
    the plan clearly needs (`NEEDED`), or that spare memory and clearly cost no time (`NOT_SLOWER`), then leave, and the
    rest is measured on, in a number of rounds fixed from the
    time left, up to 16 in all. With less time than the fewest rounds take nothing is dropped, and the plan stands as
    it was proven.

    A rewrite is dropped when its gain is below `WORTH`, or the interval reaches down to `NOT_BELOW`: a patch is no
    larger than it pays. It need not be proven anew (the plan was proven with it): a rule that asks every run for an
    interval above 1 keeps a rewrite worth 4 % in one run and drops it in the next (measured, 2 of 8 runs). One that
    spares memory stays unless it is shown to be slower: its median below `NOT_SLOWER` and its interval below 1.

    The least gain goes first. Leaving out one was measured; leaving out several was not (two rewrites that can stand
    for each other both seem to add nothing), so then the rest is measured against the whole, and as long as it keeps
    less than `WHOLE` of its rate, the dropped rewrite with the largest gain comes back. Without time for that only
    the one of least gain is dropped.
    """
    if len(plan.rewrites) < 2:
        return Ablated(plan, {}, (), ())
    variants = [kit.composer.without(plan, [rewrite]) for rewrite in plan.rewrites]
    if not _affords(len(variants) + 1, kit):
        note = "no time to leave out each rewrite in turn; the plan stands as proven whole"
        return Ablated(plan, {}, (), (), note)
    arms = [Arm(plan), *(Arm(variant) for variant in variants)]
    spares = {rewrite.key for rewrite in plan.rewrites if spares_memory(rewrite, kit.base, kit.meter)}
    try:
        gains = _gains(plan, arms, kit, spares)
    except RunFailed as problem:
        return Ablated(plan, {}, (), (), f"ablation ended: {problem}")
    if not gains:
        return Ablated(plan, {}, (), (), "ablation ended before it could tell anything")
    idle = sorted(
        (
            rewrite
            for rewrite in plan.rewrites
            if rewrite.key in gains and not _stays(rewrite, gains[rewrite.key], spares=rewrite.key in spares)
        ),
        key=lambda rewrite: (not rewrite.equal_is_enough, gains[rewrite.key].median),
    )
    dropped = _droppable(plan, idle, kit)
    trials = [
        _trial(
            rewrite,
            arm,
            arms[0],
            gains.get(rewrite.key),
            dropped=rewrite in dropped,
            spares=rewrite.key in spares,
            unit=kit.unit,
        )
        for rewrite, arm in zip(plan.rewrites, arms[1:], strict=True)
    ]
    kit.tell(trials)
    return Ablated(kit.composer.without(plan, dropped), gains, tuple(dropped), tuple(trials))


def _gains(plan: Plan, arms: Sequence[Arm], kit: SearchContext, spares: Collection[str]) -> dict[str, Interval]:
    """What each rewrite adds, by key; none for one without which the plan fails. `arms`: the plan, then each variant.

    Raises:
        RunFailed: the plan itself cannot be measured any more.
    """
    whole, variants = arms[0], dict(zip((rewrite.key for rewrite in plan.rewrites), arms[1:], strict=True))
    gains: dict[str, Interval] = {}
    doubtful = list(variants)
    rounds = FEWEST_ROUNDS
    while doubtful and rounds > 0:
        try:
            for _ in range(rounds):
                running = [variants[key] for key in doubtful]
                kit.round([whole, *running], Part.ABLATION)
        except OutOfBudget:
            pass
        doubtful = [key for key in doubtful if variants[key].running]
        if len(whole.rates) < FEWEST_ROUNDS or not doubtful:
            break
        rows = list(zip(whole.rates, *(variants[key].rates for key in doubtful), strict=True))
        gains.update(zip(doubtful, block_intervals(rows), strict=True))
        doubtful = [key for key in doubtful if gains[key].low <= (NOT_SLOWER if key in spares else NEEDED)]
        once = kit.seconds(len(doubtful) + 1, rounds=1)
        together = kit.seconds(2, rounds=FEWEST_ROUNDS) if len(doubtful) > 1 else 0.0  # should several leave
        affordable = int((kit.meter.budget.left(Part.ABLATION) - together) / once) if once > 0 else 0
        rounds = min(MOST_ROUNDS - len(whole.rates), affordable)
    return gains


def _stays(rewrite: Rewrite, gain: Interval, *, spares: bool) -> bool:
    if rewrite.equal_is_enough:
        return gain.median >= ACCEPT_ABOVE and gain.low > 1.0
    if spares:
        return gain.median >= NOT_SLOWER or gain.high >= 1.0
    return gain.median >= WORTH and gain.low > NOT_BELOW


def _affords(arms: int, kit: SearchContext, *, more_seconds: float = 0.0) -> bool:
    """Whether there is time for the fewest rounds of this many plans."""
    return kit.meter.budget.affords(Part.ABLATION, kit.seconds(arms, rounds=FEWEST_ROUNDS) + more_seconds)


def with_sparing(plan: Plan, rewrites: Sequence[Rewrite], expectation: Expectation, kit: SearchContext) -> Plan:
    """`plan` and what spares memory and is not expected to be slower, where time to ablate is left.

    Whether they are slower is for the ablation's pairs.
    """
    grown = plan
    for rewrite in rewrites:
        more = kit.composer.added(grown, rewrite)
        belief = expectation.of(rewrite, grown)
        slower = belief.mean + belief.deviation < math.log(NOT_SLOWER)
        if len(more.rewrites) > len(grown.rewrites) and spares_memory(rewrite, kit.base, kit.meter) and not slower:
            grown = grown if kit.composer.conflict(more) else more
    arms, proof = len(grown.rewrites) + 1, kit.gate.cost(4 * kit.meter.cost("input"))
    added = len(grown.rewrites) > len(plan.rewrites) and _affords(arms, kit, more_seconds=proof)
    return grown if added and kit.gate.equal(grown) else plan


def _keeps(rest: Plan, plan: Plan, kit: SearchContext) -> bool:
    """Whether `rest` has `WHOLE` of the rate of `plan`, by `FEWEST_ROUNDS` pairs, or twice as many if not."""
    arms = [Arm(plan), Arm(rest)]
    for _ in range(2):
        if not _affords(2, kit):
            return False
        try:
            for _ in range(FEWEST_ROUNDS):
                kit.round(arms, Part.ABLATION)
        except (OutOfBudget, RunFailed):
            return False
        if not arms[1].running:
            return False
        if statistics.median(ratios(arms[1], arms[0])) >= WHOLE:
            return True
    return False


def _droppable(plan: Plan, idle: Sequence[Rewrite], kit: SearchContext) -> list[Rewrite]:
    """The rewrites that may leave together; `idle` is sorted, least gain first."""
    dropped = list(idle)
    while len(dropped) > 1:
        rest = kit.composer.without(plan, dropped)
        if not _affords(2, kit):
            return dropped[:1]
        if _keeps(rest if rest.rewrites else kit.base, plan, kit):
            break
        dropped.pop()
    return dropped


def _trial(
    rewrite: Rewrite, arm: Arm, whole: Arm, gain: Interval | None, *, dropped: bool, spares: bool, unit: str
) -> Trial:
    if gain is None:
        outcome, why = Outcome.FAILED, f"without {rewrite.key}: {arm.failure}"
    elif dropped:
        outcome, why = Outcome.REJECTED, f"{rewrite.key} adds less than {ACCEPT_ABOVE - 1:.0%} to the plan"
    elif gain.low > 1.0:
        outcome, why = Outcome.ACCEPTED, f"without {rewrite.key} the plan is slower"
    elif spares:
        less = -rewrite.predicted_bytes / 2**20
        slower = "is not slower" if gain.median >= NOT_SLOWER else "is not shown to be slower"
        outcome, why = Outcome.ACCEPTED, f"{rewrite.key} {slower}, and holds {less:,.0f} MiB less"
    elif _stays(rewrite, gain, spares=False):
        outcome, why = Outcome.UNDECIDED, f"{rewrite.key} is kept: the plan was proven with it and seems slower without"
    else:
        outcome, why = Outcome.UNDECIDED, f"{rewrite.key} is kept: without it and others the plan was slower"
    return Trial(
        plan=arm.plan,
        outcome=outcome,
        why=why,
        gain=gain,
        kind="ablation",
        unit=unit,
        ratios=ratios(whole, arm),
        seconds=arm.seconds,
    )
