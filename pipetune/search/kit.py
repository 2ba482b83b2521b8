"""What every step of a search works with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.core.edits import Plan
from pipetune.core.measurement import Trial
from pipetune.search.budget import Part
from pipetune.search.composing import Composer
from pipetune.search.deciding import rounds_seconds
from pipetune.search.equality import EqualityGate
from pipetune.search.meter import Meter
from pipetune.search.pairs import Arm, measure_round
from pipetune.search.runner import Notify


@dataclass
class Kit:
    """The tools of one search, and what its decisions are made by."""

    base: Plan  # the pipeline as written: what gains are over
    meter: Meter
    composer: Composer
    gate: EqualityGate
    draw: random.Random
    notify: Notify
    unit: str = "input"  # "input" or "training": whose windows decide

    def round(self, arms: Sequence[Arm], part: Part) -> None:
        """One window of every running arm; raises as `measure_round`."""
        measure_round(arms, self.meter, self.draw, unit=self.unit, part=part)

    def seconds(self, arms: int, *, rounds: int) -> float:
        """Seconds that `rounds` rounds of `arms` windows are expected to take."""
        return rounds_seconds(arms, self.meter, self.unit, rounds=rounds)

    def affords_decision(self, plans: int) -> bool:
        """Whether the search part has time for a first look at this many plans."""
        return self.meter.budget.affords(Part.SEARCH, rounds_seconds(plans + 1, self.meter, self.unit))

    def tell(self, trials: Sequence[Trial]) -> None:
        """Tells the listener of finished trials."""
        for trial in trials:
            self.notify("trial", trial=trial)
