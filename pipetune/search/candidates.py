"""The rewrites that may enter the plan: which is tried next, by a short window or by a race."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.pipeline import AUTOTUNE
from pipetune.core.results import Outcome, OutOfBudget, RunFailed, Trial, Window
from pipetune.core.session import RejectionReason
from pipetune.core.time_plan import Part
from pipetune.search.composing import numbers_for, structural, values_of
from pipetune.search.evidence import SURE, WORTH, Gains, Shown, spread_of
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Refused
from pipetune.search.statistics import ACCEPT_ABOVE, LOOKS

MOST_WINDOWS = 3
"""Short windows of one rewrite; by judgement: what is worth more of them is worth a race."""

BASE_EVERY = 4
"""Rewrites between two short windows of what they are added to: the machine's speed drifts."""

REASONS: Mapping[Outcome, RejectionReason] = {
    Outcome.FAILED: RejectionReason.FAILED,
    Outcome.REFUSED: RejectionReason.REFUSED,
    Outcome.SKIPPED: RejectionReason.PREDICTED_SLOWER,
    Outcome.REJECTED: RejectionReason.NOT_FASTER,
    Outcome.UNDECIDED: RejectionReason.UNDECIDED,
    Outcome.ACCEPTED: RejectionReason.ADDS_NOTHING,  # faster than what the plan was then, and not in what it is now
}

LIKELY_ENOUGH = 0.3
"""What is added to a proven plan is raced where it is as probable as this that it gains: the patch waits for it."""

NOT_PROMISING = f"not predicted to gain {ACCEPT_ABOVE - 1:.0%}, and training waits little; it was not run"


@dataclass
class Candidates:
    """The rewrites in play, what is known of each, and which of them were raced.

    Args:
        kit: the tools of the search.
        gains: what is known of the gain of every plan.
        granted: rewrites that the user's consent allows, in the order in which their edits may be applied together.
        trials: of the search; windows that are taken here are added.
        proven_alone: keys of those that stand in no plan before they were proven better by themselves.
        only_promising: whether only rewrites that the model expects to gain are tried: little can be gained.
    """

    kit: SearchContext
    gains: Gains
    granted: Sequence[Rewrite]
    trials: list[Trial]
    proven_alone: Collection[str] = ()
    only_promising: bool = False
    usable: list[Rewrite] = field(default_factory=list)  # one number each
    broken: dict[str, tuple[RejectionReason, str]] = field(default_factory=dict)  # by key, what failed or was refused
    unpromising: dict[str, tuple[RejectionReason, str]] = field(default_factory=dict)  # by key, why it is not tried
    raced: dict[str, Trial | None] = field(default_factory=dict)  # by key; None where the race was not begun
    autotune_raced: bool = False  # whether AUTOTUNE everywhere had its race, or was ruled out

    def __post_init__(self) -> None:
        # One number of each rewrite, the one that leaves it to AUTOTUNE where there is one.
        self.usable = structural(self.granted)
        if self.only_promising:
            known = {one.key: self.gains.added(one).predicted for one in self.usable}
            idle = {key for key, predicted in known.items() if predicted is None or predicted < WORTH}
            self.unpromising = dict.fromkeys(sorted(idle), (RejectionReason.NOT_EXPECTED, NOT_PROMISING))
            self.usable = [one for one in self.usable if one.key not in idle]

    # -- which are left

    def left(self) -> list[Rewrite]:
        """Returns those in play that neither failed nor were refused."""
        return [one for one in self.usable if one.key not in self.broken]

    def not_run(self) -> dict[str, str]:
        """Returns why the model's word is enough not to run a rewrite, by key.

        It loses beyond doubt, alone and beside all others; or another of its group that runs is faster, alone and
        beside all others: what is slower alone may leave room for them. What needs a consent of its own beats none:
        what a file takes to read the model does not know.
        """
        kit, composer, forecast = self.kit, self.kit.composer, self.gains.forecast
        shares = kit.meter.runner.shares_processors
        ranked = self.gains.ranked(self.left())
        everything = composer.everything(ranked)
        found: dict[str, str] = {}
        best: dict[str, Rewrite] = {}
        for one in ranked:
            alone, rest = composer.plan([one]), composer.without(everything, [one])
            beside = composer.added(rest, one), rest
            if forecast.loses(alone, kit.base, shares_processors=shares) and (
                not rest.rewrites or forecast.loses(*beside, shares_processors=shares)
            ):
                lost = 1 - (forecast.rate(alone) or 0.0) / (forecast.rate(kit.base) or 1.0)
                found[one.key] = f"predicted to lose {lost:.0%} of the rate; it was not run"
            elif one.group and not one.equal_is_enough:
                other = best.get(one.group)
                if other is None:
                    if not one.needs and self._may_run(one):
                        best[one.group] = one
                elif self._is_outdone(one, other, ranked):
                    slower = 1 - (forecast.rate(alone) or 0.0) / (forecast.rate(composer.plan([other])) or 1.0)
                    found[one.key] = f"predicted {slower:.0%} slower than another of its kind; it was not run"
        return {key: why for key, why in found.items() if key not in self.gains.shown}

    def _is_outdone(self, rewrite: Rewrite, other: Rewrite, ranked: Sequence[Rewrite]) -> bool:
        composer, rest = self.kit.composer, [one for one in ranked if one.group != rewrite.group]
        return all(
            self.gains.forecast.loses(ours, theirs, shares_processors=self.kit.meter.runner.shares_processors)
            for ours, theirs in (
                (composer.plan([rewrite]), composer.plan([other])),
                (composer.everything([rewrite, *rest]), composer.everything([other, *rest])),
            )
        )

    def _may_run(self, rewrite: Rewrite) -> bool:
        try:
            self.kit.meter.check(self.kit.composer.plan([rewrite]))
        except (Refused, RunFailed):
            return False
        return rewrite.key not in self.kit.gate.blamed

    def waiting(self, plan: Plan | None) -> list[Rewrite]:
        """Returns the rewrites not raced yet that may stand beside the plan, what is expected to add most to it first.

        For a proven plan also those that differ by numbers only from what is in it.
        """
        have = {one.key for one in plan.rewrites} if plan else set()
        numbers = [other for one in (plan.rewrites if plan else ()) for other in numbers_for(one, self.granted)]
        out = {*self.raced, *self.broken, *have, *self.not_run()}
        left = [one for one in (*self.usable, *numbers) if one.key not in out]
        composer, before = self.kit.composer, plan or self.kit.base
        left = [one for one in left if not composer.conflict(composer.added(before, one))]
        return self.gains.ranked(left, over=plan)

    # -- short windows

    def look(self, plan: Plan | None, part: Part) -> bool:
        """Takes short windows of what a gain may be expected of, or nobody can tell of; returns whether any was taken.

        Each rewrite has one, added to the plan. Before the first race, where nothing is expected to gain, of all; where
        one is expected to gain more than any other beyond doubt, of none.
        """
        if not self.raced and self._one_leads():
            return False
        new = [one for one in self.waiting(plan) if one.key not in self.gains.shown]
        promising = [one for one in new if self.gains.added(one, plan).may_gain]
        return self._look(promising or ([] if self.gains.shown or self.raced else new), plan, part)

    def _one_leads(self) -> bool:
        """Whether what is expected to gain most does so beyond the error of what is expected of it and of the next."""
        waiting = self.waiting(None)
        if not waiting or waiting[0].needs:  # what a file takes to read the model does not know
            return False
        first, *others = (self.gains.added(one) for one in waiting[:2])
        if first.predicted is None or not first.worth_joining:
            return False
        return all(
            first.expected - second.expected > SURE * math.hypot(first.deviation, second.deviation) for second in others
        )

    def look_again(self, plan: Plan | None, part: Part) -> bool:
        """Takes short windows of what else there is, once nothing is left to race; returns whether any was taken.

        First of those that had none, then once more of those whose gain is not out of sight (`MOST_WINDOWS` each at
        most). Where a plan is proven, only of those that the model cannot tell of: what is decided is over.
        """
        waiting = [one for one in self.waiting(plan) if plan is None or self.gains.added(one, plan).predicted is None]
        new = [one for one in waiting if one.key not in self.gains.shown]
        doubtful = [
            one
            for one in waiting
            if len(self.gains.shown.get(one.key, ())) < MOST_WINDOWS and not self.gains.added(one, plan).hopeless
        ]
        return self._look(new or doubtful, plan, part)

    def _look(self, rewrites: Sequence[Rewrite], plan: Plan | None, part: Part) -> bool:
        before = len(self.trials)
        shown = self._windows(rewrites, plan or self.kit.base, part)
        base = [one.rate for one in self.kit.meter.taken if one.plan == self.kit.base.key and one.unit == "input"]
        self.gains.spread = spread_of(base)
        shown += self._windows(
            [one.rewrite for one in shown if self.gains.surprised_by(one)], plan or self.kit.base, part
        )
        for one in shown:
            self.gains.shown[one.rewrite.key].append(one)
        return len(self.trials) > before

    def _windows(self, rewrites: Sequence[Rewrite], over: Plan, part: Part) -> list[Shown]:
        """One short window of each, for as long as there is time for the first look of a race too."""
        meter, shown = self.kit.meter, []
        beside: list[Window] = []
        for position, rewrite in enumerate(rewrites):
            kept = self.kit.seconds(2, rounds=LOOKS[0]) + meter.cost(self.kit.unit)
            if not meter.budget.affords(part, kept + self.kit.gate.cost(4 * meter.cost("input"))):
                break
            plan, began = self.kit.composer.added(over, rewrite), meter.clock.now()
            try:
                if position % BASE_EVERY == 0:
                    beside = [*beside[-1:], meter.window(over, "input", part=Part.SEARCH, short=True)]
                window = meter.window(plan, "input", part=Part.SEARCH, short=True)
            except OutOfBudget:
                break
            except (RunFailed, Refused) as problem:
                outcome = Outcome.REFUSED if isinstance(problem, Refused) else Outcome.FAILED
                seconds = meter.clock.now() - began
                self._note(Trial(plan, outcome, str(problem), kind="screening", unit="input", seconds=seconds))
                self.broken[rewrite.key] = REASONS[outcome], str(problem)
                continue
            rate = window.examples_per_second / statistics.fmean(one.examples_per_second for one in beside)
            cpu = max(statistics.fmean(one.cpu_seconds_per_example for one in beside), 1e-12)
            cpu /= max(window.cpu_seconds_per_example, 1e-12)
            shown.append(Shown(rewrite, over, rate, cpu))
            why = f"short windows: {rate - 1:+.0%} examples per second, {1 / cpu - 1:+.0%} CPU seconds per example"
            self._note(Trial(plan, Outcome.SCREENED, why, kind="screening", ratios=(rate,)))
        return shown

    def _note(self, trial: Trial) -> None:
        self.trials.append(trial)
        self.kit.tell([trial])

    # -- races

    def next_race(self, plan: Plan | None) -> tuple[str, list[Plan]]:
        """Returns the plans to race next against `plan` (the base where None); none where no gain is expected.

        Always the one rewrite more that is expected to add most and yields the same data, whose key comes with it. In
        the first race also all that is worth joining to it; should that not be the same data, it is the one rewrite
        alone at once. Where nothing else is left, AUTOTUNE everywhere.
        """
        kit, first = self.kit, not self.kit.races
        for strongest in self.waiting(plan):
            single = kit.composer.added(plan or kit.base, strongest)
            known = self.gains.added(strongest, plan)
            if not self.is_worth_a_race(strongest, plan):
                break
            joined = self._joined(strongest) if first else single
            if len(joined.rewrites) == 1 and known.hopeless:
                break
            self.raced[strongest.key] = None
            if not kit.gate.equal(single):
                kit.gate.blame(strongest, single)
                continue
            if len(joined.rewrites) > len(single.rewrites) and kit.affords_race(2) and kit.gate.equal(joined):
                return strongest.key, [single, joined]
            return strongest.key, [single]
        return self._autotune_everywhere(plan)

    def is_worth_a_race(self, rewrite: Rewrite, plan: Plan | None) -> bool:
        """Whether a gain is expected of it, and likely where a plan is proven; before the first race anything is."""
        known = self.gains.added(rewrite, plan)
        if plan is not None:
            return known.probability >= LIKELY_ENOUGH
        return not self.kit.races or known.expected >= WORTH

    def _joined(self, strongest: Rewrite) -> Plan:
        """`strongest` and what is worth joining to it; itself alone where it must be proven by itself."""
        others = [] if strongest.key in self.proven_alone else self.waiting(None)
        return self.gains.joined([one for one in others if one.key not in self.proven_alone], strongest)

    def _autotune_everywhere(self, plan: Plan | None) -> tuple[str, list[Plan]]:
        """All that leaves its numbers to AUTOTUNE, added to `plan`: a candidate once, whatever its parts show alone.

        Behind a proven plan it is one where it likely adds something.
        """
        kit, before = self.kit, plan or self.kit.base
        out = {*self.broken, *self.proven_alone, *self.not_run()}
        parts = [one for one in self.usable if AUTOTUNE in values_of(one) and one.key not in out]
        grown = kit.composer.everything([*before.rewrites, *parts])
        raced = self.autotune_raced or grown.key in {trial.plan.key for trial in self.trials if trial.ratios}
        if raced or len(grown.rewrites) < len(before.rewrites) + 2:
            return "", []
        self.autotune_raced = True
        known = self.gains.of(grown, before)
        unlikely = known.hopeless if plan is None else known.probability < LIKELY_ENOUGH
        if unlikely or not kit.gate.equal(grown):
            return "", []
        self.raced[grown.key] = None
        return grown.key, [grown]
