"""The time plan of an analysis: what `--budget` is spent on, from the first training step to the patch.

This module alone reads the budget. Every part of the analysis has a share of it and ends at a fixed moment, so that a
part that ends early leaves time to the later ones, and none can use what is reserved for a later one. What only informs
is measured once the decision is made, from what is left.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pipetune.core.measurement import OutOfBudget
from pipetune.core.settings import Settings


class Clock(Protocol):
    """Seconds that only go forward."""

    def now(self) -> float:
        """Seconds since some fixed moment."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic()


class Part(StrEnum):
    """The parts of an analysis that a decision needs, in the order in which they run; and what only informs."""

    VERDICT = "verdict"
    PREPARATION = "preparation"
    SEARCH = "search"
    ABLATION = "ablation"
    EXTENSION = "extension"
    VERIFICATION = "verification"
    INFORMATION = "information"


OF_SIXTY: Mapping[Part, float] = {
    Part.VERDICT: 10.0,  # the input alone, and a training step on it and on one repeated batch
    Part.PREPARATION: 10.0,  # what operators and their variants cost, and what rules propose
    Part.SEARCH: 18.0,  # comparisons, and windows of plans in pairs
    Part.ABLATION: 4.0,  # the proven plan without each of its rewrites
    Part.EXTENSION: 8.0,  # more of the search where nothing is proven yet; else of the verification
    Part.VERIFICATION: 10.0,  # windows of the patched script and of the original in pairs
}
"""Seconds of each part with the default budget of 60 s. The verdict is due 10 s after the first training step; six
pairs of windows, the fewest that a verification takes, need some 10 s; what these leave is divided by judgement."""

GRACE = 0.05
"""Share of the budget by which a part may end later, to finish a look that was begun: half a look is time lost."""

INFORMATION_WITH_PATCH = 6.0
"""Of 60 seconds: what may be measured for information in the processes of the patch, once it is proven."""

VALIDATION_RESERVE = 6.0
"""Of 60 seconds: by so much the search ends earlier where validation takes much of an epoch, and is studied next."""

LITTLE_TO_GAIN_SECONDS = 20.0
"""Of 60 seconds: what the search may take where the wait is too short for a better input to gain much."""

VALIDATION_PAIRS = 3
"""Pairs of passes over the validation data that prove its plan: the fewest whose interval says anything. Where `skip`
drops what an expensive map has computed, a pass as written is long, and the gain large."""

VALIDATION_SECONDS = 18.0
"""Of 60 seconds: what validation may take in all, from what training has left: to compare its plan, and for pairs of
passes. By judgement: three pairs of passes of 4 s and 1 s fit."""

SLOW_START_SECONDS = 20.0
"""The way of a process to its first training step from which on it is told. By judgement: a third of the default
budget, and each of the two verification processes takes it again."""

CACHE_SECONDS = 10.0
"""What may be taken to fill a cache with all elements; one that would take longer gets a part of them. Of 60 seconds,
and beside them, for the script's own caches. By judgement: a sixth of the default budget."""

OTHER_DATASETS_SECONDS = 20.0
"""Of 60 seconds, and beside them: for the other datasets that a patch would change, each compared and measured.

One that is begun is finished. By judgement: two of them fit."""

AFTER_NO_SECONDS = 5.0
"""What may be measured for information after the verdict that nothing can be gained."""

_QUICK = 0.2  # share of the usual time that the measurements of a quick analysis take


@dataclass(frozen=True)
class Measurement:
    """A measurement whose length depends on the budget."""

    part: Part  # of the analysis, to which it belongs
    of_sixty: float  # its seconds with a budget of 60 s; in proportion for other budgets
    most: float  # seconds beyond which more time tells nothing more
    least: float = 0.0  # seconds it takes in any case


# By judgement, as far as no other reason is given: with less time intervals are wider, with more the answer is later.
STALL = Measurement(Part.VERDICT, 6.0, most=12.0, least=1.0)
OPERATOR_COSTS = Measurement(Part.PREPARATION, 3.0, most=8.0)
FILE_READS = Measurement(Part.PREPARATION, 3.0, most=5.0)
ELEMENT_COUNT = Measurement(Part.PREPARATION, 3.0, most=5.0, least=0.5)
GENERATOR_COUNT = Measurement(Part.PREPARATION, 10.0, most=15.0, least=10.0)  # where what Python yields may be cached
RUNTIME_OVERHEADS = Measurement(Part.PREPARATION, 1.0, most=2.0, least=0.4)
BATCH_COSTS = Measurement(Part.PREPARATION, 2.0, most=4.0, least=0.3)
VARIANT_COSTS = Measurement(Part.PREPARATION, 3.0, most=6.0, least=2.0)
READ_AGAIN = Measurement(Part.PREPARATION, 1.0, most=2.0, least=0.4)  # of each operator that runs Python
AUTOTUNE_SETTLING = Measurement(Part.PREPARATION, 2.0, most=3.0)
COMPARISON = Measurement(Part.SEARCH, 5.0, most=20.0, least=4.0)  # of one plan; a search compares two as a rule
MEMORY_GROWTH = Measurement(Part.INFORMATION, 2.5, most=2.5)
READ_SWEEPS = Measurement(Part.INFORMATION, 3.0, most=5.0)
EPOCHS = Measurement(Part.INFORMATION, 6.0, most=6.0)
STEP_SERIES = Measurement(Part.INFORMATION, 5.0, most=5.0)
STEPS_PER_CALL = Measurement(Part.INFORMATION, 5.0, most=6.0)


class TimePlan:
    """The seconds of one analysis, from the first training step.

    Args:
        seconds: the budget.
        clock: what the time is measured by.
        spent: seconds of the budget that another process has spent before.
        decides: whether there will be a decision; where only a profile is wanted, no time is reserved for later parts.
        quick: whether measurements take a fifth of their usual time.
    """

    def __init__(
        self, seconds: float, clock: Clock, *, spent: float = 0.0, decides: bool = True, quick: bool = False
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._start = clock.now() - spent
        self._decides = decides
        self.scale = _QUICK if quick else 1.0  # of the usual time of a measurement
        self._information_ends = 0.0  # nothing only informs before the decision
        self._last = seconds
        self._search_ends = seconds
        self._reserved = 0.0  # seconds by which the search ends earlier
        self._kept = 0.0  # seconds at the end, for validation, once the rest is decided

    @classmethod
    def of(cls, settings: Settings, clock: Clock | None = None, *, spent: float = 0.0) -> TimePlan:
        clock = clock or SystemClock()
        return cls(settings.budget_seconds, clock, spent=spent, decides=settings.trials, quick=settings.quick)

    def begin(self) -> None:
        """The first training step is reached: the budget counts from here, and no longer from the construction."""
        self._start = self._clock.now()

    @property
    def quick(self) -> bool:
        """Whether measurements take a fifth of their usual time."""
        return self.scale < 1.0

    def of_sixty(self, seconds: float) -> float:
        """Returns what `seconds` of 60 are with this budget."""
        return seconds * self.seconds / sum(OF_SIXTY.values())

    def spent(self) -> float:
        return self._clock.now() - self._start

    def ends(self, part: Part) -> float:
        """Returns the seconds of the budget after which `part` must be over."""
        if not self._decides:
            return self._last
        if part is Part.INFORMATION:
            return min(self._last, self._information_ends)
        parts = list(OF_SIXTY)
        share = sum(OF_SIXTY[one] for one in parts[: parts.index(part) + 1]) / sum(OF_SIXTY.values())
        if part in (Part.SEARCH, Part.ABLATION, Part.EXTENSION):
            return min(self._last, share * self.seconds - self._reserved, self._search_ends)
        return min(self._last, share * self.seconds)

    def left(self, part: Part) -> float:
        """Returns the seconds that `part` still has; never below zero."""
        return max(0.0, self.ends(part) - self.spent())

    def affords(self, part: Part, seconds: float) -> bool:
        """Whether something of `seconds` fits into what is left of `part`."""
        return seconds <= self.left(part)

    def require(self, part: Part, seconds: float) -> None:
        """Allows something of `seconds`, begun within the part, to go on.

        Raises:
            OutOfBudget: it would overrun the part by more than `GRACE` of the budget.
        """
        if self.spent() + seconds > self.ends(part) + GRACE * self.seconds:
            raise OutOfBudget(f"the time for the {part} part of the {self.seconds:.0f} s is used up")

    def usual_seconds(self, measurement: Measurement) -> float:
        """Returns how long this measurement takes with this budget, in seconds, however much of it is spent."""
        seconds = min(measurement.most, self.of_sixty(measurement.of_sixty))
        return self.scale * max(measurement.least, seconds)

    def seconds_for(self, measurement: Measurement) -> float:
        """Returns how long this measurement may take now, in seconds; 0 where no time is left for it."""
        left = min(self.usual_seconds(measurement), self.left(measurement.part))
        return max(self.scale * measurement.least, left)

    def decide(self) -> None:
        """All is decided, and no patch waits to be verified: what is left is for what informs.

        Where validation is still to be studied, what it may take is kept for it.
        """
        self._information_ends = self.seconds - self._kept

    def seconds_to_fill_caches(self) -> float:
        """Returns what filling the script's own caches may take, beside the budget, in seconds."""
        return self.scale * self.of_sixty(CACHE_SECONDS)

    def reserve_for_validation(self, *, without_plan: bool = True) -> None:
        """Ends the search earlier: validation is studied after the decision, and what only informs after that.

        `without_plan`: whether it takes much of the time even where training becomes no faster.
        """
        self._reserved = self.of_sixty(VALIDATION_RESERVE)
        self._kept = self.of_sixty(VALIDATION_SECONDS) if without_plan else 0.0

    def end_validation(self) -> None:
        """Validation is decided: the time goes to what informs again, after the next `decide`."""
        self._reserved = self._kept = 0.0

    def shorten_search(self) -> None:
        """Little can be gained: the search, which begins now, takes `LITTLE_TO_GAIN_SECONDS` of 60 at most."""
        self._search_ends = self.spent() + self.of_sixty(LITTLE_TO_GAIN_SECONDS)

    def seconds_for_validation(self, *, verifies: bool) -> float:
        """Returns what validation may take after the decision, in seconds: what nobody needs, up to its share.

        `verifies`: a plan for training is still to be verified.
        """
        reserved = self.of_sixty(OF_SIXTY[Part.VERIFICATION]) if verifies else 0.0
        left = (1 + GRACE) * self.seconds - self.spent() - reserved
        return max(0.0, min(self.of_sixty(VALIDATION_SECONDS), left))

    def end_within(self, seconds: float) -> None:
        """Ends the analysis `seconds` from now at the latest."""
        self._last = min(self._last, self.spent() + seconds)
