"""What the cost model says of a plan, and the same beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Foreseen:
    """What the model expects of a plan; no rate where it cannot tell, and `why` says the reason."""

    examples_per_second: float | None = None
    cpu_seconds_per_example: float | None = None
    why: str = ""
    guess: float | None = None  # examples per second all the same: good for what to try first, never shown


@dataclass(frozen=True)
class PredictedRate:
    """One plan that was tried, the input alone."""

    plan: str  # its key
    name: str  # the rules in it, or the baseline's name
    predicted: float | None = None  # examples per second
    measured: float | None = None  # examples per second; None where it was not run alone
    why: str = ""  # why nothing was predicted

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1


def mean_error(rates: tuple[PredictedRate, ...]) -> float | None:
    """The mean of the absolute errors, those that are known; None where none is."""
    errors = [abs(rate.error) for rate in rates if rate.error is not None]
    return sum(errors) / len(errors) if errors else None
