"""From candidates to the one or two plans that are worth a race."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.results import Outcome, RunFailed, Trial
from pipetune.core.session import RejectionReason
from pipetune.core.time_plan import Part
from pipetune.search.composing import Composer, structural, values_of
from pipetune.search.expectation import WORTH, Expectation, Forecast, spread_of
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Meter, Refused
from pipetune.search.race import Decision
from pipetune.search.screening import Screener
from pipetune.search.statistics import ACCEPT_ABOVE, LOOKS


@dataclass(frozen=True)
class Outdone:
    """The key of the rewrite that beats it, and the reason in words."""

    by: str
    why: str


def find_outdone(
    ranked: Sequence[Rewrite], forecast: Forecast, *, composer: Composer, meter: Meter
) -> Mapping[str, Outdone]:
    """By key: rewrites predicted slower, beyond doubt, than the best of their group that may run.

    Alone, and each beside whatever may stand beside it: what is slower alone may leave room for others. What needs a
    consent of its own beats none: what a file takes to read the model does not know.

    Args:
        ranked: what is predicted fastest first.
    """
    best: dict[str, Rewrite] = {}
    found: dict[str, Outdone] = {}
    for rewrite in ranked:
        if not rewrite.group or rewrite.equal_is_enough:
            continue
        other = best.get(rewrite.group)
        if other is None:
            if not rewrite.needs and _may_run(rewrite, composer, meter):
                best[rewrite.group] = rewrite
            continue
        rest = [one for one in ranked if one.group != rewrite.group]
        alone = composer.plan([rewrite]), composer.plan([other])
        together = composer.everything([rewrite, *rest]), composer.everything([other, *rest])
        shares = meter.runner.shares_processors
        if all(forecast.loses(ours, theirs, shares_processors=shares) for ours, theirs in (alone, together)):
            rates = [forecast.rate(plan) or 0.0 for plan in alone]
            why = f"predicted {1 - rates[0] / rates[1]:.0%} slower than another of its kind; it was not run"
            found[rewrite.key] = Outdone(other.key, why)
    return found


def _may_run(rewrite: Rewrite, composer: Composer, meter: Meter) -> bool:
    try:
        meter.check(composer.plan([rewrite]))
    except (Refused, RunFailed):
        return False
    return True


MOST_WINDOWS = 3
"""Screening windows of one rewrite; by judgement: what is worth more of them is worth a race."""

NOT_PROMISING = f"not predicted to gain {ACCEPT_ABOVE - 1:.0%}, and training waits little; it was not run"


@dataclass
class Finalists:
    """The rewrites that may enter the plan, what each is expected to gain, and which of them were raced.

    Args:
        trials: of the search; what is screened or skipped is added.
        proven_alone: keys of those that stand in no plan before they were proven better by themselves.
    """

    kit: SearchContext
    expectation: Expectation
    rewrites: list[Rewrite]
    trials: list[Trial]
    proven_alone: Collection[str] = ()
    only_promising: bool = False  # whether what the model does not expect to gain is left out
    unpromising: dict[str, tuple[RejectionReason, str]] = field(default_factory=dict)  # by key, what was left out so
    raced: dict[str, Trial | None] = field(default_factory=dict)  # by key; None where the race was not begun
    autotune_raced: bool = False  # whether AUTOTUNE everywhere had its race, or was ruled out
    racing: str = ""  # key of the one rewrite more in the race now

    def rank(self) -> None:
        """Put the most promising by the forecast first, one number each; what it expects to lose leaves."""
        kit, forecast, composer = self.kit, self.expectation.forecast, self.kit.composer
        order = structural(self.rewrites)
        order.sort(key=lambda rewrite: forecast.promise(composer.plan([rewrite])), reverse=True)
        shares = kit.meter.runner.shares_processors
        skipped = dict(_losing(order, kit.base, forecast, composer=composer, shares_processors=shares))
        self._skip(order, skipped)
        if self.only_promising:
            idle = [one for one in self.rewrites if not self._is_promising(one)]
            self.unpromising = {one.key: (RejectionReason.NOT_EXPECTED, NOT_PROMISING) for one in idle}
            self.rewrites = [one for one in self.rewrites if one not in idle]

    def _is_promising(self, rewrite: Rewrite) -> bool:
        predicted = self.expectation.of(rewrite).predicted
        return predicted is not None and predicted >= WORTH

    def screen(self, part: Part, plan: Plan | None = None) -> bool:
        """One short window of each rewrite alone that had none, while `part` has time for the first look of a race too.

        First only of those that the model expects to gain, or cannot tell of, where there are any; of the rest when
        this is called again; then once more of those that a gain is not out of sight for (`MOST_WINDOWS` of each at
        most), where a plan is proven only if the model cannot tell of them. Those of a group that it expects to lose to
        one that ran are not run. A window far from what was expected is taken again. Returns whether any was taken.
        """
        screened, before = self.expectation.screened, len(self.trials)
        new = [rewrite for rewrite in self.rewrites if rewrite.key not in screened]
        new = [one for one in new if self.expectation.of(one).may_gain] or new or self._doubtful(plan)
        composer, meter = self.kit.composer, self.kit.meter
        outdone = find_outdone(self.rewrites, self.expectation.forecast, composer=composer, meter=meter)
        self._look([rewrite for rewrite in new if rewrite.key not in outdone], part)
        expected = {rewrite.key: self.expectation.of(rewrite).mean for rewrite in self.rewrites}
        beaten = {
            key: other.why
            for key, other in outdone.items()
            if key in expected and other.by in screened and expected[other.by] >= expected[key]
        }
        self._skip(self.rewrites, beaten)
        self._look([rewrite for rewrite in new if rewrite.key in outdone and rewrite.key not in beaten], part)
        return len(self.trials) > before

    def _doubtful(self, plan: Plan | None) -> list[Rewrite]:
        """Those not raced yet whose windows do not rule out that they add a gain that counts to `plan`."""
        have = {rewrite.key for rewrite in plan.rewrites} if plan else set()
        return [
            rewrite
            for rewrite in self.rewrites
            if rewrite.key not in self.raced
            and rewrite.key not in have
            and len(self.expectation.screened[rewrite.key]) < MOST_WINDOWS
            and not self.expectation.of(rewrite, plan).hopeless
            and (plan is None or self.expectation.of(rewrite).predicted is None)
        ]

    def _look(self, rewrites: Sequence[Rewrite], part: Part) -> None:
        kit, expectation = self.kit, self.expectation
        meter, gate = kit.meter, kit.gate

        def enough() -> bool:
            kept = kit.seconds(2, rounds=LOOKS[0]) + meter.cost(kit.unit)
            return meter.budget.affords(part, kept + gate.cost(4 * meter.cost("input")))

        screener = Screener(kit.base, meter, notify=kit.notify, enough=enough)
        found = screener.alone(rewrites, kit.composer)
        base = [one.rate for one in meter.taken if one.plan == kit.base.key and one.unit == "input"]
        expectation.spread = spread_of(base)
        found += screener.alone([one.rewrite for one in found if expectation.surprised_by(one)], kit.composer)
        for one in found:
            expectation.learn(one)
        self.trials += screener.trials
        unusable = {trial.plan.key for trial in screener.trials if trial.outcome is not Outcome.SCREENED}
        self.rewrites = [rewrite for rewrite in self.rewrites if rewrite.key not in unusable]

    def next(self, plan: Plan | None) -> list[Plan]:
        """The plans to race next against `plan` (against the base where None): none where nothing is expected to gain.

        Always the one rewrite more that is expected to add most and yields the same data. In the first race also all
        that is worth joining to it; should that not be the same data, it is the one rewrite alone at once.
        """
        kit, first = self.kit, not self.kit.races
        for strongest in self.waiting(plan):
            single = kit.composer.added(plan or kit.base, strongest)
            if kit.composer.conflict(single):
                continue
            joined = self._joined(strongest) if first else single
            if len(joined.rewrites) == 1 and self.expectation.of(strongest).hopeless:
                break
            self.racing, self.raced[strongest.key] = strongest.key, None
            if not kit.gate.equal(single):
                kit.gate.blame(strongest, single)
                continue
            if len(joined.rewrites) > len(single.rewrites) and kit.affords_race(2) and kit.gate.equal(joined):
                return [single, joined]
            return [single]
        return self._autotune_everywhere(plan)

    def _autotune_everywhere(self, plan: Plan | None) -> list[Plan]:
        """All that leaves its numbers to AUTOTUNE, added to `plan`: a candidate once, whatever its parts show alone."""
        kit, before = self.kit, plan or self.kit.base
        parts = [one for one in self.rewrites if AUTOTUNE in values_of(one) and one.key not in self.proven_alone]
        grown = kit.composer.everything([*before.rewrites, *parts])
        known = self.autotune_raced or grown.key in {trial.plan.key for trial in self.trials if trial.ratios}
        if known or len(grown.rewrites) < len(before.rewrites) + 2:
            return []
        self.autotune_raced = True
        if self.expectation.gain_over(grown, before).hopeless or not kit.gate.equal(grown):
            return []
        self.racing, self.raced[grown.key] = grown.key, None
        return [grown]

    def _joined(self, strongest: Rewrite) -> Plan:
        """`strongest` and what is worth joining to it; itself alone where it must be proven by itself."""
        others = [] if strongest.key in self.proven_alone else self.waiting(None)
        return self.expectation.joined([one for one in others if one.key not in self.proven_alone], strongest)

    def note(self, decision: Decision) -> Trial:
        """Keep what became of the one rewrite more: its trial."""
        self.raced[self.racing] = decision.trials[0]
        return decision.trials[0]

    def waiting(self, plan: Plan | None) -> list[Rewrite]:
        """Rewrites not raced yet that are expected to gain, most first; before the first race all of them."""
        have = {rewrite.key for rewrite in plan.rewrites} if plan else set()
        left = [one for one in self.rewrites if one.key not in self.raced and one.key not in have]
        ranked = self.expectation.ranked(left, over=plan)
        if not self.kit.races:
            return ranked
        return [one for one in ranked if self.expectation.of(one, plan).mean >= WORTH]

    def _skip(self, order: Sequence[Rewrite], why: Mapping[str, str]) -> None:
        """Go on with the others; a rewrite that is not run is a trial too."""
        for rewrite in order:
            if rewrite.key in why:
                plan = self.kit.composer.plan([rewrite])
                self.trials.append(Trial(plan, Outcome.SKIPPED, why[rewrite.key], kind="screening"))
                self.kit.tell(self.trials[-1:])
        self.rewrites = [rewrite for rewrite in order if rewrite.key not in why]


def _losing(
    order: Sequence[Rewrite], base: Plan, forecast: Forecast, *, composer: Composer, shares_processors: bool
) -> list[tuple[str, str]]:
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
            found.append((rewrite.key, f"predicted to lose {1 - ours / theirs:.0%} of the rate; it was not run"))
    return found
