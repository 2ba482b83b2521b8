"""Input time of each of several workers: in every step, training waits for the slowest one."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerInput:
    """The input of one worker, measured alone on its own share of the data as the strategy shards it."""

    worker: int
    step_seconds: tuple[float, ...] = ()  # input time of one training step, one value per round
    first_seconds: float | None = None  # until the first element of a fresh iterator, median of the rounds
    why: str = ""  # why nothing was measured

    @property
    def seconds(self) -> float:
        """Input time of one training step, median of the rounds."""
        return statistics.median(self.step_seconds)


@dataclass(frozen=True)
class InputSkew:
    """Comparison of the inputs of all workers, measured one after the other in rounds."""

    inputs: tuple[WorkerInput, ...]

    @property
    def measured(self) -> tuple[WorkerInput, ...]:
        return tuple(one for one in self.inputs if one.step_seconds)

    @property
    def slowest(self) -> WorkerInput | None:
        """The worker whose input takes longest; None if fewer than two were measured."""
        return max(self.measured, key=lambda one: one.seconds) if len(self.measured) > 1 else None

    @property
    def ratio(self) -> float | None:
        """The slowest worker's seconds over the median of all workers; 1 if all are equal."""
        if self.slowest is None:
            return None
        return self.slowest.seconds / statistics.median(one.seconds for one in self.measured)

    @property
    def certain(self) -> bool:
        """Whether every round of the slowest worker was slower than every round of the others (two or more rounds)."""
        slowest = self.slowest
        if slowest is None or len(slowest.step_seconds) < 2:
            return False
        others = (one for one in self.measured if one.worker != slowest.worker)
        return min(slowest.step_seconds) > max(max(one.step_seconds) for one in others)

    @property
    def first_batch_seconds(self) -> float | None:
        """Seconds between the earliest and the latest first element, if all workers started at the same time."""
        firsts = [one.first_seconds for one in self.measured if one.first_seconds is not None]
        return max(firsts) - min(firsts) if len(firsts) > 1 else None
