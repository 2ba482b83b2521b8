"""Time reserved in advance for each part of the trials; what a part leaves over goes to the later ones."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pipetune.core.results import OutOfBudget
from pipetune.search.runner import Clock


class Part(StrEnum):
    """The parts, in the order they run."""

    BASELINES = "baselines"
    SEARCH = "search"
    ABLATION = "ablation"
    CONFIRMATION = "confirmation"


SHARES: Mapping[Part, float] = {
    Part.BASELINES: 0.20,
    Part.SEARCH: 0.45,
    Part.ABLATION: 0.15,
    Part.CONFIRMATION: 0.20,
}

GRACE = 0.05
"""Share of the total that rounds already begun may overrun a part by: half a look is time lost for
nothing.
"""


class Budget:
    """Seconds for the trials, counted from its making.

    A part ends when the shares up to it are used up, so what it leaves over is there for the next. No part
    can take what is reserved for a later one, except `GRACE` to finish what was begun.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds = seconds
        self._clock = clock
        self._start = clock.now()

    def spent(self) -> float:
        """Seconds since the start."""
        return self._clock.now() - self._start

    def ends(self, part: Part) -> float:
        """Seconds after the start at which `part` must be over."""
        share = 0.0
        for name, value in SHARES.items():
            share += value
            if name == part:
                break
        return share * self.seconds

    def left(self, part: Part) -> float:
        """Seconds `part` still has; never below zero."""
        return max(0.0, self.ends(part) - self.spent())

    def affords(self, part: Part, seconds: float) -> bool:
        """Whether something of `seconds` fits into what is left of `part`."""
        return seconds <= self.left(part)

    def require(self, part: Part, seconds: float) -> None:
        """Let something of `seconds`, begun within the part, go on.

        Raises:
            OutOfBudget: it would overrun the part by more than `GRACE` of the total.
        """
        if self.spent() + seconds > self.ends(part) + GRACE * self.seconds:
            raise OutOfBudget(f"the time for the {part} part ({SHARES[part]:.0%} of {self.seconds:.0f} s) is used up")
