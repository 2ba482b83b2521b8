"""The search: from legal rewrites to the one plan that planned measurements prove."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.measurement import Interval, Outcome, OutOfBudget, RunFailed, Trial
from pipetune.core.session import Offer
from pipetune.core.settings import Settings
from pipetune.search.ablation import ablate
from pipetune.search.baselines import DEFAULTS, choose_steps, choose_window, fit_windows, measure_baselines
from pipetune.search.budget import Budget, Part
from pipetune.search.composing import Composer, Conflict, no_conflict, structural
from pipetune.search.deciding import decide
from pipetune.search.equality import EqualityGate
from pipetune.search.equals import measure_equals
from pipetune.search.finalists import find_finalists
from pipetune.search.forecast import Expected
from pipetune.search.inside import try_inside
from pipetune.search.kit import Kit
from pipetune.search.known import Known
from pipetune.search.meter import Meter
from pipetune.search.numbers import try_numbers
from pipetune.search.offers import measure_offers
from pipetune.search.result import SearchResult
from pipetune.search.runner import Clock, Notify, Runner, SystemClock, silent
from pipetune.search.statistics import LOOKS, ratio_interval
from pipetune.search.summing_up import ending, summed_up


def search(
    candidates: Sequence[Rewrite],
    runner: Runner,
    *,
    baselines: Mapping[str, Plan],
    settings: Settings,
    randomness_fixed: bool,
    memory_limit_bytes: float | None = None,
    clock: Clock | None = None,
    budget: Budget | None = None,
    notify: Notify = silent,
    expected: Expected | None = None,
    failed: Mapping[str, str] | None = None,
    conflict: Conflict = no_conflict,
) -> SearchResult:
    """Find the plan that is proven faster than `baselines["defaults"]`, smallest first, or none.

    Baselines, screening, paired decision, numbers, ablation, offers, each within its share of the budget.
    Failing, refused, unequal and slower plans are trials like any other. Nothing is raised for want of time
    or for windows that fail: the result says so.

    Args:
        candidates: legal rewrites, in the order in which their edits may be applied together; where nothing
            is measured the earlier one stands for its group.
        baselines: the plans "off", "defaults", "autotune"; "defaults" must be there.
        randomness_fixed: whether the script fixes randomness anywhere (then STATISTICAL needs consent).
        memory_limit_bytes: plans the runner predicts above it are refused; None for no limit.
        budget: made from `settings.budget_seconds` where None; hand the same one to `confirm`.
        expected: what the model predicts of a plan; the most promising are then screened first, and what it
            expects to lose, by more than it was wrong on the baselines, is not run.
        failed: keys of plans that ended a worker before, with the reason; they fail without being run.
        conflict: why rewrites, each legal alone, must not stand in one plan.
    """
    clock = clock or SystemClock()
    budget = budget or Budget(settings.budget_seconds, clock)
    length = min(max(settings.budget_seconds / 200, 0.3), 1.0)
    composer = Composer(tuple(candidates), conflict=conflict)
    meter = Meter(
        runner,
        clock,
        budget=budget,
        memory_limit_bytes=memory_limit_bytes,
        window_seconds=length,
        warmup_seconds=length / 2,
        failed=failed,
        conflict=composer.conflict,
        notify=notify,
    )
    kit = Kit(
        base=baselines[DEFAULTS],
        meter=meter,
        composer=composer,
        gate=EqualityGate(runner, clock, notify=notify),
        draw=random.Random(settings.seed),
        notify=notify,
    )
    session = _Search(candidates, kit, baselines=baselines, settings=settings, expected=expected)
    session.sort_by_consent(randomness_fixed=randomness_fixed)
    return session.run()


class _Search(Known):
    """One search: the steps in order."""

    def run(self) -> SearchResult:
        try:
            self.measure_baselines()
        except RunFailed as problem:
            self.ended_early = True
            return summed_up(self, f"Nothing could be tried: {str(problem).rstrip('.')}.")
        except OutOfBudget:
            self.too_small = True
            return summed_up(self, ending(self))
        self.choose_unit()
        gains: dict[str, Interval] = {}
        try:
            if self.granted:
                self.decide(self.find_finalists())
            if self.chosen:
                self.try_numbers()
                gains = self.ablate()
            gains |= self.try_inside()
        except RunFailed as problem:
            self.ended_early = True
            self.notes.append(f"The search ended early: {str(problem).rstrip('.')}.")
        self.kit.notify("stage", name="offers")
        offers, tried = measure_offers(
            structural(self.asking), self.chosen, self.kit, settings=self.settings, forecast=self.forecast
        )
        self.trials += tried
        offers += self.offer_equals()
        return summed_up(self, ending(self), gains=gains, offers=offers)

    def offer_equals(self) -> list[Offer]:
        """Rewrites worth an offer where they are not slower, those that are not in the plan anyway."""
        kept = {rewrite.key for rewrite in self.chosen.rewrites} if self.chosen else set()
        wanted = [one for one in self.granted if one.equal_is_enough and one.key not in kept]
        found = measure_equals(wanted, self.chosen, self.kit)
        self.trials += found.trials
        return found.offers

    def measure_baselines(self) -> None:
        self.kit.notify("stage", name="baselines")
        self.rates, trials = measure_baselines(
            self.baselines, self.kit.meter, draw=self.kit.draw, notify=self.kit.notify
        )
        self.trials += trials
        self.forecast.learn(self.rates)
        factor = choose_window(self.kit.base, self.kit.meter)
        if factor > 1:
            self.notes.append(f"Windows were made {factor} times as long: neighbouring ones were correlated.")
        fit_windows(self.kit.meter)

    def choose_unit(self) -> None:
        """Training steps decide where model and input share processors, if the consumer can be switched."""
        runner = self.kit.meter.runner
        if not (runner.trains and runner.shares_processors):
            return
        try:
            choose_steps(self.kit.base, self.kit.meter, steps=self.settings.steps)
        except (RunFailed, OutOfBudget) as problem:
            self.notes.append(f"Plans were compared by the input alone: {str(problem).rstrip('.')}.")
            return
        self.kit.unit = "training"

    def find_finalists(self) -> Sequence[Plan]:
        self.kit.notify("stage", name="screening")
        self.screened = find_finalists(self.granted, self.kit, forecast=self.forecast)
        self.trials += self.screened.trials
        return self.screened.plans

    def decide(self, finalists: Sequence[Plan]) -> None:
        """Prove the finalists against the pipeline as written; of several proven at once keep the smallest.

        A larger one takes its place only where it is faster than that with its whole 95 % interval.
        """
        if not finalists:
            self.too_small = not self.kit.affords_decision(1)
            return
        self.kit.notify("stage", name="decision")
        part = self._room_to_decide(len(finalists))
        decision = decide(
            finalists,
            self.kit.base,
            self.kit.meter,
            draw=self.kit.draw,
            unit=self.kit.unit,
            part=part,
            last=Part.ABLATION,  # what nobody decided on needs no ablation
        )
        self.kit.tell(decision.trials)
        self.trials += decision.trials
        self.too_small = not decision.accepted and any(
            trial.outcome is Outcome.UNDECIDED for trial in decision.trials
        )
        for trial in sorted(decision.accepted, key=lambda trial: len(trial.plan.rewrites)):
            if self.accepted is None or _faster(trial, self.accepted):
                self.accepted, self.chosen = trial, trial.plan
        if self.accepted:
            self.kit.notify("best", plan=self.accepted.plan, gain=self.accepted.gain)

    def _room_to_decide(self, plans: int) -> Part:
        """The part whose time the decision may use: what nobody decided on needs no ablation.

        Windows are shortened where even that has no room for the first look.
        """
        if self.kit.affords_decision(plans):
            return Part.SEARCH
        left = self.kit.meter.budget.left(Part.ABLATION)
        self.kit.meter.shorten(self.kit.unit, seconds=0.95 * left / (LOOKS[0] * (plans + 1)))
        return Part.ABLATION

    def try_numbers(self) -> None:
        assert self.chosen is not None
        self.chosen, tried = try_numbers(self.chosen, self.granted, self.kit)
        self.trials += tried

    def ablate(self) -> dict[str, Interval]:
        """Drop what adds nothing; the plan left must itself pass the equality gate, or the whole stays."""
        assert self.chosen is not None
        self.kit.notify("stage", name="ablation")
        found = ablate(self.chosen, self.kit, promise=self.screened.promise)
        self.trials += found.trials
        if found.note:
            self.notes.append(found.note)
        gains = dict(found.gains)
        if len(self.chosen.rewrites) == 1 and self.accepted and self.accepted.gain:
            gains[self.chosen.rewrites[0].key] = self.accepted.gain
        if found.plan.rewrites and not self.kit.composer.conflict(found.plan) and self.kit.gate.equal(found.plan):
            self.chosen = found.plan
        return gains

    def try_inside(self) -> dict[str, Interval]:
        """Add what gains inside the training step only, where training steps prove it faster than without."""
        found = try_inside(structural(self.inside), self.chosen, self.kit, steps=self.settings.steps)
        self.chosen, self.accepted = found.plan, self.accepted or found.accepted
        self.trials += found.trials
        self.left_inside = found.why
        return found.gains


def _faster(trial: Trial, other: Trial) -> bool:
    """Whether the whole 95 % interval of `trial` over `other` is above 1; both from the same rounds."""
    sample = [one / two for one, two in zip(trial.ratios, other.ratios, strict=False)]
    return len(sample) >= 2 and ratio_interval(sample).low > 1.0
