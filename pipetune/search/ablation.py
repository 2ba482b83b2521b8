"""Ablation: each rewrite of the chosen plan left out in turn; what adds nothing is dropped."""

from __future__ import annotations

import math

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, Outcome, RunFailed, Trial
from pipetune.core.time_plan import Part
from pipetune.search.race import Arm, race, with_meter
from pipetune.search.state import SearchState
from pipetune.search.statistics import ACCEPT_ABOVE, NOT_SLOWER, ratio_interval

LEAST_BYTES = 16 * 2**20
LEAST_SHARE = 0.10
"""Of what the pipeline as written is predicted to hold."""

FEWEST_ROUNDS, MOST_ROUNDS = 4, 16

SURELY = 0.95
"""A rewrite of which it is as probable as this that it adds 3 %, or that it does not, needs no more windows."""


def ablate(state: SearchState) -> None:
    """Drops what adds nothing to the chosen plan; what is left must yield the same data, or the whole stays.

    The plan is measured beside itself without each of its rewrites, in rounds of one window each. A rewrite stays where
    it is more probable than not that it adds what counts, by the model and the pairs together. It need not be proven
    anew: the plan was proven with it. One that spares memory stays unless it is shown to be slower; one that needs only
    be as fast (it is offered then) stays where it is proven faster.

    What adds least leaves first. Two rewrites that can stand for each other both seem to add nothing: where several
    do, the rest is ablated again, and where there is no time for that, only the one leaves.
    """
    assert state.chosen is not None
    state.notify("stage", name="ablation")
    whole = plan = _with_sparing(state.chosen, state)
    measured = False  # whether any pass was
    while len(plan.rewrites) > 1:
        if not _affords(plan, state):
            if not measured:
                state.notes.append("no time to leave out each rewrite in turn; the plan stands as proven whole")
            break
        try:
            gains, idle = _leave_out_each(plan, state, first=not measured)
        except RunFailed as problem:
            state.notes.append(f"ablation ended: {problem}")
            break
        if not gains and not measured:
            state.notes.append("ablation ended before it could tell anything")
            break
        measured = True
        state.added |= gains
        plan = state.composer.without(plan, idle[:1])
        if len(idle) < 2:
            break
    kept = plan if measured else state.chosen
    fits = kept.rewrites and not state.composer.conflict(kept) and state.gate.equal(kept)
    state.chosen = kept if fits else whole


def _spares_memory(rewrite: Rewrite, state: SearchState) -> bool:
    """Whether the rewrite lets the pipeline hold far fewer bytes: a shuffle before images are decoded, say."""
    return -rewrite.predicted_bytes >= max(LEAST_BYTES, LEAST_SHARE * state.runner.predicted_bytes(state.base))


def _with_sparing(plan: Plan, state: SearchState) -> Plan:
    """`plan` and what spares memory and is not expected to be slower, where time to ablate is left.

    Whether they are slower is for the ablation's pairs.
    """
    grown = plan
    for rewrite in state.left():
        more = state.composer.added(grown, rewrite)
        known = state.gains.added(rewrite, grown)
        slower = known.expected + known.deviation < math.log(NOT_SLOWER)
        larger = len(more.rewrites) > len(grown.rewrites)
        if larger and _spares_memory(rewrite, state) and not slower and not state.composer.conflict(more):
            grown = more
    proof = state.gate.cost(4 * state.meter.cost("input"))
    added = len(grown.rewrites) > len(plan.rewrites) and _affords(grown, state, more_seconds=proof)
    return grown if added and state.gate.equal(grown) else plan


def _affords(plan: Plan, state: SearchState, *, more_seconds: float = 0.0) -> bool:
    """Whether there is time for the fewest rounds of the plan and of it without each of its rewrites."""
    seconds = state.seconds(len(plan.rewrites) + 1, rounds=FEWEST_ROUNDS)
    return state.budget.affords(Part.ABLATION, seconds + more_seconds)


def _leave_out_each(plan: Plan, state: SearchState, *, first: bool) -> tuple[dict[str, Interval], list[Rewrite]]:
    """What each rewrite was measured to add to the others, by key; and those that do not stay, the least first.

    What was proven before a cache downstream of it joined it stays: no window shows what it adds to the first epoch.
    The fewest rounds of all are measured, then more of those that leave it open. Each is a trial, unless there was no
    time for the `first` pass.
    """
    whole = Arm(plan, state.unit)
    tried = [one for one in plan.rewrites if not (one.key in state.added and state.is_above_cache(one, plan))]
    arms = {one.key: Arm(state.composer.without(plan, [one]), state.unit) for one in tried}
    sparing = {one.key for one in plan.rewrites if _spares_memory(one, state)}

    def is_sure(key: str, arm: Arm) -> bool:
        if key in sparing:
            return ratio_interval(whole.ratios(arm)).low > NOT_SLOWER
        return not 1 - SURELY < state.gains.of(plan, arm.plan).chance < SURELY

    def is_over(rounds: int) -> bool:
        if rounds % FEWEST_ROUNDS:
            return False
        running = {key: arm for key, arm in arms.items() if arm.running}
        for key, arm in running.items():
            state.gains.pairs[plan.key, arm.plan.key] = whole.ratios(arm)
            arm.running = not is_sure(key, arm)
        doubtful = sum(arm.running for arm in arms.values())
        next_seconds = state.seconds(doubtful + 1, rounds=FEWEST_ROUNDS)
        return not doubtful or not state.budget.affords(Part.ABLATION, next_seconds)

    take = with_meter(state.meter, Part.ABLATION)
    race(list(arms.values()), whole, is_over, take=take, draw=state.draw, rounds=MOST_ROUNDS)
    gains = {
        key: ratio_interval(whole.ratios(arm))
        for key, arm in arms.items()
        if arm.rounds >= FEWEST_ROUNDS and not arm.failure
    }

    def stays(rewrite: Rewrite, gain: Interval) -> bool:
        if rewrite.equal_is_enough:
            return gain.median >= ACCEPT_ABOVE and gain.low > 1.0
        if rewrite.key in sparing:
            return gain.median >= NOT_SLOWER or gain.high >= 1.0
        return state.gains.of(plan, arms[rewrite.key].plan).chance >= 0.5

    idle = [one for one in plan.rewrites if one.key in gains and not stays(one, gains[one.key])]
    idle.sort(key=lambda one: (not one.equal_is_enough, gains[one.key].median))
    if first and not gains:
        return {}, []
    for one in tried:
        arm, gain = arms[one.key], gains.get(one.key)
        if gain is None:
            outcome, why = Outcome.FAILED, f"without {one.key}: {arm.failure or 'the time was up'}"
        elif one in idle[:1]:
            outcome, why = Outcome.REJECTED, f"{one.key} adds less than {ACCEPT_ABOVE - 1:.0%} to the plan"
        elif gain.low > 1.0:
            outcome, why = Outcome.ACCEPTED, f"without {one.key} the plan is slower"
        elif one.key in sparing:
            less = -one.predicted_bytes / 2**20
            slower = "is not slower" if gain.median >= NOT_SLOWER else "is not shown to be slower"
            outcome, why = Outcome.ACCEPTED, f"{one.key} {slower}, and holds {less:,.0f} MiB less"
        else:
            outcome = Outcome.UNDECIDED
            why = f"{one.key} is kept: the plan was proven with it and seems slower without"
        state.note(Trial(arm.plan, outcome, why, gain, "ablation", state.unit, whole.ratios(arm), arm.seconds))
    return gains, idle
