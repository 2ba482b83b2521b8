"""The result of a search, from all that is known at its end: with a reason for each rewrite that is not in the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from statistics import geometric_mean

from pipetune.core.edits import Rewrite
from pipetune.core.results import Outcome, PredictedRate, Trial
from pipetune.core.session import NOTHING_BELOW, OptionalRewrite, Rejection, RejectionReason
from pipetune.search.baselines import DEFAULTS
from pipetune.search.candidates import REASONS
from pipetune.search.composing import group_of, shape_of
from pipetune.search.offers import missing_consent
from pipetune.search.result import SearchResult
from pipetune.search.state import SearchState
from pipetune.search.statistics import ACCEPT_ABOVE, LOOKS


def rejections(known: SearchState, trials: Sequence[Trial], *, offered: Collection[str]) -> tuple[Rejection, ...]:
    """One entry for each rewrite that is neither in the plan nor offered, with the strongest reason there is.

    Args:
        known: all that the search knows at its end.
        trials: of the search, settled.
        offered: keys of the rewrites that are offered.
    """
    plan, tried, composer = known.chosen, known.tried, known.kit.composer
    at_bound = known.at_bound(plan)
    over = "the search ended" if known.ended_early else "the time was up"
    elsewhere = {**tried.unpromising, **tried.broken, **known.left_inside, **known.kit.gate.blamed}
    out_of_sight = set() if plan else set(_out_of_sight(known))
    decided = {one.plan.rewrites[0].key: one for one in trials if _decides(one)}
    for key, trial in tried.raced.items():
        if trial is not None and (trial.ratios or trial.outcome is not Outcome.UNDECIDED):
            decided[key] = _settled(known, trial)
    waiting = {one.key for one in tried.waiting(plan) if tried.is_worth_a_race(one, plan)} | set(tried.raced)
    skipped = tried.not_run()
    asking = {one.key: missing_consent(one, known.settings) for one in known.asking}
    shapes_offered = {shape_of(one) for one in known.asking if one.key in offered}
    shapes_tried = {shape_of(one) for one in tried.usable}
    left = {one.key for one in tried.left()}
    kept = plan.rewrites if plan else ()
    groups, shapes = {group_of(one) for one in kept}, {shape_of(one) for one in kept}

    def why_not(rewrite: Rewrite) -> tuple[RejectionReason, str]:
        key = rewrite.key
        if key in elsewhere:
            return elsewhere[key]
        if key in known.added:
            return RejectionReason.ADDS_NOTHING, "adds nothing to the plan"
        if key in out_of_sight and (key not in decided or decided[key].outcome is Outcome.UNDECIDED):
            return RejectionReason.NOT_EXPECTED, f"a gain of {ACCEPT_ABOVE - 1:.0%} is out of sight{_seen(known, key)}"
        if key in decided:
            trial = decided[key]
            longest = trial.outcome is Outcome.UNDECIDED and len(trial.ratios) >= LOOKS[-1]  # more time is no remedy
            return RejectionReason.NOT_FASTER if longest else REASONS[trial.outcome], trial.why
        if key in skipped:
            return RejectionReason.PREDICTED_SLOWER, skipped[key]
        if key in asking:
            other = "another of its kind is offered" if shape_of(rewrite) in shapes_offered else "no gain is expected"
            return RejectionReason.NEEDS_CONSENT, f"needs {asking[key]}; {other}"
        if group_of(rewrite) in groups or shape_of(rewrite) in shapes:
            return RejectionReason.OTHER_KIND, "another of its kind is in the plan"
        conflict = composer.conflict(composer.added(plan, rewrite)) if plan else ""
        if conflict:
            return RejectionReason.EXCLUDED, f"must not stand beside what is in the plan: {conflict}"
        if at_bound and (key in waiting or key in left):
            return RejectionReason.NOT_EXPECTED, "with the plan, training hardly waits for the input"
        if key in waiting:
            return RejectionReason.NO_TIME, f"{over} before it was measured in pairs{_seen(known, key)}"
        if key in left and (key in known.gains.shown or known.gains.added(rewrite).predicted is not None):
            return RejectionReason.NOT_EXPECTED, f"not expected to gain {ACCEPT_ABOVE - 1:.0%}{_seen(known, key)}"
        if key not in left and shape_of(rewrite) in shapes_tried:
            return (
                RejectionReason.OTHER_KIND,
                "other numbers are tried only where the rewrite is in a plan proven faster",
            )
        return RejectionReason.NO_TIME, f"{over} before it was tried"

    found = []
    for rewrite in known.candidates:
        if rewrite.key in offered or rewrite in kept:
            continue
        reason, why = why_not(rewrite)
        trial = decided.get(rewrite.key)
        gain = known.added.get(rewrite.key) or (trial.gain if trial else None)
        found.append(Rejection(rewrite.rule, rewrite.node, why, gain, reason))
    return tuple(found)


def _seen(known: SearchState, key: str) -> str:
    shown = known.gains.shown.get(key)
    return f"; alone, short windows showed {_words(geometric_mean(one.rate for one in shown))}" if shown else ""


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
    not_run = known.tried.not_run()
    skipped = [
        Trial(known.kit.composer.plan([one]), Outcome.SKIPPED, not_run[one.key], kind="screening")
        for one in known.tried.usable
        if one.key in not_run
    ]
    known.kit.tell(skipped)
    trials = [
        _beside_prediction(known, _settled(known, trial)) for trial in (*known.trials, *skipped, *known.kit.gate.trials)
    ]
    units = {"input", known.kit.unit, *(("training",) if known.chosen and known.chosen.only_training else ())}
    left_out = rejections(known, trials, offered={offer.rewrite.key for offer in offers})
    too_small = known.chosen is None and any(one.undecided for one in left_out)
    return SearchResult(
        chosen=known.chosen,
        candidate=known.candidate,
        why=why or _ending(known, too_small=too_small),
        trials=tuple(trials),
        gain=known.accepted.gain if known.accepted else None,
        gains=known.added,
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
    if any(one.key in known.tried.proven_alone for one in trial.plan.rewrites):
        return replace(trial, outcome=Outcome.REJECTED, why="not proven better than what AUTOTUNE chooses")
    if known.gains.told(trial.plan).probability >= NOTHING_BELOW:
        return trial
    return replace(trial, outcome=Outcome.REJECTED, why=f"a gain of {ACCEPT_ABOVE - 1:.0%} is out of sight")


def _out_of_sight(known: SearchState) -> Iterator[str]:
    """Yields the keys of rewrites that have too small a chance of a gain, from all that is known of them."""
    for plan in known.open_plans():
        if len(plan.rewrites) == 1 and known.gains.told(plan).probability < NOTHING_BELOW:
            yield plan.rewrites[0].key


def _beside_prediction(known: SearchState, trial: Trial) -> Trial:
    predicted, measured = known.gains.forecast.rate(trial.plan), known.kit.meter.median_rate(trial.plan, "input")
    return replace(trial, predicted=predicted, measured=measured)


def _predictions(known: SearchState, trials: Sequence[Trial]) -> tuple[PredictedRate, ...]:
    """Every plan once that was tried or run, the baselines first."""
    plans = {plan.key: plan for plan in (*known.baselines.values(), *(trial.plan for trial in trials))}
    return tuple(
        PredictedRate(
            plan=key,
            name=_in_words(key),
            predicted=known.gains.forecast.rate(plan),
            measured=known.kit.meter.median_rate(plan, "input"),
            why=known.gains.forecast.of(plan).why,
        )
        for key, plan in plans.items()
    )


def _in_words(key: str) -> str:
    """A plan's key as a reader knows it: the rules in it, or what the report calls the baseline."""
    rules = dict.fromkeys(part.partition("@")[0].removeprefix("baseline-") for part in key.split("+"))
    return " + ".join(_BASELINES.get(rule, rule) for rule in rules)
