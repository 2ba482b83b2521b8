"""The search: from legal rewrites to the one plan that planned measurements prove."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Outcome, OutOfBudget, RunFailed, Trial
from pipetune.core.session import LIKELY_FROM, NOTHING_BELOW, Candidate, RejectionReason
from pipetune.core.settings import Settings
from pipetune.core.time_plan import COMPARISON, Clock, Part, SystemClock, TimePlan
from pipetune.search.ablation import ablate, with_sparing
from pipetune.search.baselines import DEFAULTS, choose_steps, fit_windows, measure_baselines, rate_from
from pipetune.search.candidates import REASONS
from pipetune.search.composing import Composer, Conflict, no_conflict, structural
from pipetune.search.equality import EqualityGate
from pipetune.search.evidence import Expected, Forecast, Gains, MostGain
from pipetune.search.kit import SearchContext
from pipetune.search.meter import Meter, Refused
from pipetune.search.offers import measure_offers
from pipetune.search.race import Decision
from pipetune.search.result import SearchResult
from pipetune.search.resuming import EarlierRace
from pipetune.search.runner import Notify, Runner, silent
from pipetune.search.state import SearchState
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
    bound_seconds: float | None = None,
    earlier: EarlierRace | None = None,
) -> SearchResult:
    """Find the plan that is proven faster than `baselines["defaults"]`, smallest first, or none.

    Races, ablation; then, from what is left, what only informs: optional rewrites and baselines. Failing, refused,
    unequal and slower plans are trials like any other. Nothing is raised for want of time or for windows that fail: the
    result says so.

    Args:
        candidates: legal rewrites, in the order in which their edits may be applied together; where nothing
            is measured the earlier one stands for its group.
        runner: takes the windows.
        baselines: the plans "off", "defaults", "autotune"; "defaults" must be there.
        settings: the consent given, the budget, the seed.
        randomness_fixed: whether the script fixes randomness anywhere (then STATISTICAL needs consent).
        memory_limit_bytes: plans the runner predicts above it are refused; None for no limit.
        clock: what the time is measured by.
        budget: of the whole analysis; made from the settings where None.
        notify: hears what is tried and found.
        expected: what the model predicts of a plan; what is expected to gain most is tried first, and what it expects
            to lose beyond doubt is not run.
        failed: keys of plans that ended a worker before, with the reason; they fail without being run.
        conflict: why rewrites, each legal alone, must not stand in one plan.
        proven_alone: keys of rewrites that enter a plan only where they are proven better by themselves.
        only_promising: whether only rewrites that the model expects to gain are tried: little can be gained.
        most_gain: what training could gain at most, by what is predicted of a plan; None where that is unknown.
        bound_seconds: of a training step on one repeated batch, the least that it can take; None where unknown.
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
        Gains(Forecast(expected), kit.base, composer, shares_processors=runner.shares_processors),
        baselines=baselines,
        settings=settings,
        randomness_fixed=randomness_fixed,
        proven_alone=proven_alone,
        only_promising=only_promising,
        bound_seconds=bound_seconds,
    )
    return session.run(most_gain=most_gain, earlier=earlier)


class _Search(SearchState):
    """One search: the steps in order."""

    def run(self, *, most_gain: MostGain | None, earlier: EarlierRace | None) -> SearchResult:
        try:
            self.begin()
        except RunFailed as problem:
            self.ended_early = True
            return summed_up(self, why=f"Nothing could be tried: {str(problem).rstrip('.')}.")
        except OutOfBudget:
            return summed_up(self)
        self.choose_unit()
        if self.kit.unit == "training":
            self.gains.most_gain = most_gain
        try:
            if earlier is not None:
                self.go_on(earlier)
            if self.granted and self.chosen is None:
                self.race()
            if self.chosen is not None:
                self.ablate()
            self.try_inside()
        except RunFailed as problem:
            self.ended_early = True
            self.notes.append(f"The search ended early: {str(problem).rstrip('.')}.")
        if self.chosen is None:
            self.find_candidate()
        self.kit.meter.budget.decide(verifies=self.chosen is not None)
        offers, trials = measure_offers(self.optional(), self.chosen, self.kit, self.gains, settings=self.settings)
        self.trials += trials
        if self.chosen is None:  # otherwise they are measured beside the proven plan
            self.measure_baselines()
        return summed_up(self, offers=offers)

    # -- before the first race

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

    def go_on(self, earlier: EarlierRace) -> None:
        """Goes on with the race of an earlier session."""
        self.kit.races, self.kit.error = 1, earlier.error
        plan = self.kit.composer.plan([one for one in self.granted if one.key in earlier.keys])
        if len(plan.rewrites) < len(earlier.keys) or self.kit.composer.conflict(plan):
            self.notes.append("The plan of the earlier session is not legal any more: the search began from the start.")
            return
        if self.kit.gate.equal(plan):
            key = plan.rewrites[0].key if len(plan.rewrites) == 1 else plan.key
            self.decide(key, [plan], earlier=earlier.ratios if earlier.unit == self.kit.unit else ())

    # -- races

    def race(self) -> None:
        """Races the next best plans against the best so far until none is left that is expected to gain, or no time.

        It ends, too, where the best so far leaves nothing to gain. Before each race short windows are taken of what a
        gain may be expected of.
        """
        while not self.at_bound(self.chosen) and self._time_for_a_race():
            self.kit.notify("stage", name="screening")
            if self.tried.look(self.chosen, self._part):
                continue
            key, plans = self.tried.next_race(self.chosen)
            if plans:
                self.decide(key, plans)
            elif not self.tried.look_again(self.chosen, self._part):
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

    def decide(self, key: str, plans: Sequence[Plan], *, earlier: Sequence[float] = ()) -> None:
        """Races plans against the best so far; of several proven at once the smallest is kept.

        A larger one takes its place only where it is faster than that with its whole 95 % interval, and training still
        waits with the smaller one.

        Args:
            key: of the one rewrite more that the first of the plans has.
            plans: the smallest first.
            earlier: ratios of an earlier race of the one plan.
        """
        self.kit.notify("stage", name="decision")
        decision = self.kit.race(plans, self.chosen or self.kit.base, self._part, earlier=earlier)
        self.learn(decision, self.chosen or self.kit.base)
        single = self.tried.raced[key] = decision.trials[0]
        best = single if single.outcome is Outcome.ACCEPTED else None
        for trial in decision.accepted:
            if best is None or (not self.at_bound(best.plan) and _faster(trial, best)):
                best = trial
        if best is None:
            return
        if best is single and best.gain and key in {one.key for one in best.plan.rewrites}:
            self.added[key] = best.gain
        self.chosen, self.accepted = best.plan, self.accepted or best
        self.kit.notify("best", plan=self.chosen, gain=self.accepted.gain)

    def learn(self, decision: Decision, over: Plan) -> None:
        """Keeps what the pairs of a race show."""
        self.trials += decision.trials
        for trial in decision.trials:
            if trial.ratios:
                self.gains.pairs[trial.plan.key, over.key] = trial.ratios
            if trial.outcome in (Outcome.FAILED, Outcome.REFUSED) and len(trial.plan.rewrites) == 1:
                self.tried.broken[trial.plan.rewrites[0].key] = REASONS[trial.outcome], trial.why

    def ablate(self) -> None:
        """Drops what adds nothing; the plan left must itself pass the equality gate, or the whole stays."""
        assert self.chosen is not None
        self.kit.notify("stage", name="ablation")
        proven, whole = self.chosen, with_sparing(self.chosen, self.tried.left(), self.gains, self.kit)
        found = ablate(whole, self.kit, self.gains)
        self.trials += found.trials
        self.notes += found.notes
        self.added |= found.gains
        kept = found.plan if found.gains else proven
        fits = kept.rewrites and not self.kit.composer.conflict(kept) and self.kit.gate.equal(kept)
        self.chosen = kept if fits else whole

    def try_inside(self) -> None:
        """Adds what gains inside the training step only, as a copy to the device does, where training steps prove it.

        The first that is proven faster enters the plan. Nothing is measured where the consumer cannot be switched.
        """
        reference, composer = self.chosen or self.kit.base, self.kit.composer
        part = Part.ABLATION if self.chosen else Part.EXTENSION
        rewrites = [one for one in structural(self.inside) if not composer.conflict(composer.added(reference, one))]
        if not rewrites:
            return
        kit = replace(self.kit, unit="training")
        reason, why = RejectionReason.REFUSED, self._not_inside(kit)
        plans = {composer.added(reference, one).key: one for one in rewrites}
        tried = [composer.added(reference, one) for one in rewrites]
        tried = [plan for plan in tried if not why and kit.gate.equal(plan)]
        while tried and not kit.affords_race(len(tried), part):
            tried.pop()
            reason, why = RejectionReason.NO_TIME, "no time was left to measure it inside the training step"
        if why:
            self.left_inside = {one.key: (reason, why) for one in rewrites}
        if not tried:
            return
        kit.notify("stage", name="inside")
        try:
            decision = kit.race(tried, reference, part)
        except RunFailed as problem:
            self.left_inside = {one.key: (RejectionReason.FAILED, str(problem)) for one in rewrites}
            return
        self.learn(decision, reference)
        for trial in decision.trials:
            self.left_inside[plans[trial.plan.key].key] = REASONS[trial.outcome], trial.why
        for best in decision.accepted[:1]:
            self.chosen, self.accepted = best.plan, self.accepted or best
            self.left_inside.pop(plans[best.plan.key].key)
            if best.gain is not None:
                self.added[plans[best.plan.key].key] = best.gain

    def _not_inside(self, kit: SearchContext) -> str:
        """Why training windows cannot be taken, or ''; finds how long they are where that is not known yet."""
        if not kit.meter.runner.trains:
            return "its gain shows inside the training step only, and no other input can be served there"
        try:
            if not kit.meter.knows(kit.unit):
                choose_steps(kit.base, kit.meter, steps=self.settings.steps)
        except (RunFailed, OutOfBudget) as problem:
            return f"it could not be measured inside the training step: {problem}"
        return ""

    # -- where nothing is proven

    def find_candidate(self) -> None:
        """Keeps the plan that most probably gains, though none was proven: of those likely to, the one that gains most.

        It must yield the same data. What is not compared yet is compared in the time that nothing has to be verified
        in.
        """
        gate, meter = self.kit.gate, self.kit.meter
        found = [(self.gains.told(plan), plan) for plan in self.open_plans()]
        found = [(known, plan) for known, plan in found if known.probability >= NOTHING_BELOW]
        found.sort(key=lambda one: (min(one[0].probability, LIKELY_FROM), one[0].mean), reverse=True)
        for known, plan in found:
            cost = gate.cost(meter.budget.usual_seconds(COMPARISON))
            if gate.comparison(plan) is None and not meter.budget.affords(Part.VERIFICATION, cost):
                continue
            if gate.equal(plan):
                pairs = len(self.gains.pairs.get((plan.key, self.kit.base.key), ()))
                self.candidate = Candidate(
                    plan,
                    gain=replace(known.interval, pairs=pairs),
                    probability=known.probability,
                    unit=self.kit.unit,
                    why=self._why_unproven(pairs),
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

    # -- what only informs

    def measure_baselines(self) -> None:
        self.kit.notify("stage", name="baselines")
        rates, trials = measure_baselines(self.baselines, self.kit.meter, draw=self.kit.draw, notify=self.kit.notify)
        self.rates |= rates
        self.trials += trials


def _faster(trial: Trial, other: Trial) -> bool:
    """Whether the whole 95 % interval of `trial` over `other` is above 1; both from the same rounds."""
    sample = [one / two for one, two in zip(trial.ratios, other.ratios, strict=False)]
    return len(sample) >= 2 and ratio_interval(sample).low > 1.0
