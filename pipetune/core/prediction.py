"""Predictions of the cost model for a plan, and their comparison with measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Foreseen:
    """Prediction of the cost model for a plan; without a rate if it cannot predict one, and `why` says why."""

    examples_per_second: float | None = None
    cpu_seconds_per_example: float | None = None
    why: str = ""
    guess: float | None = None  # estimate in examples per second even then: only orders trials, never shown


@dataclass(frozen=True)
class PredictedRate:
    """Predicted and measured rate of one tried plan, for the input alone."""

    plan: str  # its key
    name: str  # its rules, or the name of the baseline
    predicted: float | None = None  # examples per second
    measured: float | None = None  # examples per second; None: the input was not run alone
    why: str = ""  # why nothing was predicted

    @property
    def error(self) -> float | None:
        """Relative error: predicted / measured - 1."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1


def mean_error(rates: tuple[PredictedRate, ...]) -> float | None:
    """Returns the mean of the known absolute errors; None if there are none."""
    errors = [abs(rate.error) for rate in rates if rate.error is not None]
    return sum(errors) / len(errors) if errors else None
