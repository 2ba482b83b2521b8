"""What only informs, measured once the decision is made: optional rewrites, and the baselines' rates."""

from __future__ import annotations

import math
from dataclasses import replace

from pipetune.core.edits import Plan, Rewrite, SetArgument
from pipetune.core.results import Interval, Outcome, RunFailed, Trial
from pipetune.core.session import OptionalRewrite
from pipetune.core.time_plan import COMPARISON, Part
from pipetune.search.composing import structural
from pipetune.search.meter import rate_from
from pipetune.search.race import Arm, race, with_meter
from pipetune.search.state import SearchState
from pipetune.search.statistics import NOT_SLOWER, ratio_interval

FEWEST_PAIRS, MOST_PAIRS = 4, 8
FEWEST_EQUAL_PAIRS, MOST_EQUAL_PAIRS = 6, 16
BASELINE_ROUNDS = 2

_SAME = 0.1
"""The model is off by less than this on most pipelines: what it expects within it is no gain."""

_LONGER = 3.0  # times the longest comparison so far: what has to be compared differs from plan to plan, by judgement


def measure_baselines(state: SearchState) -> None:
    """Measures the rate of each baseline, in as many rounds as there is time for; one that fails is a failed trial."""
    state.notify("stage", name="baselines")
    arms = {name: Arm(plan, "input") for name, plan in state.baselines.items()}

    def time_is_up(rounds: int) -> bool:
        running = sum(arm.running for arm in arms.values())
        return not state.budget.affords(Part.INFORMATION, running * state.meter.cost("input"))

    if not time_is_up(0):
        take = with_meter(state.meter, Part.INFORMATION)
        race(list(arms.values()), None, time_is_up, take=take, draw=state.draw, rounds=BASELINE_ROUNDS)
    for name, arm in arms.items():
        if arm.failure:
            state.note(Trial(arm.plan, Outcome.FAILED, arm.failure, kind="baseline"))
        elif arm.taken:
            state.rates[name] = rate_from(arm.taken)


def missing_consent(rewrite: Rewrite, state: SearchState) -> str:
    """What to add to the command line so that `rewrite` may enter the plan: "--allow reorder,file-cache"."""
    missing = state.settings.missing(rewrite.consents, randomness_fixed=state.randomness_fixed)
    return "--allow " + ",".join(sorted(consent.value for consent in missing))


def measure_offers(state: SearchState) -> list[OptionalRewrite]:
    """Returns the rewrites not in the plan that may be worth an offer, each measured beside the plan (or the base).

    Those that the cost model expects most of come first, in pairs fixed beforehand. What changes the data is not
    offered: the gate blames it. What needs consent is measured before any of it is compared, which may take longer than
    all of its windows; what no time was left to compare is offered with these words. What need not be faster is not
    looked for where hardly anything can be gained.
    """
    state.notify("stage", name="offers")
    have = {one.key for one in state.before.rewrites}
    as_fast = [one for one in state.granted if one.equal_is_enough and one.key not in have]
    as_fast = [] if state.only_promising else [one for one in as_fast if not _overlaps(one, state.before)]
    asking = structural(state.asking)
    expected = {one.key: _expected(one, state) for one in asking}
    asking.sort(key=lambda one: -(expected[one.key] or 1.0))
    waiting = len(asking) + len(as_fast)
    measured = [
        _offer_with_consent(one, state, waiting=waiting - position, expected=expected[one.key])
        for position, one in enumerate(asking)
    ]
    offers = [_compared(one, state) for one in measured if one is not None]
    offers += [_offer_as_fast(one, state, waiting=len(as_fast) - position) for position, one in enumerate(as_fast)]
    return [offer for offer in offers if offer is not None]


def _offer_with_consent(
    rewrite: Rewrite, state: SearchState, *, waiting: int, expected: float | None
) -> OptionalRewrite | None:
    """With what it gains; where no time is left with what the model expects, if that is a gain."""
    consent, began = missing_consent(rewrite, state), state.meter.clock.now()
    pairs = affordable_pairs(state, waiting=waiting, fewest=FEWEST_PAIRS, most=MOST_PAIRS)
    if not pairs:
        gains = expected is None or expected >= 1 + _SAME
        return OptionalRewrite(rewrite, None, consent, unmeasured(expected)) if gains else None
    trial = _measure(state.composer.added(state.before, rewrite), state, pairs=pairs, fewest=FEWEST_PAIRS)
    why = f"needs {consent}; {trial.why}" if trial.why else f"needs {consent}"
    state.note(replace(trial, outcome=Outcome.REFUSED, why=why, seconds=state.meter.clock.now() - began))
    return OptionalRewrite(rewrite, trial.gain, consent, trial.why)


def _compared(offer: OptionalRewrite, state: SearchState) -> OptionalRewrite | None:
    """Returns the offer if its data keeps what it promises, with a word where there was no time to tell; else None."""
    if offer.gain is None:
        return offer
    tried = state.composer.added(state.before, offer.rewrite)
    if not _is_late(tried, state):
        if state.gate.equal(tried):
            return offer
        comparison = state.gate.comparison(tried)
        if comparison is None or not comparison.undecided:
            state.gate.blame(offer.rewrite, tried)
            return None
        state.gate.forget(tried)
    return replace(offer, why="no time was left to compare its data")


def _offer_as_fast(rewrite: Rewrite, state: SearchState, *, waiting: int) -> OptionalRewrite | None:
    """Where it is shown to lose less than `NOT_SLOWER` allows: it need not be faster."""
    began, tried = state.meter.clock.now(), state.composer.added(state.before, rewrite)
    pairs = affordable_pairs(state, waiting=waiting, fewest=FEWEST_EQUAL_PAIRS, most=MOST_EQUAL_PAIRS)
    if not pairs or _is_late(tried, state):
        return None
    if not state.gate.equal(tried):
        state.gate.blame(rewrite, tried)
        return None
    trial = _measure(tried, state, pairs=pairs, fewest=FEWEST_EQUAL_PAIRS)
    why, gain = trial.why or _judged(trial.gain), trial.gain
    state.note(replace(trial, outcome=Outcome.REJECTED, why=why, seconds=state.meter.clock.now() - began))
    return OptionalRewrite(rewrite, gain, "", why) if gain is not None and gain.low > NOT_SLOWER else None


def affordable_pairs(state: SearchState, *, waiting: int, fewest: int, most: int) -> int:
    """Pairs for the next of `waiting` rewrites that share the time left, `fewest` at least; 0 where they do not fit."""
    left, each = state.budget.left(Part.INFORMATION), state.seconds(2, rounds=1)
    return max(fewest, min(most, int(left / waiting / each))) if left >= fewest * each else 0


def _measure(tried: Plan, state: SearchState, *, pairs: int, fewest: int) -> Trial:
    """A trial with the ratios of `tried`, and why there are none or too few."""
    arm, base, why = Arm(tried, state.unit), Arm(state.before, state.unit), ""
    try:
        state.meter.check(tried)
        take = with_meter(state.meter, Part.INFORMATION)
        if race([arm], base, take=take, draw=state.draw, rounds=pairs) and arm.rounds < fewest:
            why = "the time ended before it was measured"
    except RunFailed as problem:
        why = str(problem)
    ratios, why = arm.ratios(base), why or arm.failure
    gain = ratio_interval(ratios) if not why and len(ratios) >= 2 else None
    return Trial(tried, Outcome.UNDECIDED, why, gain=gain, unit=state.unit, ratios=ratios)


def _is_late(tried: Plan, state: SearchState) -> bool:
    """Whether there is no time to compare a plan that was not compared yet."""
    usual = state.budget.usual_seconds(COMPARISON)
    longest = min(usual, _LONGER * state.gate.cost(usual))
    return state.gate.comparison(tried) is None and not state.budget.affords(Part.INFORMATION, longest)


def _judged(gain: Interval | None) -> str:
    if gain is None:
        return "it was not measured often enough"
    if gain.low > NOT_SLOWER:
        return f"not slower, and not proven faster: offered, for it is as fast without AUTOTUNE ({gain.pairs} pairs)"
    return f"not shown to lose less than {1 - NOT_SLOWER:.0%}, after {gain.pairs} pairs"


def _overlaps(rewrite: Rewrite, plan: Plan) -> bool:
    """Whether the plan itself says a number that the rewrite would write."""
    set_by_plan = {(edit.node, edit.name) for edit in plan.edits if isinstance(edit, SetArgument)}
    return any(isinstance(edit, SetArgument) and (edit.node, edit.name) in set_by_plan for edit in rewrite.edits)


def _expected(rewrite: Rewrite, state: SearchState) -> float | None:
    """What the input's rate would become, over that of the plan, by the cost model; None where it cannot tell."""
    predicted = state.gains.prior(state.composer.added(state.before, rewrite), state.before).predicted
    return None if predicted is None else math.exp(predicted)


def unmeasured(expected: float | None) -> str:
    """Why an offer has no number, and the ratio that the cost model expects in three figures: 1.24x, 41x, 1,280x."""
    why = "no time was left to measure it"
    if expected is None:
        return why
    times = f"{expected:.2f}x" if expected < 10 else f"{float(f'{expected:.3g}'):,g}x"
    return f"{why}; the cost model expects the input alone to run {times} as fast"
