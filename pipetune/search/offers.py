"""What consent would buy: rewrites the user has not allowed, measured beside the plan, never in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipetune.core.edits import Consent, Plan, Rewrite, Safety
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import OptionalRewrite
from pipetune.core.settings import Settings
from pipetune.search.adding import affordable_pairs, measure_added
from pipetune.search.forecast import Forecast
from pipetune.search.kit import SearchContext
from pipetune.search.statistics import ratio_interval

FEWEST_PAIRS, MOST_PAIRS = 4, 8

_SAME = 0.1
"""The model is off by less than this on most pipelines: what it expects within it is nothing."""

_CONSENT = {
    Safety.STATISTICAL: Consent.STATISTICAL,
    Safety.REORDERS: Consent.REORDER,
    Safety.APPROXIMATE: Consent.APPROXIMATE,
}


def missing_consent(rewrite: Rewrite, settings: Settings) -> str:
    """What to add to the command line so that `rewrite` may enter the plan: "--allow reorder,file-cache"."""
    wanted = set(rewrite.needs)
    if rewrite.safety in _CONSENT:
        wanted.add(_CONSENT[rewrite.safety])
    return "--allow " + ",".join(sorted(consent.value for consent in wanted - settings.allow))


def measure_offers(
    rewrites: Sequence[Rewrite], plan: Plan | None, kit: SearchContext, *, settings: Settings, forecast: Forecast
) -> tuple[list[OptionalRewrite], list[Trial]]:
    """Each rewrite added to the plan (or alone), over the plan (or the base), in 4 to 8 pairs fixed
    beforehand; those that the cost model expects most of come first.

    What no time is left for is offered unmeasured, with what the model expects. What changes the data beyond its
    safety class is not offered: the gate blames it.
    """
    offers: list[OptionalRewrite] = []
    trials: list[Trial] = []
    expected = {rewrite.key: _expected(rewrite, plan or kit.base, kit, forecast) for rewrite in rewrites}
    ranked = sorted(rewrites, key=lambda rewrite: -(expected[rewrite.key] or 1.0))
    for position, rewrite in enumerate(ranked):
        consent = missing_consent(rewrite, settings)
        pairs = affordable_pairs(kit, waiting=len(rewrites) - position, fewest=FEWEST_PAIRS, most=MOST_PAIRS)
        if not pairs:
            offers.append(OptionalRewrite(rewrite, None, consent, _unmeasured(expected[rewrite.key])))
            continue
        added = measure_added(rewrite, plan or kit.base, kit, pairs=pairs, fewest=FEWEST_PAIRS)
        if added is None:
            continue
        why = added.why or added.failure
        gain = ratio_interval(added.ratios) if not why and len(added.ratios) >= 2 else None
        offers.append(OptionalRewrite(rewrite, gain, consent, why))
        trial = Trial(
            added.plan,
            Outcome.REFUSED,
            f"needs {consent}" + (f"; {why}" if why else ""),
            gain=gain,
            unit=kit.unit,
            ratios=added.ratios,
            seconds=added.seconds,
        )
        trials.append(trial)
        kit.tell([trial])
    return offers, trials


def _expected(rewrite: Rewrite, reference: Plan, kit: SearchContext, forecast: Forecast) -> float | None:
    """What the input's rate would become, over that of `reference`, by the cost model; None where it cannot tell."""
    ours, theirs = forecast.rate(kit.composer.added(reference, rewrite)), forecast.rate(reference)
    return ours / theirs if ours and theirs and ours < math.inf else None


def _unmeasured(expected: float | None) -> str:
    text = "no time was left to measure it"
    if expected is None:
        return text
    if abs(expected - 1) < _SAME:
        return f"{text}; the cost model expects no other rate of the input"
    return f"{text}; the cost model expects the input alone to run {_times(expected)} as fast"


def _times(ratio: float) -> str:
    """Three figures: 1.24x, 41x, 1,280x."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{float(f'{ratio:.3g}'):,g}x"
