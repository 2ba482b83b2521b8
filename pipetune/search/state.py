"""What a search knows while it runs, and nothing of its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.profile import LEAST_POSSIBLE_GAIN
from pipetune.core.results import Interval, Outcome, Rate, Trial
from pipetune.core.session import Candidate, RejectionReason
from pipetune.core.settings import Settings
from pipetune.search.candidates import Candidates
from pipetune.search.composing import structural
from pipetune.search.evidence import WORTH, Gains
from pipetune.search.kit import SearchContext

HEADROOM = 1.5
"""How many times as fast as the step the input must be where another processor takes the step; by judgement: while the
script trains, the host launches the steps, too."""


class SearchState:
    """What one search works with, and what it knows so far.

    Args:
        candidates: legal rewrites, in the order in which their edits may be applied together.
        kit: the tools of the search.
        gains: what is known of the gain of every plan.
        baselines: the plans "off", "defaults", "autotune".
        settings: the consent given, the budget, the seed.
        randomness_fixed: whether the script fixes randomness anywhere (then STATISTICAL needs consent).
        proven_alone: keys of rewrites that enter a plan only where they are proven better by themselves.
        only_promising: whether only rewrites that the model expects to gain are tried.
        bound_seconds: of a training step on one repeated batch; None where unknown.
    """

    def __init__(
        self,
        candidates: Sequence[Rewrite],
        kit: SearchContext,
        gains: Gains,
        *,
        baselines: Mapping[str, Plan],
        settings: Settings,
        randomness_fixed: bool,
        proven_alone: Collection[str],
        only_promising: bool,
        bound_seconds: float | None,
    ) -> None:
        self.candidates = tuple(candidates)
        self.kit = kit
        self.gains = gains
        self.baselines = baselines
        self.settings = settings
        self.bound_seconds = bound_seconds
        self.trials: list[Trial] = []
        self.rates: dict[str, Rate] = {}
        self.notes: list[str] = []
        self.added: dict[str, Interval] = {}  # by rewrite key: what each added to the plan that it was tried with
        self.left_inside: dict[str, tuple[RejectionReason, str]] = {}  # by key, why it is not in the plan
        self.chosen: Plan | None = None
        self.accepted: Trial | None = None
        self.candidate: Candidate | None = None  # where nothing is proven: what is most probably faster
        self.ended_early = False  # something could not be run
        granted = [
            one for one in candidates if settings.permits(one.safety, one.needs, randomness_fixed=randomness_fixed)
        ]
        self.asking = [one for one in candidates if one not in granted]  # measured as offers only
        self.inside = [one for one in granted if one.only_training]  # to be measured inside training steps only
        self.granted = [one for one in granted if not one.only_training]
        self.tried = Candidates(
            kit, gains, self.granted, self.trials, proven_alone=proven_alone, only_promising=only_promising
        )

    def at_bound(self, plan: Plan | None) -> bool:
        """Whether training hardly waits with this plan, so that nothing could add `LEAST_POSSIBLE_GAIN` to it.

        A step takes hardly longer than on one repeated batch; where another processor takes the step, the input alone
        is faster than that by `HEADROOM`.
        """
        if plan is None or self.bound_seconds is None:
            return False
        if self.kit.unit == "training":
            step = self.kit.meter.median_step(plan, "training")
            return step is not None and step < LEAST_POSSIBLE_GAIN * self.bound_seconds
        element = self.kit.meter.median_step(plan, "input")
        apart = not self.kit.meter.runner.shares_processors
        return apart and element is not None and HEADROOM * element < self.bound_seconds

    def optional(self) -> list[Rewrite]:
        """Returns what is not in the plan and may be offered: what needs consent, and what needs only be as fast."""
        kept = {one.key for one in self.chosen.rewrites} if self.chosen else set()
        as_fast = [one for one in self.granted if one.equal_is_enough and one.key not in kept]
        return [*structural(self.asking), *as_fast]

    def raced(self) -> list[Trial]:
        """Returns the trials of the races that came to a pair, in the unit that decides."""
        return [
            trial for trial in self.trials if trial.kind == "search" and trial.ratios and trial.unit == self.kit.unit
        ]

    def open_plans(self) -> list[Plan]:
        """Returns the plans that may gain and that no race has decided on; they may stand in the user's script.

        Each rewrite alone of which there is a window, or a gain is predicted; what was raced; and the strongest rewrite
        with all that the model expects to add to it.
        """
        tried, raced = self.tried, self.raced()
        out = {*tried.proven_alone, *tried.broken, *self.kit.gate.blamed}
        usable = [one for one in tried.usable if one.key not in out]
        known = [one for one in usable if one.key in self.gains.shown or self._is_predicted_to_gain(one)]
        plans = [self.kit.composer.plan([one]) for one in known]
        if ranked := self.gains.ranked(known):
            plans.append(self.gains.joined(ranked, ranked[0]))
        found = {plan.key: plan for plan in (*plans, *(trial.plan for trial in raced))}
        ended = {trial.plan.key for trial in raced if trial.outcome not in (Outcome.UNDECIDED, Outcome.ACCEPTED)}
        return [
            plan for key, plan in found.items() if key not in ended and not any(one.key in out for one in plan.rewrites)
        ]

    def _is_predicted_to_gain(self, rewrite: Rewrite) -> bool:
        known = self.gains.added(rewrite)
        return known.predicted is not None and known.expected >= WORTH
