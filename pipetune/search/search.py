"""The search: from legal rewrites to the one plan that planned measurements prove."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Outcome, OutOfBudget, RunFailed, Trial
from pipetune.core.session import LIKELY_FROM, NOTHING_BELOW, Candidate, OptionalRewrite
from pipetune.core.settings import Settings
from pipetune.core.time_plan import COMPARISON, Clock, Part, SystemClock, TimePlan
from pipetune.search.ablation import ablate, with_sparing
from pipetune.search.baselines import DEFAULTS, choose_steps, fit_windows, measure_baselines, rate_from
from pipetune.search.composing import Composer, Conflict, no_conflict, structural
from pipetune.search.equality import EqualityGate
from pipetune.search.expectation import Expected, MostGain
from pipetune.search.inside import try_inside
from pipetune.search.kit import SearchContext
from pipetune.search.known import SearchState
from pipetune.search.meter import Meter, Refused
from pipetune.search.numbers import try_numbers
from pipetune.search.offers import measure_equals, measure_offers
from pipetune.search.result import SearchResult
from pipetune.search.resuming import EarlierRace
from pipetune.search.runner import Notify, Runner, silent
from pipetune.search.statistics import LOOKS, USUAL_PAIRS, ratio_interval
from pipetune.search.summing_up import summed_up


def search(
    candidates: Sequence[Rewrite],
    runner: Runner,
    *,
    baselines: Mapping[str, Plan],
    settings: Settings,
    randomness_fixed: bool,
    memory_limit_bytes: float | None = None,
    clock: Clock | None = None,
    budget: TimePlan | None = None,
    notify: Notify = silent,
    expected: Expected | None = None,
    failed: Mapping[str, str] | None = None,
    conflict: Conflict = no_conflict,
    proven_alone: Collection[str] = (),
    only_promising: bool = False,
    most_gain: MostGain | None = None,
    earlier: EarlierRace | None = None,
) -> SearchResult:
    """Find the plan that is proven faster than `baselines["defaults"]`, smallest first, or none.

    Screening, races, numbers, ablation; then, from what is left, what only informs: optional rewrites and baselines.
    Failing, refused, unequal and slower plans are trials like any other. Nothing is raised for want of time or for
    windows that fail: the result says so.

    Args:
        candidates: legal rewrites, in the order in which their edits may be applied together; where nothing
            is measured the earlier one stands for its group.
        baselines: the plans "off", "defaults", "autotune"; "defaults" must be there.
        randomness_fixed: whether the script fixes randomness anywhere (then STATISTICAL needs consent).
        memory_limit_bytes: plans the runner predicts above it are refused; None for no limit.
        budget: of the whole analysis; made from the settings where None.
        expected: what the model predicts of a plan; the most promising are then screened first, and what it
            expects to lose, by more than it was wrong on the baselines, is not run.
        failed: keys of plans that ended a worker before, with the reason; they fail without being run.
        conflict: why rewrites, each legal alone, must not stand in one plan.
        proven_alone: keys of rewrites that enter a plan only where they are proven better by themselves.
        only_promising: whether only rewrites that the model expects to gain are tried: little can be gained.
        most_gain: what training could gain at most, by what is predicted of a plan; None where that is unknown.
        earlier: the race of an earlier session to go on with first.
    """
    clock = clock or SystemClock()
    budget = budget or TimePlan.of(settings, clock)
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
    kit = SearchContext(
        base=baselines[DEFAULTS],
        meter=meter,
        composer=composer,
        gate=EqualityGate(runner, clock, notify=notify),
        draw=random.Random(settings.seed),
        notify=notify,
    )
    session = _Search(
        candidates,
        kit,
        baselines=baselines,
        settings=settings,
        expected=expected,
        proven_alone=proven_alone,
        only_promising=only_promising,
        most_gain=most_gain,
        earlier=earlier,
    )
    session.sort_by_consent(randomness_fixed=randomness_fixed)
    return session.run()


class _Search(SearchState):
    """One search: the steps in order."""

    def run(self) -> SearchResult:
        try:
            self.begin()
        except RunFailed as problem:
            self.ended_early = True
            return summed_up(self, why=f"Nothing could be tried: {str(problem).rstrip('.')}.")
        except OutOfBudget:
            return summed_up(self)
        self.choose_unit()
        try:
            if self.granted and not self.go_on():
                self.race()
            if self.chosen:
                self.try_numbers()
                self.ablate()
            self.try_inside()
        except RunFailed as problem:
            self.ended_early = True
            self.notes.append(f"The search ended early: {str(problem).rstrip('.')}.")
        if self.chosen is None:
            self.find_candidate()
        self.kit.meter.budget.decide(verifies=self.chosen is not None)
        self.kit.notify("stage", name="offers")
        offers, tried = measure_offers(
            structural(self.asking), self.chosen, self.kit, settings=self.settings, forecast=self.forecast
        )
        self.trials += tried
        offers += self.offer_equals()
        self.measure_baselines()
        return summed_up(self, offers=offers)

    def find_candidate(self) -> None:
        """Keeps the plan that most probably gains, though none was proven: of those likely to, the one that gains most.

        It must yield the same data. What is not compared yet is compared in the time that nothing has to be verified
        in.
        """
        gate, meter = self.kit.gate, self.kit.meter
        found = [(self.evidence(plan), plan) for plan in self.open_plans()]
        found = [(known, plan) for known, plan in found if known.probability >= NOTHING_BELOW]
        found.sort(key=lambda one: (min(one[0].probability, LIKELY_FROM), one[0].mean), reverse=True)
        for known, plan in found:
            cost = gate.cost(meter.budget.usual_seconds(COMPARISON))
            if gate.comparison(plan) is None and not meter.budget.affords(Part.VERIFICATION, cost):
                continue
            if gate.equal(plan):
                self.candidate = Candidate(
                    plan,
                    gain=known.interval,
                    probability=known.probability,
                    unit=self.kit.unit,
                    why=self._why_unproven(known.pairs),
                    comparison=gate.comparison(plan),
                )
                return

    def _why_unproven(self, pairs: int) -> str:
        budget = f"the {self.kit.meter.budget.seconds:.0f} s of the budget"
        if pairs == 0:
            return f"No time was left within {budget} to measure it: this is what the cost model expects."
        if pairs < LOOKS[0]:
            return f"There was no time for {LOOKS[0]} pairs of windows within {budget}."
        return f"The interval of {pairs} pairs of windows includes 1.03x, and {budget} were over."

    def offer_equals(self) -> list[OptionalRewrite]:
        """Rewrites worth an offer where they are not slower, those that are not in the plan anyway."""
        kept = {rewrite.key for rewrite in self.chosen.rewrites} if self.chosen else set()
        wanted = [one for one in self.granted if one.equal_is_enough and one.key not in kept]
        found = measure_equals(wanted, self.chosen, self.kit)
        self.trials += found.trials
        return found.offers

    def begin(self) -> None:
        """Takes one window of the pipeline as written: what a window costs is known from it.

        Raises:
            RunFailed: the pipeline cannot be measured.
            OutOfBudget: there is no time for any window.
        """
        self.kit.notify("stage", name="windows")
        try:
            window = self.kit.meter.window(self.kit.base, "input", part=Part.SEARCH)
        except (RunFailed, Refused) as problem:
            raise RunFailed(f"the pipeline as written could not be measured: {problem}") from problem
        self.rates[DEFAULTS] = rate_from([window])
        fit_windows(self.kit.meter)

    def measure_baselines(self) -> None:
        self.kit.notify("stage", name="baselines")
        rates, trials = measure_baselines(self.baselines, self.kit.meter, draw=self.kit.draw, notify=self.kit.notify)
        self.rates |= rates
        self.trials += trials

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

    def go_on(self) -> bool:
        """Goes on with the race of an earlier session; returns whether its plan is proven now."""
        if self.earlier is None:
            return False
        self.kit.races, self.kit.error = 1, self.earlier.error
        plan = self.kit.composer.plan([one for one in self.granted if one.key in self.earlier.keys])
        if len(plan.rewrites) < len(self.earlier.keys) or self.kit.composer.conflict(plan):
            self.notes.append("The plan of the earlier session is not legal any more: the search began from the start.")
            return False
        self.kit.notify("stage", name="decision")
        if not self.kit.gate.equal(plan):
            return False
        ratios = self.earlier.ratios if self.earlier.unit == self.kit.unit else ()
        decision = self.kit.race([plan], self.kit.base, self._part, earlier=ratios)
        self.trials += decision.trials
        for rewrite in plan.rewrites[: len(plan.rewrites) == 1]:
            self.finalists.raced[rewrite.key] = decision.trials[0]
        for trial in decision.accepted:
            self.chosen = self.chosen or trial.plan
            self.accepted = self.accepted or trial
            self.kit.notify("best", plan=trial.plan, gain=trial.gain)
        return self.chosen is not None

    def race(self) -> None:
        """Race the next best plans against the best so far until none is left that is expected to gain, or no time.

        What was not screened before the first race is screened where nothing more is waiting.
        """
        self.finalists.rank()
        self.kit.notify("stage", name="screening")
        self.finalists.screen(self._part)
        while self._time_for_a_race():
            plans = self.finalists.next(self.chosen)
            if plans:
                self.kit.notify("stage", name="decision")
                self.decide(plans)
            elif not self.finalists.screen(self._part, self.chosen):
                break

    def _time_for_a_race(self) -> bool:
        """Whether a later race can reach its first look; the first one is begun with any time there is.

        What is raced may cost far less than windows did so far. Windows are shortened where no usual race fits.
        """
        if self.kit.races:
            return self.kit.affords_race(1, self._part, rounds=LOOKS[0])
        if not self.kit.affords_race(1, self._part):
            left = self.kit.meter.budget.left(self._part)
            self.kit.meter.shorten(self.kit.unit, seconds=0.95 * left / (2 * USUAL_PAIRS))
        return self.kit.affords_race(1, self._part, rounds=1)

    @property
    def _part(self) -> Part:
        """Whose time races may use: without a proven plan there is nothing to ablate."""
        return Part.SEARCH if self.chosen or self.inside else Part.EXTENSION

    def decide(self, plans: Sequence[Plan]) -> None:
        """Race the plans against the best so far; of several proven at once keep the smallest.

        A larger one takes its place only where it is faster than that with its whole 95 % interval.
        """
        decision = self.kit.race(plans, self.chosen or self.kit.base, self._part)
        self.trials += decision.trials
        single = self.finalists.note(decision)
        best = single if single.outcome is Outcome.ACCEPTED else None
        for trial in decision.accepted:
            if best is None or _faster(trial, best):
                best = trial
        if best is None:
            return
        if best is single and best.gain and self.finalists.racing in {one.key for one in best.plan.rewrites}:
            self.gains[self.finalists.racing] = best.gain
        self.chosen, self.accepted = best.plan, self.accepted or best
        self.kit.notify("best", plan=self.chosen, gain=self.accepted.gain)

    def try_numbers(self) -> None:
        assert self.chosen is not None
        self.chosen, tried = try_numbers(self.chosen, self.granted, self.kit)
        self.trials += tried

    def ablate(self) -> None:
        """Drop what adds nothing; the plan left must itself pass the equality gate, or the whole stays."""
        assert self.chosen is not None
        self.kit.notify("stage", name="ablation")
        proven, self.chosen = (
            self.chosen,
            with_sparing(self.chosen, self.finalists.rewrites, self.finalists.expectation, self.kit),
        )
        found = ablate(self.chosen, self.kit)
        self.trials += found.trials
        if found.note:
            self.notes.append(found.note)
        self.gains |= found.gains
        kept = found.plan if found.gains else proven
        if kept.rewrites and not self.kit.composer.conflict(kept) and self.kit.gate.equal(kept):
            self.chosen = kept

    def try_inside(self) -> None:
        """Add what gains inside the training step only, where training steps prove it faster than without."""
        found = try_inside(structural(self.inside), self.chosen, self.kit, steps=self.settings.steps)
        self.chosen, self.accepted = found.plan, self.accepted or found.accepted
        self.trials += found.trials
        self.left_inside = found.why
        self.gains |= found.gains


def _faster(trial: Trial, other: Trial) -> bool:
    """Whether the whole 95 % interval of `trial` over `other` is above 1; both from the same rounds."""
    sample = [one / two for one, two in zip(trial.ratios, other.ratios, strict=False)]
    return len(sample) >= 2 and ratio_interval(sample).low > 1.0
