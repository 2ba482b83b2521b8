"""The search: from legal rewrites to the one plan that planned measurements prove, and of this each rewrite left out in
turn, so that what adds nothing is dropped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import Interval, OutOfBudget, RunFailed, percent
from pipetune.core.results import Outcome, RejectionReason, Trial
from pipetune.core.session import LIKELY_FROM, NOTHING_BELOW, Candidate
from pipetune.core.time_plan import COMPARISON, Part
from pipetune.search.candidates import (
    ENOUGH_FOR_A_PATCH,
    is_worth_a_race,
    joined,
    next_race,
    only_offers_promise,
    open_plans,
    screen,
    screen_again,
    waiting,
)
from pipetune.search.composing import structural
from pipetune.search.evidence import WORTH, Evidence, limit_of
from pipetune.search.meter import rate_from
from pipetune.search.race import Arm, EarlierRace, race, with_meter
from pipetune.search.result import SearchResult, build_result, measure_baselines, measure_offers
from pipetune.search.runner import DEFAULTS
from pipetune.search.state import REASONS, SearchState
from pipetune.search.statistics import ACCEPT_ABOVE, FEWEST_PAIRS, LOOKS, NOT_SLOWER, USUAL_PAIRS, ratio_interval


def search(state: SearchState, *, earlier: EarlierRace | None = None) -> SearchResult:
    """Finds the plan that is proven faster than the pipeline as written, smallest first, or none.

    Races, ablation; then, from what is left, what only informs: optional rewrites and baselines. Failing, refused,
    unequal and slower plans are trials like any other. What fails or has no time raises nothing: the result says so.

    Args:
        state: learns what is measured.
        earlier: the race of an earlier session to go on with first.
    """
    try:
        _begin(state)
    except RunFailed as problem:
        state.failure = str(problem).rstrip(".")
        why = f"the current pipeline could not be measured: {state.failure}"
        return build_result(state, why=f"Nothing could be tried: {why}.")
    except OutOfBudget:
        return build_result(state)
    try:
        if earlier is not None:
            _go_on(state, earlier)
        if state.granted and state.chosen is None:
            _race(state)
        if state.chosen is not None:
            ablate(state)
        _try_inside(state)
    except RunFailed as problem:
        state.failure = str(problem).rstrip(".")
        state.notes.append(f"The search ended early: {state.failure}.")
    if state.chosen is None:
        _find_candidate(state)
    if state.chosen is None:  # otherwise the plan is verified first
        state.budget.decide()
    offers = measure_offers(state)
    if state.chosen is None:  # otherwise they are measured beside the proven plan
        measure_baselines(state)
    return build_result(state, offers=offers)


def _begin(state: SearchState) -> None:
    """Chooses the unit that decides, and how long windows are: by earlier ones, or by one of the pipeline as written.

    Training steps decide where model and input share processors, if the consumer can be switched.

    Raises:
        RunFailed: the pipeline cannot be measured.
        OutOfBudget: there is no time for any window.
    """
    state.notify("stage", name="windows")
    by_steps = state.runner.trains and state.runner.shares_processors
    if by_steps and state.earlier is not None:
        state.meter.expect("input", state.earlier.around_input + state.meter.window_seconds)
    else:
        state.rates[DEFAULTS] = rate_from([state.meter.window(state.base, "input", part=Part.SEARCH)])
    if not by_steps:
        return
    try:
        state.meter.choose_steps(state.base, steps=state.settings.steps, earlier=state.earlier)
    except (RunFailed, OutOfBudget) as problem:
        state.notes.append(f"Plans were compared by the input alone: {str(problem).rstrip('.')}.")
        return
    state.unit, state.gains.most_gain = "training", state.most_gain
    state.gains.limit = None if state.wait_share is None else limit_of(state.wait_share)


def _go_on(state: SearchState, earlier: EarlierRace) -> None:
    """Goes on with the race of an earlier session."""
    state.races, state.error = 1, earlier.error
    plan = state.composer.plan([one for one in state.granted if one.key in earlier.keys])
    if len(plan.rewrites) < len(earlier.keys) or state.composer.conflict(plan):
        state.notes.append("The plan of the earlier session is not legal any more: the search began from the start.")
    elif state.gate.equal(plan):
        key = plan.rewrites[0].key if len(plan.rewrites) == 1 else plan.key
        ratios = earlier.ratios if earlier.unit == state.unit else ()
        _decide(state, key, [plan], part=state.part, earlier=ratios)


def _race(state: SearchState) -> None:
    """Races the next best plans against the best so far until none is left that is expected to gain, or no time.

    It ends, too, where the best so far leaves nothing to gain. Before each race short windows are taken of what a gain
    may be expected of. Nothing is raced where a gain is expected only of what needs consent: its offer needs the time.
    """
    if only_offers_promise(state):
        return
    while not state.at_bound(state.chosen) and _has_time_for_a_race(state):
        state.notify("stage", name="screening")
        if screen(state):
            continue
        key, plans = next_race(state)
        if not plans and screen_again(state):
            continue
        if not plans:
            key, plans = next_race(state, in_doubt=True)
        part = _part_for(plans, state)
        if not plans or not state.affords_race(len(plans), part, rounds=1):
            break
        _decide(state, key, plans, part=part)
        _race_for_patch(state)


def _race_for_patch(state: SearchState) -> None:
    """Races what the source can express of what is left where it can express nothing of the proven plan.

    If that is proven, too, and gains enough beside the plan (`ENOUGH_FOR_A_PATCH`), it takes the place of the plan. The
    race is against the pipeline as written, and is begun only if there is time for its first look.
    """
    plan, accepted = state.chosen, state.accepted
    if plan is None or accepted is None or any(map(state.can_express, plan.rewrites)):
        return
    state.chosen = state.accepted = None
    try:
        _race_best_expressible(state)
    finally:
        (expressible, found), (state.chosen, state.accepted) = _proven(state), (plan, accepted)
    if expressible is None or found is None or found.gain is None or accepted.gain is None:
        return
    ratio, ratio_without_patch = found.gain.median, accepted.gain.median
    left = expressible
    why = f"{expressible.title} gains {ratio:.2f}x with a patch, {plan.title} {ratio_without_patch:.2f}x without one"
    if math.log(ratio) >= ENOUGH_FOR_A_PATCH * math.log(ratio_without_patch):
        state.chosen, state.accepted, left = expressible, found, plan
        why = (
            "the source cannot express it, and the patch has what it can; "
            f"without a patch {plan.title} gains {ratio_without_patch:.2f}x"
        )
    state.left_out |= {one.key: (RejectionReason.EXCLUDED, why) for one in left.rewrites}
    state.notify("best", plan=state.chosen, gain=state.accepted.gain)


def _proven(state: SearchState) -> tuple[Plan | None, Trial | None]:
    return state.chosen, state.accepted


def _race_best_expressible(state: SearchState) -> None:
    others = [one for one in waiting(state) if one.key not in state.proven_alone]
    worth = (one for one in others if is_worth_a_race(one, state))
    best = next((one for one in worth if state.can_express(one)), None)
    if best is None or not state.affords_race(1, rounds=LOOKS[0], after=state.gate.cost(0.0)):
        return
    state.raced[best.key] = None
    single, larger = state.composer.plan([best]), joined(others, best, state)
    tried = larger if state.gate.equal(larger) else single
    if state.gate.equal(tried):
        _decide(state, best.key, [tried], part=Part.SEARCH)
    else:
        state.gate.blame(best, single)


def _part_for(plans: Sequence[Plan], state: SearchState) -> Part:
    """Returns whose time a race of these plans may use.

    Where none is expected to gain, or far more of what needs consent, that is measured after the search's own time.
    """
    expected = max((state.expected_gain(plan) for plan in plans), default=0.0)
    offers_first = state.asking and (expected < WORTH or (state.chosen is None and state.offers_far_more(expected)))
    return Part.SEARCH if offers_first else state.part


def _has_time_for_a_race(state: SearchState) -> bool:
    """Whether a later race can reach its first look; the first one is begun with any time there is.

    What is raced may cost far less than windows did so far. Windows are shortened where no usual race fits.
    """
    if state.races:
        return state.affords_race(1, state.part, rounds=LOOKS[0])
    if not state.affords_race(1, state.part):
        state.meter.shorten(state.unit, seconds=0.95 * state.budget.left(state.part) / (2 * USUAL_PAIRS))
    return state.affords_race(1, state.part, rounds=1)


def _decide(state: SearchState, key: str, plans: Sequence[Plan], *, part: Part, earlier: Sequence[float] = ()) -> None:
    """Races plans against the best so far; of several proven at once the smallest is kept.

    A larger one takes its place only if its whole 95 % interval is above that, and training waits with the smaller one.

    Args:
        key: of the one rewrite more that the first of the plans has.
        plans: the smallest first.
        part: whose end ends the race.
        earlier: ratios of an earlier race of the one plan.
    """
    state.notify("stage", name="decision")
    single, *larger = state.race(plans, part, earlier=earlier)
    state.raced[key] = single
    best = single if single.outcome is Outcome.ACCEPTED else None
    for trial in (one for one in larger if one.outcome is Outcome.ACCEPTED):
        if best is None or (not state.at_bound(best.plan) and _is_faster(trial, best)):
            best = trial
    if best is None:
        return
    if best is single and best.gain and key in {one.key for one in best.plan.rewrites}:
        state.added[key] = best.gain
    state.chosen, state.accepted = best.plan, state.accepted or best
    state.notify("best", plan=state.chosen, gain=state.accepted.gain)


def _is_faster(trial: Trial, other: Trial) -> bool:
    """Whether the whole 95 % interval of `trial` over `other` is above 1; both from the same rounds."""
    sample = [one / two for one, two in zip(trial.ratios, other.ratios, strict=False)]
    return len(sample) >= 2 and ratio_interval(sample).low > 1.0


def _try_inside(state: SearchState) -> None:
    """Adds what gains inside the training step only, as a copy to the device does, where training steps prove it.

    The first that is proven faster enters the plan. Nothing is measured where the consumer cannot be switched.
    """
    composer, part = state.composer, Part.ABLATION if state.chosen else Part.EXTENSION
    plans = [(composer.added(state.before, one), one) for one in structural(state.inside)]
    rewrites = {plan.key: one for plan, one in plans if not composer.conflict(plan)}
    if not rewrites:
        return
    inside = copy(state)
    inside.unit = "training"

    def leave_out(reason: RejectionReason, why: str) -> None:
        state.left_inside |= {one.key: (reason, why) for one in rewrites.values()}

    if why := _why_not_inside(inside, part):
        return leave_out(RejectionReason.REFUSED, why)
    tried = [plan for plan, _ in plans if plan.key in rewrites and state.gate.equal(plan)]
    while tried and not inside.affords_race(len(tried), part):
        tried.pop()
        leave_out(RejectionReason.NO_TIME, "no time was left to measure it inside the training step")
    if not tried:
        return
    state.notify("stage", name="inside")
    try:
        trials = inside.race(tried, part)
    except RunFailed as problem:
        return leave_out(RejectionReason.FAILED, str(problem))
    for trial in trials:
        state.left_inside[rewrites[trial.plan.key].key] = REASONS[trial.outcome], trial.why
    best = next((trial for trial in trials if trial.outcome is Outcome.ACCEPTED), None)
    if best is not None:
        key = rewrites[best.plan.key].key
        state.chosen, state.accepted = best.plan, state.accepted or best
        del state.left_inside[key]
        if best.gain is not None:
            state.added[key] = best.gain


def _why_not_inside(inside: SearchState, part: Part) -> str:
    """Why training windows cannot be taken, or ''; finds how long they are where that is not known yet."""
    if not inside.runner.trains:
        return "its gain shows inside the training step only, and no other input can be served there"
    try:
        if not inside.meter.knows("training"):
            inside.meter.choose_steps(inside.base, steps=inside.settings.steps, earlier=inside.earlier, part=part)
    except (RunFailed, OutOfBudget) as problem:
        return f"it could not be measured inside the training step: {problem}"
    return ""


def _find_candidate(state: SearchState) -> None:
    """Keeps the plan that most probably gains, though none was proven: of those likely to, the one that gains most.

    What is likely by windows goes before what the cost model alone expects. The plan must yield the same data; what is
    not compared yet is compared in the time that nothing has to be verified in.
    """
    known = []
    for plan in open_plans(state):
        if (gain := _worth_keeping(plan, state)) is not None:
            pairs = len(state.gains.pairs.get((plan.key, state.base.key), ()))
            interval, why = replace(gain.interval, pairs=pairs), _why_unproven(pairs, state)
            known.append(Candidate(plan, interval, gain.probability, state.unit, why))
    known.sort(key=lambda one: (one.likely, min(one.probability, LIKELY_FROM), one.gain.median), reverse=True)
    for candidate in known:
        plan, cost = candidate.plan, state.gate.cost(state.budget.usual_seconds(COMPARISON))
        if state.gate.comparison(plan) is None and not state.budget.affords(Part.VERIFICATION, cost):
            continue
        if state.gate.equal(plan):
            state.candidate = replace(candidate, comparison=state.gate.comparison(plan))
            return


def _worth_keeping(plan: Plan, state: SearchState) -> Evidence | None:
    """Returns what is known of the gain of a plan; None if it hardly gains, or races of others contradict it.

    Of a plan less is known than of one that was raced for longer. A part gains no more than such a plan with more in
    it, unless the rest is predicted to lose; and a plan gains no more than such a part of it together with what the
    rest is expected to add to that.
    """
    gains, gain = state.gains, state.gains.attainable(plan)
    raced = [one.plan for one in state.trials if one.kind == "search" and len(one.ratios) >= FEWEST_PAIRS]
    if gain.probability < NOTHING_BELOW:
        return None
    pairs = {key: len(ratios) for (key, over), ratios in gains.pairs.items() if over == state.base.key}
    raced = [other for other in raced if pairs.get(other.key, 0) > pairs.get(plan.key, 0)]
    keys = {one.key for one in plan.rewrites}
    for other in raced:
        others = {one.key for one in other.rewrites}
        if keys < others and gains.of(other).mean < gain.mean and gains.prior(other, plan).mean >= 0.0:
            return None
        if others < keys and math.exp(gains.of(other).expected + gains.of(plan, other).expected) < gain.interval.low:
            return None
    return gain


def _why_unproven(pairs: int, state: SearchState) -> str:
    if state.failure and pairs < LOOKS[0]:
        if pairs == 0:
            return f"It could not be measured: {state.failure}. This is what the cost model expects."
        return f"It could not be measured to the end: {state.failure}."
    budget = f"the budget of {state.budget.seconds:.0f} s"
    if state.only_promising:
        budget = "the third of the budget that is given where so little can be gained"
    if pairs == 0:
        return f"No time was left within {budget} to measure it: this is what the cost model expects."
    if pairs < LOOKS[0]:
        return f"There was no time for {LOOKS[0]} pairs of windows within {budget}."
    over = f", and {budget} was over" if pairs < LOOKS[-1] else ""
    return f"{pairs} pairs of windows do not prove a gain of 3 %{over}."


LEAST_BYTES = 16 * 2**20
LEAST_SHARE = 0.10
"""Of what the pipeline as written is predicted to hold."""

FEWEST_ROUNDS, MOST_ROUNDS = 4, 16

SURELY = 0.95
"""A rewrite of which it is as probable as this that it adds 3 %, or that it does not, needs no more windows."""


def ablate(state: SearchState) -> None:
    """Drops what adds nothing to the chosen plan; what is left must yield the same data, or the whole stays.

    The plan is measured beside itself without each of its rewrites, in rounds of one window each. A rewrite stays where
    it is more probable than not that it adds what counts, by the model and the pairs together, and the pairs alone show
    a gain. It need not be proven anew: the plan was proven with it. One that spares memory stays unless it is shown to
    be slower; a number in place of AUTOTUNE stays where it is proven faster.

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
        if rewrite.key in state.proven_alone:
            return gain.median >= ACCEPT_ABOVE and gain.low > 1.0
        if rewrite.key in sparing:
            return gain.median >= NOT_SLOWER or gain.high >= 1.0
        return gain.median > 1.0 and state.gains.of(plan, arms[rewrite.key].plan).chance >= 0.5

    idle = [one for one in plan.rewrites if one.key in gains and not stays(one, gains[one.key])]
    idle.sort(key=lambda one: (one.key not in state.proven_alone, gains[one.key].median))
    if first and not gains:
        return {}, []
    for one in tried:
        arm, gain = arms[one.key], gains.get(one.key)
        if gain is None:
            outcome, why = Outcome.FAILED, f"without {one.key}: {arm.failure or 'the time was up'}"
        elif one in idle[:1]:
            outcome, why = Outcome.REJECTED, f"{one.key} adds less than {percent(ACCEPT_ABOVE - 1)} to the plan"
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
