"""The result of a search, from all that is known at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipetune.core.results import Outcome, PredictedRate, Trial
from pipetune.core.session import NOTHING_BELOW, OptionalRewrite
from pipetune.search.baselines import DEFAULTS
from pipetune.search.known import SearchState
from pipetune.search.offers import missing_consent
from pipetune.search.rejecting import rejections
from pipetune.search.result import SearchResult
from pipetune.search.statistics import ACCEPT_ABOVE

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
    """The trial, rejected where its time was over and all that is known of the plan leaves no gain in sight."""
    if known.chosen is not None or trial.kind != "search" or trial.outcome is not Outcome.UNDECIDED or not trial.ratios:
        return trial
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
