"""The rewrites that may enter the plan: which is tried next, by a short window or by a race."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import OutOfBudget, RunFailed, Window, percent
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.results import Outcome, RejectionReason, Trial
from pipetune.core.session import NOTHING_BELOW
from pipetune.core.time_plan import Part
from pipetune.search.composing import numbers_for, values_of
from pipetune.search.evidence import SURE, WORTH, ShortWindow, spread_of
from pipetune.search.meter import outcome_of
from pipetune.search.state import REASONS, SearchState
from pipetune.search.statistics import LOOKS

MOST_WINDOWS = 3
"""Short windows of one rewrite; by judgement: what is worth more of them is worth a race."""

BASE_EVERY = 4
"""Rewrites between two short windows of what they are added to: the machine's speed drifts."""

LIKELY_ENOUGH = 0.3
"""What is added to a proven plan is raced where it is as probable as this that it gains: the patch waits for it."""

ENOUGH_FOR_A_PATCH = 0.5
"""The least log of the gain, as a share of another's, of what is raced first because the source can express it. By
judgement: a patch with half of that helps more than a plan without one."""


# -- which are left


def not_run(state: SearchState) -> dict[str, str]:
    """Returns why the model's prediction is reason enough not to run a rewrite, by key.

    It loses beyond doubt, alone and beside all others; or another of its group that runs is faster, alone and beside
    all others: what is slower alone may leave room for them. What needs a consent of its own beats none: what a file
    takes to read the model does not know. Nor does what the source cannot express rule out what it can.
    """
    composer, gains, loses = state.composer, state.gains, state.gains.loses

    def share_lost(plan: Plan, over: Plan) -> float:
        rate, other = (gains.prediction(one).examples_per_second for one in (plan, over))
        return 1 - (rate or 0.0) / (other or 1.0)

    ranked = gains.ranked(state.left())
    everything = composer.everything(ranked)
    found: dict[str, str] = {}
    best: dict[str, Rewrite] = {}
    for one in ranked:
        alone, rest = composer.plan([one]), composer.without(everything, [one])
        if loses(alone, state.base) and (not rest.rewrites or loses(composer.added(rest, one), rest)):
            found[one.key] = f"predicted to lose {percent(share_lost(alone, state.base))} of the rate; it was not run"
        elif one.group:
            if one.group not in best:
                if not one.needs and _may_run(one, state):
                    best[one.group] = one
                continue
            other = composer.plan([best[one.group]])
            company = [rewrite for rewrite in ranked if rewrite.group != one.group]
            beside = [composer.everything([*plan.rewrites, *company]) for plan in (alone, other)]
            if loses(alone, other) and loses(*beside):
                if state.stays_out_of_patch(best[one.group], [one]):
                    best[one.group] = one
                    continue
                slower = share_lost(alone, other)
                found[one.key] = f"predicted {percent(slower)} slower than another of its kind; it was not run"
    return {key: why for key, why in found.items() if key not in gains.short_windows}


def _may_run(rewrite: Rewrite, state: SearchState) -> bool:
    try:
        state.meter.check(state.composer.plan([rewrite]))
    except RunFailed:
        return False
    return rewrite.key not in state.gate.blamed


def waiting(state: SearchState) -> list[Rewrite]:
    """Returns the rewrites not raced yet that may stand beside the best so far, what is expected to add most first.

    For a proven plan also those that differ by numbers only from what is in it.
    """
    composer, have = state.composer, state.before.rewrites
    numbers = [other for one in have for other in numbers_for(one, state.granted)]
    out = {*state.raced, *state.left_out, *(one.key for one in have), *not_run(state)}
    left = [one for one in (*state.usable, *numbers) if one.key not in out]
    left = [one for one in left if not composer.conflict(composer.added(state.before, one))]
    return state.gains.ranked(left, over=state.chosen)


def _fits_patch(rewrite: Rewrite, state: SearchState) -> bool:
    """Whether the source can express a rewrite, or not all of the proven plan either; what does not fit is left out."""
    if not state.stays_out_of_patch(rewrite, state.before.rewrites):
        return True
    why = "the source cannot express it, and the patch gains without it"
    state.left_out[rewrite.key] = RejectionReason.EXCLUDED, why
    return False


def is_worth_a_race(rewrite: Rewrite, state: SearchState, *, in_doubt: bool = False) -> bool:
    """Whether a gain is expected of it, and likely where a plan is proven; before the first race anything is.

    Not so where a gain is expected only of what needs consent.

    Args:
        rewrite: what would be added to the best plan so far.
        in_doubt: whether it is enough that a gain is not out of sight.
    """
    known = state.gains.added(rewrite, state.chosen)
    if state.chosen is not None:
        return known.probability >= LIKELY_ENOUGH
    if known.expected >= WORTH or not (state.races or only_offers_promise(state)):
        return True
    return in_doubt and state.gains.attainable(state.composer.plan([rewrite])).probability >= NOTHING_BELOW


def only_offers_promise(state: SearchState) -> bool:
    """Whether nothing is raced yet nor expected to gain, and far more is expected of what needs consent."""
    if state.chosen is not None or state.races or not state.offers_far_more(0.0):
        return False
    return not any(state.gains.added(one).may_gain for one in waiting(state))


def open_plans(state: SearchState) -> list[Plan]:
    """Returns the plans that may gain and that no race has decided on; they may stand in the user's script.

    Each rewrite alone of which there is a window, or a gain is predicted; what was raced; and the strongest rewrite
    with all that the model expects to add to it, of those that no race of their own has ruled out. The windows of the
    parts are none of the whole: where they show that no part gains, the model alone does not speak for it.
    """
    raced = [one for one in state.trials if one.kind == "search" and one.ratios and one.unit == state.unit]
    out = {*state.proven_alone, *state.left_out, *state.gate.blamed}

    def is_known(rewrite: Rewrite) -> bool:
        known = state.gains.added(rewrite)
        return rewrite.key in state.gains.short_windows or (known.predicted is not None and known.expected >= WORTH)

    known = [one for one in state.usable if one.key not in out and is_known(one)]
    plans = [state.composer.plan([one]) for one in known]
    ended = {trial.plan.key for trial in raced if trial.outcome not in (Outcome.UNDECIDED, Outcome.ACCEPTED)}
    left = [one for one, alone in zip(known, plans, strict=True) if alone.key not in ended]
    if ranked := state.gains.ranked(left):
        whole = state.gains.joined(ranked, ranked[0])
        parts = (state.gains.attainable(state.composer.plan([one])) for one in whole.rewrites)
        if any(one.probability >= NOTHING_BELOW for one in parts):
            plans.append(whole)
    both = {plan.key: plan for plan in (*plans, *(trial.plan for trial in raced))}
    return [plan for key, plan in both.items() if key not in ended and not any(one.key in out for one in plan.rewrites)]


# -- short windows


def screen(state: SearchState) -> bool:
    """Takes short windows of what a gain may be expected of, or nobody can tell of; returns whether any was taken.

    Each rewrite has one, added to the best plan so far. Before the first race, where nothing is expected to gain, of
    all; where one is expected to gain more than any other beyond doubt, of none. Once a window was taken, each that is
    expected to gain needs its own: where the model is wrong of one, it may be wrong of all.
    """
    left = waiting(state)
    if not state.raced and not state.gains.short_windows and _one_leads(left, state):
        return False
    new = [one for one in left if one.key not in state.gains.short_windows]
    promising = [one for one in new if state.gains.added(one, state.chosen).may_gain and _fits_patch(one, state)]
    return _screen(promising or ([] if state.gains.short_windows or state.raced else new), state)


def _one_leads(left: Sequence[Rewrite], state: SearchState) -> bool:
    """Whether what is expected to gain most does so beyond the error of what is expected of it and of the next.

    Or nothing can gain more.
    """
    if not left or left[0].needs:  # what a file takes to read the model does not know
        return False
    if state.gains.reaches_most(left[0]):
        return True
    first, *others = (state.gains.added(one) for one in left[:2])
    return (
        first.predicted is not None
        and first.worth_joining
        and all(
            first.expected - second.expected > SURE * math.hypot(first.deviation, second.deviation) for second in others
        )
    )


def screen_again(state: SearchState) -> bool:
    """Takes short windows of what else there is, once nothing is left to race; returns whether any was taken.

    First of those that had none, then once more of those whose gain is not out of sight (`MOST_WINDOWS` each at most).
    Where a plan is proven, only of those that the model cannot tell of: what is decided is over.
    """
    known = [(one, state.gains.added(one, state.chosen)) for one in waiting(state)]
    known = [(one, gain) for one, gain in known if state.chosen is None or gain.predicted is None]
    windows = {one.key: len(state.gains.short_windows.get(one.key, ())) for one, _ in known}
    new = [one for one, _ in known if not windows[one.key]]
    doubtful = [one for one, gain in known if windows[one.key] < MOST_WINDOWS and not gain.hopeless]
    return _screen(new or doubtful, state)


def _screen(rewrites: Sequence[Rewrite], state: SearchState) -> bool:
    before = len(state.trials)
    windows = _short_windows(rewrites, state)
    state.gains.spread = spread_of(state.meter.rates(state.base, "input"))
    windows += _short_windows([one.rewrite for one in windows if state.gains.surprised_by(one)], state)
    for window in windows:
        state.gains.short_windows[window.rewrite.key].append(window)
    return len(state.trials) > before


def _short_windows(rewrites: Sequence[Rewrite], state: SearchState) -> list[ShortWindow]:
    """One of each, for as long as there is time for the first look of a race too."""
    meter, over = state.meter, state.before
    windows: list[ShortWindow] = []
    beside: list[Window] = []
    for position, rewrite in enumerate(rewrites):
        kept = state.seconds(2, rounds=LOOKS[0]) + meter.cost(state.unit)
        if not state.budget.affords(state.part, kept + state.gate.cost(4 * meter.cost("input"))):
            break
        plan, began = state.composer.added(over, rewrite), meter.clock.now()
        if not state.budget.affords(state.part, kept + meter.fill_seconds(plan, base=state.base)):
            continue
        try:
            if not beside or position % BASE_EVERY == 0:
                beside = [*beside[-1:], meter.window(over, "input", part=Part.SEARCH, short=True)]
            window = meter.window(plan, "input", part=Part.SEARCH, short=True)
        except OutOfBudget:
            break
        except RunFailed as problem:
            outcome, seconds = outcome_of(problem), meter.clock.now() - began
            state.note(Trial(plan, outcome, str(problem), kind="screening", seconds=seconds))
            state.left_out[rewrite.key] = REASONS[outcome], str(problem)
            continue
        rate = window.examples_per_second / statistics.fmean(one.examples_per_second for one in beside)
        cpu = max(statistics.fmean(one.cpu_seconds_per_example for one in beside), 1e-12)
        cpu /= max(window.cpu_seconds_per_example, 1e-12)
        windows.append(ShortWindow(rewrite, over, rate, cpu))
        more, less = (percent(one - 1, sign="+") for one in (rate, 1 / cpu))
        why = f"short windows: {more} examples per second, {less} CPU seconds per example"
        state.note(Trial(plan, Outcome.SCREENED, why, kind="screening", ratios=(rate,)))
    return windows


# -- races


def next_race(state: SearchState, *, in_doubt: bool = False) -> tuple[str, list[Plan]]:
    """Returns the plans to race next against the best so far; none where no gain is expected.

    With `in_doubt` also what only might gain: while anything might, nobody can say that there is nothing to gain.

    The one rewrite more that is expected to add most and yields the same data, whose key comes with it. In the first
    race also all that is worth joining to it, and that instead where the time does not suffice to compare and to race
    both; should it not be the same data, it is the one rewrite alone at once. Where nothing else is left, AUTOTUNE
    everywhere.
    """
    first = not state.races
    worth = [one for one in waiting(state) if is_worth_a_race(one, state, in_doubt=in_doubt)]
    for strongest in _with_patch_first(worth, state):
        if not _fits_patch(strongest, state):
            continue
        single = larger = state.composer.added(state.before, strongest)
        if first:  # what must be proven by itself has no company
            others = [] if strongest.key in state.proven_alone else waiting(state)
            larger = joined([one for one in others if one.key not in state.proven_alone], strongest, state)
        if len(larger.rewrites) == 1 and state.gains.added(strongest, state.chosen).hopeless:
            continue
        if not state.budget.affords(state.part, state.gate.cost(0.0)):
            break
        state.raced[strongest.key] = None
        if larger.key != single.key and state.gate.equal(larger):
            both = state.affords_race(2, after=state.gate.cost(0.0)) and state.gate.equal(single)
            return strongest.key, [single, larger] if both else [larger]
        if state.gate.equal(single):
            return strongest.key, [single]
        state.gate.blame(strongest, single)
    return _autotune_everywhere(state)


def joined(others: Sequence[Rewrite], strongest: Rewrite, state: SearchState) -> Plan:
    """Returns `strongest` with what is worth joining to it, without what would not be in its patch."""
    plan = state.gains.joined(others, strongest)
    if out := {one.key for one in plan.rewrites if state.stays_out_of_patch(one, [strongest])}:
        return joined([one for one in others if one.key not in out], strongest, state)
    return plan


def _with_patch_first(rewrites: Sequence[Rewrite], state: SearchState) -> list[Rewrite]:
    """Returns the rewrites with the first that the source can express in front, if it gains enough.

    Without a proven plan: what is only in a plan does not help who wants to see the change in the script.
    """
    if not rewrites or state.chosen is not None or state.can_express(rewrites[0]):
        return list(rewrites)

    def gain(rewrite: Rewrite) -> float:
        return state.gains.attainable(state.composer.plan([rewrite])).expected

    least = max(WORTH, ENOUGH_FOR_A_PATCH * gain(rewrites[0]))
    near = next((one for one in rewrites[1:] if gain(one) >= least and state.can_express(one)), None)
    return [*([near] if near is not None else []), *(one for one in rewrites if one is not near)]


def _autotune_everywhere(state: SearchState) -> tuple[str, list[Plan]]:
    """All that leaves its numbers to AUTOTUNE, added to the best so far: a candidate once, whatever its parts show.

    Behind a proven plan it is one where it likely adds something.
    """
    before = state.before
    out = {*state.left_out, *state.proven_alone, *not_run(state)}
    parts = [one for one in state.usable if AUTOTUNE in values_of(one) and one.key not in out]
    grown = state.composer.everything([*before.rewrites, *parts])
    raced = state.autotune_raced or grown.key in {trial.plan.key for trial in state.trials if trial.ratios}
    if raced or len(grown.rewrites) < len(before.rewrites) + 2:
        return "", []
    state.autotune_raced = True
    known = state.gains.of(grown, before)
    unlikely = known.hopeless if state.chosen is None else known.probability < LIKELY_ENOUGH
    if unlikely or not state.gate.equal(grown):
        return "", []
    state.raced[grown.key] = None
    return grown.key, [grown]
