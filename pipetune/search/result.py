"""The result of a search, from all that is known at its end, with a reason for each rewrite that is not in the plan;
and what only informs, measured once the decision is made: optional rewrites, and the baselines' rates."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import Interval, Rate, RunFailed, percent
from pipetune.core.results import Comparison, Outcome, PredictedRate, RejectionReason, Trial
from pipetune.core.session import NOTHING_BELOW, Candidate, OptionalRewrite, Rejection
from pipetune.core.time_plan import COMPARISON, Part
from pipetune.search.candidates import is_worth_a_race, not_run, open_plans, waiting
from pipetune.search.composing import group_of, shape_of, structural
from pipetune.search.meter import outcome_of, rate_from
from pipetune.search.race import Arm, race, with_meter
from pipetune.search.runner import DEFAULTS
from pipetune.search.state import REASONS, SearchState
from pipetune.search.statistics import ACCEPT_ABOVE, LOOKS, ratio_interval

FEWEST_PAIRS, MOST_PAIRS = 4, 8
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
    """Returns the rewrites not in the plan that may be worth an offer, each measured beside the pipeline as written.

    Beside a proven plan, none is measured. Those that the cost model expects most of come first, in pairs fixed
    beforehand. What changes the data is not offered: the gate blames it. What needs consent is measured before any of
    it is compared, which may take longer than all of its windows; what no time was left to compare is offered with
    these words.
    """
    state.notify("stage", name="offers")
    asking = structural(state.asking)
    expected = {one.key: _expected(one, state) for one in asking}
    asking.sort(key=lambda one: -(expected[one.key] or 1.0))
    measured = [
        _offer_with_consent(one, state, waiting=len(asking) - position, expected=expected[one.key])
        for position, one in enumerate(asking)
    ]
    offers = [_compared(one, state) for one in measured if one is not None]
    return [_with_form(offer, state) for offer in offers if offer is not None]


def _with_form(offer: OptionalRewrite, state: SearchState) -> OptionalRewrite:
    """Returns the offer, with a word where approval would bring a plan and no patch."""
    if state.can_express(offer.rewrite):
        return offer
    return replace(offer, why="; ".join(filter(None, [offer.why, "the source cannot express it, so it has no patch"])))


def _offer_with_consent(
    rewrite: Rewrite, state: SearchState, *, waiting: int, expected: float | None
) -> OptionalRewrite | None:
    """With what it gains; where no time is left with what the model expects, if that is a gain that training has.

    To give up an order for what a cache of the plan stores already is no such gain.
    """
    consent, began = missing_consent(rewrite, state), state.meter.clock.now()
    pairs = affordable_pairs(state, waiting=waiting, fewest=FEWEST_PAIRS, most=MOST_PAIRS)
    if not pairs:
        gains = (expected is None or expected >= 1 + _SAME) and not state.at_bound(state.chosen)
        gains = gains and not state.stores_no_more_work(rewrite, state.before)
        return OptionalRewrite(rewrite, None, consent, unmeasured(expected, plan=state.chosen)) if gains else None
    trial = _measure(state.composer.added(state.before, rewrite), state, pairs=pairs, fewest=FEWEST_PAIRS)
    if trial.outcome is not Outcome.UNDECIDED:  # it cannot run: no approval would help
        state.note(trial)
        state.left_out[rewrite.key] = REASONS[trial.outcome], trial.why
        return None
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


def affordable_pairs(state: SearchState, *, waiting: int, fewest: int, most: int) -> int:
    """Pairs for the next of `waiting` rewrites that share the time left, `fewest` at least; 0 where they do not fit."""
    left, each = state.budget.left(Part.INFORMATION), state.seconds(2, rounds=1)
    return max(fewest, min(most, int(left / waiting / each))) if left >= fewest * each else 0


def _measure(tried: Plan, state: SearchState, *, pairs: int, fewest: int) -> Trial:
    """A trial with the ratios of `tried`, undecided if it can run, and why there are none or too few."""
    arm, base, why = Arm(tried, state.unit), Arm(state.before, state.unit), ""
    try:
        state.meter.check(tried)
        take = with_meter(state.meter, Part.INFORMATION)
        if race([arm], base, take=take, draw=state.draw, rounds=pairs) and arm.rounds < fewest:
            why = "the time ended before it was measured"
    except RunFailed as problem:
        arm.end(outcome_of(problem), str(problem))
    ratios, why = arm.ratios(base), why or arm.failure
    gain = ratio_interval(ratios) if not why and len(ratios) >= 2 else None
    return Trial(tried, arm.outcome or Outcome.UNDECIDED, why, gain=gain, unit=state.unit, ratios=ratios)


def _is_late(tried: Plan, state: SearchState) -> bool:
    """Whether there is no time to compare a plan that was not compared yet."""
    usual = state.budget.usual_seconds(COMPARISON)
    longest = min(usual, _LONGER * state.gate.cost(usual))
    return state.gate.comparison(tried) is None and not state.budget.affords(Part.INFORMATION, longest)


def _expected(rewrite: Rewrite, state: SearchState) -> float | None:
    """What the input's rate would become, over that of the plan, by the cost model; None where it cannot tell."""
    predicted = state.gains.prior(state.composer.added(state.before, rewrite), state.before).predicted
    return None if predicted is None else math.exp(predicted)


def unmeasured(expected: float | None, *, plan: Plan | None = None) -> str:
    """Why an offer has no number, and the ratio that the cost model expects in three figures: 1.24x, 41x, 1,280x.

    Beside a proven plan nothing is measured that would delay its patch.
    """
    why = "no time was left to measure it" if plan is None else "not measured, as the proven plan comes first"
    if expected is None:
        return why
    times = f"{expected:.2f}x" if expected < 10 else f"{float(f'{expected:.3g}'):,g}x"
    return f"{why}; the cost model expects the input alone to run {times} as fast"


_BASELINES = {DEFAULTS: "current", "autotune": "AUTOTUNE everywhere", "off": "optimizations off"}
_OUT_OF_SIGHT = f"a gain of {percent(ACCEPT_ABOVE - 1)} is out of sight"


@dataclass(frozen=True)
class SearchResult:
    """The chosen plan, if any was proven, and everything tried on the way.

    `chosen` is proven faster than the pipeline as written and proven equal, but its numbers took part in
    choosing it: only `confirm` gives numbers to show.
    """

    chosen: Plan | None
    candidate: Candidate | None = None  # where nothing is proven: what is most probably faster
    why: str = ""  # one sentence: how the search ended
    trials: tuple[Trial, ...] = ()
    gain: Interval | None = None  # of the plan over defaults, as it was accepted
    gains: dict[str, Interval] = field(default_factory=dict)  # per rewrite key, by ablation
    offers: tuple[OptionalRewrite, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    rates: dict[str, Rate] = field(default_factory=dict)  # per baseline
    comparison: Comparison | None = None  # of the chosen plan
    unit: str = "input"  # what decided: "input" or "training"
    budget_too_small: bool = False  # a decision was not reached for want of time
    notes: tuple[str, ...] = ()
    predictions: tuple[PredictedRate, ...] = ()  # of the baselines and every plan tried


def build_result(state: SearchState, *, offers: Sequence[OptionalRewrite] = (), why: str = "") -> SearchResult:
    """Returns everything that is known, as the value that leaves the search.

    Args:
        offers: rewrites that are offered beside the plan.
        why: what ended the search, where something did; otherwise it is said from what is known.
    """
    skipped = not_run(state)
    unrun = [(state.composer.plan([one]), skipped[one.key]) for one in state.usable if one.key in skipped]
    state.note(*(Trial(plan, Outcome.SKIPPED, reason, kind="screening") for plan, reason in unrun))
    settled = [_settled(state, trial) for trial in (*state.trials, *state.gate.trials)]
    plans = {plan.key: plan for plan in (*state.baselines.values(), *(trial.plan for trial in settled))}
    predictions = {key: _prediction(state, plan) for key, plan in plans.items()}
    trials = []
    for trial in settled:
        known = predictions[trial.plan.key]
        trials.append(replace(trial, predicted=known.predicted, measured=known.measured))
    left_out = _rejections(state, trials, offered={offer.rewrite.key for offer in offers})
    too_small = state.chosen is None and any(one.undecided for one in left_out)
    if state.meter.misses_pauses and (pause := state.runner.pause):
        state.notes.append(
            f"The input pauses for {pause}. Windows of {state.meter.steps} training steps do not reach the next pause: "
            "they do not show what shortens it."
        )
    not_converged = dict.fromkeys(map(name_of, state.meter.not_converged))
    if not_converged:
        state.notes.append(f"Not converged: AUTOTUNE's numbers never stood still under {', '.join(not_converged)}.")
    return SearchResult(
        chosen=state.chosen,
        candidate=state.candidate,
        why=why or _ending(state, too_small=too_small),
        trials=tuple(trials),
        gain=state.accepted.gain if state.accepted else None,
        gains=state.added,
        offers=tuple(offers),
        rejections=left_out,
        rates=state.rates,
        comparison=state.gate.comparison(state.chosen) if state.chosen else None,
        unit=state.unit,
        budget_too_small=too_small,
        notes=tuple(state.notes),
        predictions=tuple(predictions.values()),
    )


def _prediction(state: SearchState, plan: Plan) -> PredictedRate:
    """The rate that is predicted of the input alone, and the median of its windows."""
    known = state.gains.prediction(plan)
    measured = state.meter.median_rate(plan, "input")
    return PredictedRate(plan.key, name_of(plan.key), known.examples_per_second, measured, known.why)


def _ending(state: SearchState, *, too_small: bool) -> str:
    """One sentence: how the search ended."""
    if state.chosen:
        return "A plan was proven faster than the current pipeline."
    if not state.granted and not state.inside:
        return "No rewrite is legal here without consent."
    if state.candidate is not None or too_small:
        decided = "proven" if state.candidate is not None else "decided"
        return f"Nothing was {decided} within the {state.budget.seconds:.0f} s of the budget."
    return "No plan was proven faster than the current pipeline."


def _settled(state: SearchState, trial: Trial) -> Trial:
    """The trial, rejected where its time was over and all that is known of the plan leaves no gain in sight.

    So is a number in place of AUTOTUNE, which is worth nothing to anybody unless it is proven. What is not faster in
    windows that miss the pauses of the input is undecided.
    """
    if state.chosen is None and state.meter.misses_pauses and trial.kind == "search" and trial.ratios:
        why = "not faster between two pauses of the input; windows that contain one do not fit into the time"
        return replace(trial, outcome=Outcome.UNDECIDED, why=why)
    if state.chosen is not None or trial.kind != "search" or trial.outcome is not Outcome.UNDECIDED or not trial.ratios:
        return trial
    if any(one.key in state.proven_alone for one in trial.plan.rewrites):
        return replace(trial, outcome=Outcome.REJECTED, why="not proven better than what AUTOTUNE chooses")
    if state.gains.attainable(trial.plan).probability >= NOTHING_BELOW:
        return trial
    return replace(trial, outcome=Outcome.REJECTED, why=_OUT_OF_SIGHT)


def _rejections(state: SearchState, trials: Sequence[Trial], *, offered: Collection[str]) -> tuple[Rejection, ...]:
    """One entry for each rewrite that is neither in the plan nor offered, with the strongest reason there is."""
    plan, composer, gains = state.chosen, state.composer, state.gains
    kept = state.before.rewrites
    at_bound = state.at_bound(plan)
    over = "the search ended" if state.failure else "the time was up"
    elsewhere = {**state.left_out, **state.left_inside, **state.gate.blamed}
    no_gain = {
        one.rewrites[0].key
        for one in ([] if plan else open_plans(state))
        if len(one.rewrites) == 1 and gains.attainable(one).probability < NOTHING_BELOW
    }
    single = (one for one in trials if len(one.plan.rewrites) == 1 and one.kind != "ablation")
    decided = {one.plan.rewrites[0].key: one for one in single if one.outcome is not Outcome.SCREENED}
    for key, raced in state.raced.items():
        if raced is not None and (raced.ratios or raced.outcome is not Outcome.UNDECIDED):
            decided[key] = _settled(state, raced)
    hopeful = (one for one in waiting(state) if not gains.added(one, plan).hopeless)
    still = {one.key for one in hopeful if is_worth_a_race(one, state)} | set(state.raced)
    left = {one.key for one in state.left()}
    skipped = not_run(state)
    asking = {one.key: missing_consent(one, state) for one in state.asking}
    shapes_offered = {shape_of(one) for one in state.asking if one.key in offered}
    shapes_tried = {shape_of(one) for one in structural(state.granted)}  # or ruled out, and numbers with them
    groups, shapes = {group_of(one) for one in kept}, {shape_of(one) for one in kept}

    def why_not(rewrite: Rewrite) -> tuple[RejectionReason, str]:
        key, trial = rewrite.key, decided.get(rewrite.key)
        windows = gains.short_windows.get(key)
        change = _change(geometric_mean(one.rate for one in windows)) if windows else ""
        seen = f"; alone, short windows showed {change}" if windows else ""
        if key in elsewhere:
            return elsewhere[key]
        if key in state.added:
            return RejectionReason.ADDS_NOTHING, "adds nothing to the plan"
        if key in no_gain and (trial is None or trial.outcome is Outcome.UNDECIDED):
            return RejectionReason.NOT_EXPECTED, f"{_OUT_OF_SIGHT}{seen}"
        if trial is not None:
            longest = trial.outcome is Outcome.UNDECIDED and len(trial.ratios) >= LOOKS[-1]  # more time is no remedy
            return RejectionReason.NOT_FASTER if longest else REASONS[trial.outcome], trial.why
        if key in skipped:
            return RejectionReason.PREDICTED_SLOWER, skipped[key]
        if key in asking and group_of(rewrite) not in groups:
            other = "another of its kind is offered" if shape_of(rewrite) in shapes_offered else "no gain is expected"
            return RejectionReason.NEEDS_CONSENT, f"needs {asking[key]}; {other}"
        if group_of(rewrite) in groups or shape_of(rewrite) in shapes:
            return RejectionReason.OTHER_KIND, "another of its kind is in the plan"
        if plan and (conflict := composer.conflict(composer.added(plan, rewrite))):
            return RejectionReason.EXCLUDED, f"excludes what is in the plan: {conflict}"
        if at_bound and (key in still or key in left):
            return RejectionReason.NOT_EXPECTED, "with the plan, training hardly waits for the input"
        if key in still:
            return RejectionReason.NO_TIME, f"{over} before it was measured in pairs{seen}"
        if key in left and (windows or gains.added(rewrite).predicted is not None):
            return RejectionReason.NOT_EXPECTED, f"not expected to gain {percent(ACCEPT_ABOVE - 1)}{seen}"
        if key not in left and shape_of(rewrite) in shapes_tried:
            why = "other numbers are tried only where the rewrite is in a plan proven faster"
            return RejectionReason.OTHER_KIND, why
        return RejectionReason.NO_TIME, f"{over} before it was tried"

    found = []
    for rewrite in state.candidates:
        if rewrite.key in offered or rewrite in kept:
            continue
        reason, why = why_not(rewrite)
        trial = decided.get(rewrite.key)
        gain = state.added.get(rewrite.key) or (trial.gain if trial else None)
        found.append(Rejection(rewrite.rule, rewrite.node, why, gain, reason))
    return tuple(found)


def _change(rate: float) -> str:
    return percent(rate - 1, sign="+") if abs(rate - 1) >= 0.005 else "no difference"


def name_of(key: str) -> str:
    """Returns a plan's key as a reader knows it: the rules in it, or what the report calls the baseline."""
    rules = dict.fromkeys(part.partition("@")[0].removeprefix("baseline-") for part in key.split("+"))
    return " + ".join(_BASELINES.get(rule, rule) for rule in rules)
