"""What the input of each of several workers takes: training waits in every step for the slowest of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerInput:
    """The input of one worker, alone: its own share of the data, divided as the strategy divides it."""

    worker: int
    step_seconds: tuple[float, ...] = ()  # its part of one training step, round by round
    first_seconds: float | None = None  # until the first element of a fresh iterator: the median of the rounds
    why: str = ""  # nothing was measured: the reason

    @property
    def seconds(self) -> float:
        """Of one training step: the median of the rounds."""
        return statistics.median(self.step_seconds)


@dataclass(frozen=True)
class InputSkew:
    """The inputs of all workers beside each other, measured one after the other in rounds."""

    inputs: tuple[WorkerInput, ...]

    @property
    def measured(self) -> tuple[WorkerInput, ...]:
        return tuple(one for one in self.inputs if one.step_seconds)

    @property
    def slowest(self) -> WorkerInput | None:
        """The worker whose input takes longest; None where fewer than two were measured."""
        return max(self.measured, key=lambda one: one.seconds) if len(self.measured) > 1 else None

    @property
    def ratio(self) -> float | None:
        """The slowest worker's seconds over the median worker's; 1 where all are alike."""
        if self.slowest is None:
            return None
        return self.slowest.seconds / statistics.median(one.seconds for one in self.measured)

    @property
    def certain(self) -> bool:
        """Whether the slowest worker was so in each of several rounds: by more than one worker's rounds differ."""
        slowest = self.slowest
        if slowest is None or len(slowest.step_seconds) < 2:
            return False
        others = (one for one in self.measured if one.worker != slowest.worker)
        return min(slowest.step_seconds) > max(max(one.step_seconds) for one in others)

    @property
    def first_batch_seconds(self) -> float | None:
        """From the first worker's first element to the last worker's, were all to begin at once."""
        firsts = [one.first_seconds for one in self.measured if one.first_seconds is not None]
        return max(firsts) - min(firsts) if len(firsts) > 1 else None
