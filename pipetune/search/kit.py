"""What every step of a search works with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.core.edits import Plan
from pipetune.core.results import Trial
from pipetune.core.time_plan import Part
from pipetune.search.composing import Composer
from pipetune.search.equality import EqualityGate
from pipetune.search.meter import Meter
from pipetune.search.race import Arm, Decision, decide, measure_round
from pipetune.search.runner import Notify
from pipetune.search.statistics import FIRST_RACE, TOTAL_ERROR, USUAL_PAIRS


@dataclass
class SearchContext:
    """The tools of one search, and what its decisions are made by."""

    base: Plan  # the pipeline as written: what gains are over
    meter: Meter
    composer: Composer
    gate: EqualityGate
    draw: random.Random
    notify: Notify
    unit: str = "input"  # "input" or "training": whose windows decide
    races: int = 0  # so far
    error: float = TOTAL_ERROR  # not spent yet

    def race(self, plans: Sequence[Plan], base: Plan, part: Part, *, earlier: Sequence[float] = ()) -> Decision:
        """Decide on `plans` against `base` (`decide`), with this race's share of the error of the session.

        Args:
            earlier: ratios of a race of an earlier session that this one goes on with.
        """
        share = self.error * (0.5 if self.races else FIRST_RACE)
        self.races += 1
        self.error -= share
        decision = decide(
            plans, base, self.meter, draw=self.draw, unit=self.unit, part=part, error=share, earlier=earlier
        )
        self.tell(decision.trials)
        return decision

    def round(self, arms: Sequence[Arm], part: Part) -> None:
        """One window of every running arm; raises as `measure_round`."""
        measure_round(arms, self.meter, self.draw, part=part)

    def seconds(self, arms: int, *, rounds: int) -> float:
        """Seconds that `rounds` rounds of `arms` windows are expected to take."""
        return arms * rounds * self.meter.cost(self.unit)

    def affords_race(self, plans: int, part: Part = Part.SEARCH, *, rounds: int = USUAL_PAIRS) -> bool:
        """Whether `part` has time for so many rounds of this many plans and the base."""
        return self.meter.budget.affords(part, self.seconds(plans + 1, rounds=rounds))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Tells the listener of finished trials."""
        for trial in trials:
            self.notify("trial", trial=trial)
