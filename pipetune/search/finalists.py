"""From candidates to the one or two plans that are worth a paired decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import Outcome, Trial
from pipetune.search.budget import Part
from pipetune.search.composing import Composer, structural
from pipetune.search.forecast import Forecast
from pipetune.search.kit import Kit
from pipetune.search.outdone import find_outdone
from pipetune.search.screening import PROMISE, Screener
from pipetune.search.sparing import spares_memory
from pipetune.search.statistics import LOOKS


@dataclass
class Finalists:
    """Plans to decide on, the smaller first, and what screening showed."""

    plans: list[Plan] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    promise: dict[str, float] = field(default_factory=dict)  # per rewrite key; 1.2 is 20 % better
    rates: dict[str, float] = field(default_factory=dict)  # per rewrite key, over the base


def find_finalists(granted: Sequence[Rewrite], kit: Kit, *, forecast: Forecast) -> Finalists:
    """Screen each candidate alone, grow a plan from those that promise something, and join them all.

    Many rewrites pay together only, so the plan of all that do no harm is looked at too; it is a second
    finalist where short windows show it clearly faster than the grown one. Where nothing grew, it stands beside the
    one rewrite of it that promises most alone, or makes way for that: without time to grow a plan there is none to
    ablate one either, and what adds nothing would stay in it. What is offered where it is as fast joins only where it
    promises more alone. The most promising by the forecast come first; those that it expects to lose, alone and beside
    all others, are not run, nor those of a group that it expects to lose to one that ran. The time for one paired
    decision is kept throughout, so that with little time less is screened.
    """

    base, meter, composer, gate, unit = kit.base, kit.meter, kit.composer, kit.gate, kit.unit

    def enough() -> bool:
        kept = kit.seconds(2, rounds=LOOKS[0]) + meter.cost(unit)
        return meter.budget.affords(Part.SEARCH, kept + gate.cost(4 * meter.cost("input")))

    def provable() -> bool:
        """Whether one more proof leaves time for one decision, short windows: without a plan there is none."""
        kept = kit.seconds(2, rounds=LOOKS[0]) / 2
        return meter.budget.affords(Part.ABLATION, kept + gate.cost(4 * meter.cost("input")))

    found = Finalists()
    order = structural(granted)
    order.sort(key=lambda rewrite: forecast.promise(composer.plan([rewrite])), reverse=True)
    screener = Screener(base, meter, notify=kit.notify, enough=enough)
    found.trials = screener.trials
    shares = meter.runner.shares_processors
    losing = _losing(order, base, forecast, composer=composer, shares_processors=shares)
    for rewrite, why in losing:
        _skip(rewrite, why, screener, kit)
    skipped = {rewrite.key for rewrite, _ in losing}
    order = [rewrite for rewrite in order if rewrite.key not in skipped]
    outdone = find_outdone(order, forecast, composer=composer, meter=meter)
    screened = screener.alone([rewrite for rewrite in order if rewrite.key not in outdone], composer)
    ran = {one.rewrite.key for one in screened if not one.harmful}
    beaten = {key for key, one in outdone.items() if one.by in ran}
    for rewrite in order:
        if rewrite.key in beaten:
            _skip(rewrite, outdone[rewrite.key].why, screener, kit)
    order = [rewrite for rewrite in order if rewrite.key not in beaten]
    screened += screener.alone([rewrite for rewrite in order if rewrite.key in outdone], composer)
    unusable = {trial.plan.key for trial in screener.trials if trial.outcome is not Outcome.SCREENED}
    unusable |= {one.rewrite.key for one in screened if one.harmful}
    found.promise = {one.rewrite.key: one.promise for one in screened}
    found.rates = {one.rewrite.key: one.rate for one in screened}
    unusable |= {one.rewrite.key for one in screened if one.rewrite.equal_is_enough and one.promise < PROMISE}
    usable = [rewrite for rewrite in order if rewrite.key not in unusable]
    spares = {rewrite.key for rewrite in usable if spares_memory(rewrite, base, meter)}
    usable.sort(key=lambda rewrite: (rewrite.key in spares, -found.promise.get(rewrite.key, 1.0)))

    grown = screener.build(usable, composer, unit=unit, promise=found.promise, spares=spares)
    grown = gate.largest_equal(grown, composer, enough=provable)
    if grown.rewrites:
        kit.notify("best", plan=grown, gain=None)
        found.plans = [grown]
        if not enough():
            return found
    usable = [rewrite for rewrite in usable if rewrite.key not in gate.blamed]
    joined = screener.running(usable, composer, unit="input")
    if not grown.rewrites:
        joined = gate.largest_equal(joined, composer, enough=provable)
        found.plans = [joined] if joined.rewrites else []
        alone = _most_promising(joined, found.promise, kit)
        if alone is not None and gate.equal(alone):
            found.plans = [alone, joined] if kit.affords_decision(2) else [alone]
    elif len(joined.rewrites) > len(grown.rewrites) and screener.better(joined, grown, unit=unit):
        joined = gate.largest_equal(joined, composer, enough=enough)
        if len(joined.rewrites) > len(grown.rewrites):
            found.plans = [grown, joined] if kit.affords_decision(2) else [joined]
    return found


def _skip(rewrite: Rewrite, why: str, screener: Screener, kit: Kit) -> None:
    """A rewrite that is not run is a trial too."""
    screener.trials.append(Trial(kit.composer.plan([rewrite]), Outcome.SKIPPED, why, kind="screening"))
    kit.tell(screener.trials[-1:])


def _most_promising(joined: Plan, promise: Mapping[str, float], kit: Kit) -> Plan | None:
    """The rewrite of a plan of several that promises most alone; None where none promises enough."""
    best = max(joined.rewrites, key=lambda rewrite: promise.get(rewrite.key, 1.0), default=None)
    if best is None or len(joined.rewrites) < 2 or promise.get(best.key, 1.0) < PROMISE:
        return None
    return kit.composer.plan([best])


def _losing(
    order: Sequence[Rewrite], base: Plan, forecast: Forecast, *, composer: Composer, shares_processors: bool
) -> list[tuple[Rewrite, str]]:
    """Rewrites predicted to lose beyond doubt, alone and with whatever else there is, each with the reason."""
    together = composer.everything(order)
    found = []
    for rewrite in order:
        plan = composer.plan([rewrite])
        rest = composer.without(together, [rewrite])
        company = composer.added(rest, rewrite)
        # Two that pay only together are each a loss alone: beside the others it must lose too.
        if forecast.loses(plan, base, shares_processors=shares_processors) and (
            not rest.rewrites or forecast.loses(company, rest, shares_processors=shares_processors)
        ):
            ours, theirs = forecast.rate(plan), forecast.rate(base)
            assert ours is not None and theirs is not None
            found.append((rewrite, f"predicted to lose {1 - ours / theirs:.0%} of the rate; it was not run"))
    return found
