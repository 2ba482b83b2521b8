"""Rewrites that are not in the plan and may be worth an offer: measured beside the plan, and never a way into it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipetune.core.edits import Consent, Plan, Rewrite, Safety, SetArgument
from pipetune.core.results import Interval, Outcome, OutOfBudget, RunFailed, Trial
from pipetune.core.session import OptionalRewrite
from pipetune.core.settings import Settings
from pipetune.core.time_plan import COMPARISON, Part
from pipetune.search.evidence import Gains
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Refused
from pipetune.search.race import Arm, ratios
from pipetune.search.statistics import ratio_interval

FEWEST_PAIRS, MOST_PAIRS = 4, 8
FEWEST_EQUAL_PAIRS, MOST_EQUAL_PAIRS = 6, 16

NOT_SLOWER = 0.97
"""The margin of non-inferiority: a whole 95 % interval above it means a loss of at most 3 %."""

_SAME = 0.1
"""The model is off by less than this on most pipelines: what it expects within it is no gain."""

_LONGER = 3.0  # times the longest comparison so far: what has to be compared differs from plan to plan, by judgement

_NO_TIME = "no time was left to measure it"

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
    rewrites: Sequence[Rewrite], plan: Plan | None, kit: SearchContext, gains: Gains, *, settings: Settings
) -> tuple[list[OptionalRewrite], list[Trial]]:
    """Each rewrite added to the plan (or alone), over the plan (or the base), in pairs fixed beforehand.

    Those that the cost model expects most of come first. One that needs consent is offered with what it gains, and
    where no time is left with what the model expects, if that is a gain. One that needs only be as fast is offered
    where it is shown to lose less than `NOT_SLOWER` allows. What changes the data is not offered: the gate blames it.
    """
    offers: list[OptionalRewrite] = []
    trials: list[Trial] = []
    reference = plan or kit.base
    wanted = [one for one in rewrites if not (one.equal_is_enough and plan is not None and _overlaps(one, plan))]
    expected = {one.key: _expected(one, reference, kit, gains) for one in wanted}
    wanted.sort(key=lambda one: (one.equal_is_enough, -(expected[one.key] or 1.0)))
    kit.notify("stage", name="offers")
    for position, rewrite in enumerate(wanted):
        as_fast = rewrite.equal_is_enough
        consent = "" if as_fast else missing_consent(rewrite, settings)
        fewest, most = (FEWEST_EQUAL_PAIRS, MOST_EQUAL_PAIRS) if as_fast else (FEWEST_PAIRS, MOST_PAIRS)
        pairs = affordable_pairs(kit, waiting=len(wanted) - position, fewest=fewest, most=most)
        if not pairs:
            if not as_fast and _may_gain(expected[rewrite.key]):
                offers.append(OptionalRewrite(rewrite, None, consent, _unmeasured(expected[rewrite.key])))
            continue
        before = kit.meter.clock.now()
        tried = kit.composer.added(reference, rewrite)
        measured, why = _measure(tried, reference, kit, pairs=pairs, fewest=fewest)
        if measured is None:
            kit.gate.blame(rewrite, tried)
            continue
        gain = ratio_interval(measured) if not why and len(measured) >= 2 else None
        offered = not as_fast or (gain is not None and gain.low > NOT_SLOWER)
        if as_fast:
            outcome, said = Outcome.REJECTED, why or _judged(gain)
        else:
            outcome, said = Outcome.REFUSED, f"needs {consent}" + (f"; {why}" if why else "")
        seconds = kit.meter.clock.now() - before
        trials.append(Trial(tried, outcome, said, gain=gain, unit=kit.unit, ratios=measured, seconds=seconds))
        kit.tell(trials[-1:])
        if offered:
            offers.append(OptionalRewrite(rewrite, gain, consent, said if as_fast else why))
    return offers, trials


def affordable_pairs(kit: SearchContext, *, waiting: int, fewest: int, most: int) -> int:
    """Pairs for the next of `waiting` rewrites that share the time left; 0 for fewer than `fewest`."""
    share = kit.meter.budget.left(Part.INFORMATION) / waiting
    count = min(most, int(share / kit.seconds(2, rounds=1)))
    return count if count >= fewest else 0


def _measure(
    tried: Plan, reference: Plan, kit: SearchContext, *, pairs: int, fewest: int
) -> tuple[tuple[float, ...] | None, str]:
    """The ratios of `tried` over `reference`, and why there are none or too few; None where it changes the data."""
    budget, arms, why = kit.meter.budget, [Arm(reference, kit.unit), Arm(tried, kit.unit)], ""
    try:
        kit.meter.check(tried)
        usual = budget.usual_seconds(COMPARISON)
        longest = min(usual, _LONGER * kit.gate.cost(usual))
        if kit.gate.comparison(tried) is None and not budget.affords(Part.INFORMATION, longest):
            raise OutOfBudget("no time is left to compare it")
        if not kit.gate.equal(tried):
            return None, ""
        for _ in range(pairs):
            kit.round(arms, Part.INFORMATION)
    except OutOfBudget:
        why = "" if arms[1].rounds >= fewest else "the time ended before it was measured"
    except (RunFailed, Refused) as problem:
        why = str(problem)
    return ratios(arms[1], arms[0]), why or arms[1].failure


def _judged(gain: Interval | None) -> str:
    if gain is None:
        return "it was not measured often enough"
    if gain.low > NOT_SLOWER:
        return f"not slower, and not proven faster: offered, for it is as fast without AUTOTUNE ({gain.pairs} pairs)"
    return f"not shown to lose less than {1 - NOT_SLOWER:.0%}, after {gain.pairs} pairs"


def _overlaps(rewrite: Rewrite, plan: Plan) -> bool:
    """Whether the plan itself says a number that the rewrite would write."""
    said = {(edit.node, edit.name) for edit in plan.edits if isinstance(edit, SetArgument)}
    return any(isinstance(edit, SetArgument) and (edit.node, edit.name) in said for edit in rewrite.edits)


def _expected(rewrite: Rewrite, reference: Plan, kit: SearchContext, gains: Gains) -> float | None:
    """What the input's rate would become, over that of `reference`, by the cost model; None where it cannot tell."""
    predicted = gains.forecast.gain(kit.composer.added(reference, rewrite), reference).predicted
    return None if predicted is None else math.exp(predicted)


def _may_gain(expected: float | None) -> bool:
    return expected is None or expected >= 1 + _SAME


def _unmeasured(expected: float | None) -> str:
    if expected is None:
        return _NO_TIME
    return f"{_NO_TIME}; the cost model expects the input alone to run {_times(expected)} as fast"


def _times(ratio: float) -> str:
    """Three figures: 1.24x, 41x, 1,280x."""
    return f"{ratio:.2f}x" if ratio < 10 else f"{float(f'{ratio:.3g}'):,g}x"
