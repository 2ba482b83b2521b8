"""What a search knows while it runs: its state, and nothing of its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, Outcome, Rate, Trial
from pipetune.core.session import Candidate, RejectionReason
from pipetune.core.settings import Settings
from pipetune.search.evidence import Evidence, evidence
from pipetune.search.expectation import WORTH, Expectation, Expected, Forecast, MostGain
from pipetune.search.finalists import Finalists
from pipetune.search.kit import SearchContext
from pipetune.search.resuming import EarlierRace


class SearchState:
    """What one search works with, and what it knows so far."""

    def __init__(
        self,
        candidates: Sequence[Rewrite],
        kit: SearchContext,
        *,
        baselines: Mapping[str, Plan],
        settings: Settings,
        expected: Expected | None,
        proven_alone: Collection[str],
        only_promising: bool,
        most_gain: MostGain | None,
        earlier: EarlierRace | None,
    ) -> None:
        self.candidates = tuple(candidates)
        self.kit = kit
        self.baselines = baselines
        self.settings = settings
        self.forecast = Forecast(expected)
        self.trials: list[Trial] = []
        self.rates: dict[str, Rate] = {}
        self.notes: list[str] = []
        self.gains: dict[str, Interval] = {}  # by rewrite key: what each added to the plan that it was tried with
        self.granted: list[Rewrite] = []
        self.inside: list[Rewrite] = []  # granted, and to be measured inside training steps only
        self.left_inside: dict[str, tuple[RejectionReason, str]] = {}  # keys of those that are not in the plan, and why
        self.asking: list[Rewrite] = []
        self.chosen: Plan | None = None
        self.accepted: Trial | None = None
        self.candidate: Candidate | None = None  # where nothing is proven: what is most probably faster
        self.most_gain = most_gain
        self.earlier = earlier
        self.ended_early = False  # something could not be run
        shares = kit.meter.runner.shares_processors
        expectation = Expectation(self.forecast, kit.base, kit.composer, shares_processors=shares)
        self.finalists = Finalists(
            kit,
            expectation,
            rewrites=self.granted,
            trials=self.trials,
            proven_alone=proven_alone,
            only_promising=only_promising,
        )

    def sort_by_consent(self, *, randomness_fixed: bool) -> None:
        """Tell the rewrites that may enter the plan from those that are measured as offers only."""
        for rewrite in self.candidates:
            allowed = self.settings.permits(rewrite.safety, rewrite.needs, randomness_fixed=randomness_fixed)
            granted = self.inside if rewrite.only_training else self.granted
            (granted if allowed else self.asking).append(rewrite)

    def open_plans(self) -> list[Plan]:
        """Returns the plans that may gain and that no race has decided on; they may stand in the user's script.

        Each rewrite alone of which there is a window, or a gain is predicted; what was raced; and the strongest rewrite
        with all that the model expects to add to it.
        """
        expectation = self.finalists.expectation
        usable = [one for one in self.finalists.rewrites if one.key not in self.finalists.proven_alone]
        known = [one for one in usable if one.key in expectation.screened or self._is_predicted_to_gain(one)]
        plans = [self.kit.composer.plan([one]) for one in known]
        if ranked := expectation.ranked(known):
            plans.append(expectation.joined(ranked, ranked[0]))
        found = {plan.key: plan for plan in (*plans, *(trial.plan for trial in self._raced()))}
        decided = {trial.plan.key for trial in self._raced() if trial.outcome is Outcome.REJECTED}
        unusable = {*self.kit.gate.blamed, *self.finalists.proven_alone}
        return [
            plan
            for key, plan in found.items()
            if key not in decided and not any(one.key in unusable for one in plan.rewrites)
        ]

    def _is_predicted_to_gain(self, rewrite: Rewrite) -> bool:
        belief = self.finalists.expectation.of(rewrite)
        return belief.predicted is not None and belief.mean >= WORTH

    def evidence(self, plan: Plan) -> Evidence:
        """Returns what is known of the gain of a plan over the pipeline as written, where nothing is proven."""
        ratios = [ratio for trial in self._raced() if trial.plan.key == plan.key for ratio in trial.ratios]
        trains = self.kit.unit == "training"
        limit = self.most_gain(self.forecast.of(plan)) if trains and self.most_gain is not None else None
        expectation = self.finalists.expectation
        short = [one.rate for one in expectation.screened.get(plan.key, [])]
        return evidence(expectation.predicted(plan), short, ratios, spread=expectation.spread, most_gain=limit)

    def _raced(self) -> list[Trial]:
        usable = (Outcome.REJECTED, Outcome.UNDECIDED, Outcome.ACCEPTED)
        return [
            trial
            for trial in self.trials
            if trial.kind == "search" and trial.ratios and trial.unit == self.kit.unit and trial.outcome in usable
        ]
