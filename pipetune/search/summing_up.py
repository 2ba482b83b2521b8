"""The result of a search, from all that is known at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipetune.core.measurement import Interval, Trial
from pipetune.core.prediction import PredictedRate
from pipetune.core.session import Offer
from pipetune.search.baselines import DEFAULTS
from pipetune.search.budget import Budget
from pipetune.search.composing import structural
from pipetune.search.known import Known
from pipetune.search.offers import missing_consent
from pipetune.search.rejecting import rejections
from pipetune.search.result import SearchResult

MOST = 0.95
"""The share of the final rate whose time is told: what comes later is fine work."""

_NO_TIME, _ENDED_EARLY = "no time was left to try it", "the search ended before it was tried"
_BASELINES = {DEFAULTS: "the pipeline as written", "autotune": "AUTOTUNE everywhere", "off": "optimisations off"}


def ending(known: Known) -> str:
    """One sentence: how the search ended."""
    if known.chosen:
        return "A plan was proven faster than the pipeline as written."
    if not known.granted and not known.inside:
        return "No rewrite is legal here without consent."
    if known.too_small:
        return _undecided(known.kit.meter.budget)
    return "No plan was proven faster than the pipeline as written."


def _undecided(budget: Budget) -> str:
    if budget.seconds - budget.spent() < 1:
        return f"Nothing was decided in the {budget.seconds:.0f} s for trials."
    return (
        f"Nothing was decided: {budget.spent():.0f} of {budget.seconds:.0f} s were used, and the rest is too little "
        "for another comparison and its confirmation."
    )


def _restless(known: Known) -> list[str]:
    plans = list(dict.fromkeys(_in_words(key) for key in known.kit.meter.restless))
    if not plans:
        return []
    return [f"Not converged: AUTOTUNE's numbers never stood still under {', '.join(plans)}."]


def summed_up(
    known: Known, why: str, *, gains: dict[str, Interval] | None = None, offers: Sequence[Offer] = ()
) -> SearchResult:
    """Everything that is known, as the value that leaves the search; `why` says how it ended."""
    meter = known.kit.meter
    trials = [_beside_prediction(known, trial) for trial in (*known.trials, *known.kit.gate.trials)]
    kept = {rewrite.key for rewrite in known.chosen.rewrites} if known.chosen else set()
    kept |= {offer.rewrite.key for offer in offers}
    units = {"input", known.kit.unit, *(("training",) if known.chosen and known.chosen.only_training else ())}
    return SearchResult(
        chosen=known.chosen,
        why=why,
        trials=tuple(trials),
        gain=known.accepted.gain if known.accepted else None,
        gains=gains or {},
        offers=tuple(offers),
        rejections=rejections(
            [rewrite for rewrite in known.candidates if rewrite.key not in kept],
            trials,
            blamed={**known.left_inside, **known.kit.gate.blamed},
            gains=gains or {},
            asking={rewrite.key: missing_consent(rewrite, known.settings) for rewrite in known.asking},
            screened=known.screened.rates,
            variants={rewrite.key for rewrite in known.candidates} - {one.key for one in structural(known.candidates)},
            untried=_ENDED_EARLY if known.ended_early else _NO_TIME,
        ),
        rates=known.rates,
        comparison=known.kit.gate.comparison(known.chosen) if known.chosen else None,
        unit=known.kit.unit,
        window_seconds=meter.window_seconds,
        warmup_seconds=meter.warmup_seconds,
        steps=meter.steps if "training" in units else 0,
        window_costs={unit: meter.cost(unit) for unit in units},
        budget_too_small=known.too_small,
        restless=tuple(meter.restless),
        notes=(*known.notes, *_restless(known)),
        predictions=_predictions(known, trials),
        seconds_to_most=meter.first_reached(known.chosen, known.kit.unit, share=MOST) if known.chosen else None,
    )


def _beside_prediction(known: Known, trial: Trial) -> Trial:
    predicted, measured = known.forecast.rate(trial.plan), known.kit.meter.median_rate(trial.plan, "input")
    return replace(trial, predicted=predicted, measured=measured)


def _predictions(known: Known, trials: Sequence[Trial]) -> tuple[PredictedRate, ...]:
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
