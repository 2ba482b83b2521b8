"""The result of a search, from all that is known at its end: with a reason for each rewrite that is not in the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, Outcome, PredictedRate, Trial
from pipetune.core.session import NOTHING_BELOW, OptionalRewrite, Rejection, RejectionReason
from pipetune.search.baselines import DEFAULTS
from pipetune.search.composing import group_of, shape_of
from pipetune.search.finalists import Finalists
from pipetune.search.known import SearchState
from pipetune.search.offers import missing_consent
from pipetune.search.result import SearchResult
from pipetune.search.statistics import ACCEPT_ABOVE, LOOKS

REASONS: Mapping[Outcome, RejectionReason] = {
    Outcome.FAILED: RejectionReason.FAILED,
    Outcome.REFUSED: RejectionReason.REFUSED,
    Outcome.SKIPPED: RejectionReason.PREDICTED_SLOWER,
    Outcome.REJECTED: RejectionReason.NOT_FASTER,
    Outcome.UNDECIDED: RejectionReason.UNDECIDED,
    Outcome.ACCEPTED: RejectionReason.ADDS_NOTHING,  # faster than what the plan was then, and not in what it is now
}


def rejections(
    left_out: Sequence[Rewrite],
    plan: Plan | None,
    trials: Sequence[Trial],
    *,
    finalists: Finalists,
    raced: Mapping[str, Trial | None],
    known: Mapping[str, tuple[RejectionReason, str]],
    gains: Mapping[str, Interval],
    asking: Mapping[str, str],
    gains_out_of_sight: Collection[str] = (),
    over: str = "the time was up",
) -> tuple[Rejection, ...]:
    """One entry for each rewrite left out, with the strongest reason there is.

    Args:
        plan: what was chosen.
        raced: rewrite key to the trial of its race; None where it was not begun.
        known: rewrite key to a reason found elsewhere: it changes the data, or gains nothing inside the step.
        gains: rewrite key to what it added to the plan, of those dropped by ablation.
        asking: rewrite key to the consent it needs, of those that are not offered themselves.
        gains_out_of_sight: keys of rewrites of which model and windows say that a gain is out of sight.
        over: why what was not tried was not, in words.
    """
    decided = {one.plan.rewrites[0].key: one for one in trials if _decides(one)}
    for key, trial in raced.items():
        if trial is not None and (trial.ratios or trial.outcome is not Outcome.UNDECIDED):
            decided[key] = trial
    waiting = {rewrite.key for rewrite in finalists.waiting(plan)} | set(finalists.raced)
    left = {one.key for one in finalists.rewrites}
    tried = {shape_of(one) for one in finalists.rewrites}
    groups = {group_of(one) for one in plan.rewrites} if plan else set()
    shapes = {shape_of(one) for one in plan.rewrites} if plan else set()

    def why_not(rewrite: Rewrite) -> tuple[RejectionReason, str]:
        key = rewrite.key
        if key in known:
            return known[key]
        if key in gains:
            return RejectionReason.ADDS_NOTHING, "adds nothing to the plan"
        if key in gains_out_of_sight and (key not in decided or decided[key].outcome is Outcome.UNDECIDED):
            return RejectionReason.NOT_EXPECTED, f"a gain of {ACCEPT_ABOVE - 1:.0%} is out of sight{_seen(key)}"
        if key in decided:
            trial = decided[key]
            longest = trial.outcome is Outcome.UNDECIDED and len(trial.ratios) >= LOOKS[-1]  # more time is no remedy
            return RejectionReason.NOT_FASTER if longest else REASONS[trial.outcome], trial.why
        if key in asking:
            return RejectionReason.NEEDS_CONSENT, f"needs {asking[key]}; another of its kind is offered"
        if group_of(rewrite) in groups or shape_of(rewrite) in shapes:
            return RejectionReason.OTHER_KIND, "another of its kind is in the plan"
        conflict = finalists.kit.composer.conflict(finalists.kit.composer.added(plan, rewrite)) if plan else ""
        if conflict:
            return RejectionReason.EXCLUDED, f"must not stand beside what is in the plan: {conflict}"
        if key in waiting:
            return RejectionReason.NO_TIME, f"{over} before it was measured in pairs{_seen(key)}"
        if key in left and not _unknown(rewrite):
            return RejectionReason.NOT_EXPECTED, f"not expected to gain {ACCEPT_ABOVE - 1:.0%}{_seen(key)}"
        if key not in left and shape_of(rewrite) in tried:
            return (
                RejectionReason.OTHER_KIND,
                "other numbers are tried only where the rewrite is in a plan proven faster",
            )
        return RejectionReason.NO_TIME, f"{over} before it was tried"

    def _unknown(rewrite: Rewrite) -> bool:
        """Whether neither the model nor a window says what it gains."""
        expectation = finalists.expectation
        return rewrite.key not in expectation.screened and expectation.of(rewrite).predicted is None

    def _seen(key: str) -> str:
        screened = finalists.expectation.screened.get(key)
        return (
            f"; alone, short windows showed {_words(geometric_mean(one.rate for one in screened))}" if screened else ""
        )

    found = []
    for rewrite in left_out:
        reason, why = why_not(rewrite)
        trial = decided.get(rewrite.key)
        gain = gains.get(rewrite.key) or (trial.gain if trial else None)
        found.append(Rejection(rewrite.rule, rewrite.node, why, gain, reason))
    return tuple(found)


def _decides(trial: Trial) -> bool:
    """Whether it is about one rewrite alone, and decided something."""
    return len(trial.plan.rewrites) == 1 and trial.outcome is not Outcome.SCREENED and trial.kind != "ablation"


def _words(rate: float) -> str:
    change = rate - 1
    return f"{change:+.0%}" if abs(change) >= 0.005 else "no difference"


MOST = 0.95
"""The share of the final rate whose time is told: what comes later is fine work."""

_BASELINES = {DEFAULTS: "the pipeline as written", "autotune": "AUTOTUNE everywhere", "off": "optimisations off"}


def _ending(known: SearchState, *, too_small: bool) -> str:
    """One sentence: how the search ended."""
    if known.chosen:
        return "A plan was proven faster than the pipeline as written."
    if not known.granted and not known.inside:
        return "No rewrite is legal here without consent."
    if known.candidate is not None:
        return f"Nothing was proven within the {known.kit.meter.budget.seconds:.0f} s of the budget."
    if too_small:
        return f"Nothing was decided within the {known.kit.meter.budget.seconds:.0f} s of the budget."
    return "No plan was proven faster than the pipeline as written."


def _restless(known: SearchState) -> list[str]:
    plans = list(dict.fromkeys(_in_words(key) for key in known.kit.meter.restless))
    if not plans:
        return []
    return [f"Not converged: AUTOTUNE's numbers never stood still under {', '.join(plans)}."]


def summed_up(known: SearchState, *, offers: Sequence[OptionalRewrite] = (), why: str = "") -> SearchResult:
    """Everything that is known, as the value that leaves the search; `why`: what ended it, where something did."""
    meter = known.kit.meter
    trials = [_beside_prediction(known, _settled(known, trial)) for trial in (*known.trials, *known.kit.gate.trials)]
    kept = {rewrite.key for rewrite in known.chosen.rewrites} if known.chosen else set()
    kept |= {offer.rewrite.key for offer in offers}
    units = {"input", known.kit.unit, *(("training",) if known.chosen and known.chosen.only_training else ())}
    left_out = rejections(
        [rewrite for rewrite in known.candidates if rewrite.key not in kept],
        known.chosen,
        trials,
        finalists=known.finalists,
        raced={key: trial and _settled(known, trial) for key, trial in known.finalists.raced.items()},
        known={**known.finalists.unpromising, **known.left_inside, **known.kit.gate.blamed},
        gains=known.gains,
        asking={rewrite.key: missing_consent(rewrite, known.settings) for rewrite in known.asking},
        gains_out_of_sight=frozenset() if known.chosen else frozenset(_out_of_sight(known)),
        over="the search ended" if known.ended_early else "the time was up",
    )
    too_small = known.chosen is None and any(one.undecided for one in left_out)
    return SearchResult(
        chosen=known.chosen,
        candidate=known.candidate,
        why=why or _ending(known, too_small=too_small),
        trials=tuple(trials),
        gain=known.accepted.gain if known.accepted else None,
        gains=known.gains,
        offers=tuple(offers),
        rejections=left_out,
        rates=known.rates,
        comparison=known.kit.gate.comparison(known.chosen) if known.chosen else None,
        unit=known.kit.unit,
        window_seconds=meter.window_seconds,
        warmup_seconds=meter.warmup_seconds,
        steps=meter.steps if "training" in units else 0,
        window_costs={unit: meter.cost(unit) for unit in units},
        budget_too_small=too_small,
        restless=tuple(meter.restless),
        notes=(*known.notes, *_restless(known)),
        predictions=_predictions(known, trials),
        seconds_to_most=meter.first_reached(known.chosen, known.kit.unit, share=MOST) if known.chosen else None,
    )


def _settled(known: SearchState, trial: Trial) -> Trial:
    """The trial, rejected where its time was over and all that is known of the plan leaves no gain in sight.

    So is a number in place of AUTOTUNE, which is worth nothing to anybody unless it is proven.
    """
    if known.chosen is not None or trial.kind != "search" or trial.outcome is not Outcome.UNDECIDED or not trial.ratios:
        return trial
    if any(one.key in known.finalists.proven_alone for one in trial.plan.rewrites):
        return replace(trial, outcome=Outcome.REJECTED, why="not proven better than what AUTOTUNE chooses")
    if known.evidence(trial.plan).probability >= NOTHING_BELOW:
        return trial
    return replace(trial, outcome=Outcome.REJECTED, why=f"a gain of {ACCEPT_ABOVE - 1:.0%} is out of sight")


def _out_of_sight(known: SearchState) -> Iterator[str]:
    """Yields the keys of rewrites that have too small a chance of a gain, from all that is known of them."""
    for plan in known.open_plans():
        if len(plan.rewrites) == 1 and known.evidence(plan).probability < NOTHING_BELOW:
            yield plan.rewrites[0].key


def _beside_prediction(known: SearchState, trial: Trial) -> Trial:
    predicted, measured = known.forecast.rate(trial.plan), known.kit.meter.median_rate(trial.plan, "input")
    return replace(trial, predicted=predicted, measured=measured)


def _predictions(known: SearchState, trials: Sequence[Trial]) -> tuple[PredictedRate, ...]:
    """Every plan once that was tried or run, the baselines first."""
    plans = {plan.key: plan for plan in (*known.baselines.values(), *(trial.plan for trial in trials))}
    return tuple(
        PredictedRate(
            plan=key,
            name=_in_words(key),
            predicted=known.forecast.rate(plan),
            measured=known.kit.meter.median_rate(plan, "input"),
            why=known.forecast.of(plan).why,
        )
        for key, plan in plans.items()
    )


def _in_words(key: str) -> str:
    """A plan's key as a reader knows it: the rules in it, or what the report calls the baseline."""
    rules = dict.fromkeys(part.partition("@")[0].removeprefix("baseline-") for part in key.split("+"))
    return " + ".join(_BASELINES.get(rule, rule) for rule in rules)
