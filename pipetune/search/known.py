"""What a search knows while it runs: its state, and nothing of its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.results import Interval, Rate, Trial
from pipetune.core.session import RejectionReason
from pipetune.core.settings import Settings
from pipetune.search.expectation import Expectation
from pipetune.search.finalists import Finalists
from pipetune.search.forecast import Expected, Forecast
from pipetune.search.kit import SearchContext


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
        self.ended_early = False  # something could not be run
        shares = kit.meter.runner.shares_processors
        expectation = Expectation(self.forecast, kit.base, kit.composer, shares_processors=shares)
        self.finalists = Finalists(
            kit, expectation, rewrites=self.granted, trials=self.trials, proven_alone=proven_alone
        )

    def sort_by_consent(self, *, randomness_fixed: bool) -> None:
        """Tell the rewrites that may enter the plan from those that are measured as offers only."""
        for rewrite in self.candidates:
            allowed = self.settings.permits(rewrite.safety, rewrite.needs, randomness_fixed=randomness_fixed)
            granted = self.inside if rewrite.only_training else self.granted
            (granted if allowed else self.asking).append(rewrite)
