"""Measured values: intervals, rates, windows, trials."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipetune.core.edits import Plan


@dataclass(frozen=True)
class Interval:
    """A ratio or a quantity with its confidence interval; `pairs` is the number of measurements it is based on."""

    median: float
    low: float
    high: float
    pairs: int
    method: str = "t on log ratios, 95 %"


@dataclass(frozen=True)
class Window:
    """One measuring window on a fresh iterator, after a discarded warm-up.

    Seconds are wall time unless stated otherwise. `steps` counts elements of the pipeline's output (batches, if it
    batches). For a training window, `wall_seconds` covers steps and input together.
    """

    steps: int
    examples: int
    wall_seconds: float
    cpu_seconds: float  # of the whole process
    first_seconds: float  # until the first element, not included in the other times
    converged: bool = True  # False: AUTOTUNE's parameters were still moving
    wait_seconds: float | None = None  # spent waiting for input; None: the consumer does not show it
    exhausted: bool = False  # the data ran out before the window was full
    intervals: tuple[float, ...] = ()  # seconds between the last elements of an input window
    compile_seconds: float = 0.0  # part of `wall_seconds` spent tracing or compiling a new shape
    others_seconds: float | None = None  # CPU time of other processes on the same cores; None: unknown

    @property
    def step_seconds(self) -> float:
        return self.wall_seconds / self.steps

    @property
    def examples_per_second(self) -> float:
        return self.examples / self.wall_seconds

    @property
    def cpu_seconds_per_example(self) -> float:
        return self.cpu_seconds / self.examples


@dataclass(frozen=True)
class WindowPair:
    """A pair of windows in the same unit: one of the tuned pipeline, one of the original script."""

    tuned: Window
    original: Window
    tuned_first: bool


@dataclass(frozen=True)
class Rate:
    """Throughput of one variant of a pipeline, consumed as fast as it delivers."""

    examples_per_second: float | None = None
    batches_per_second: float | None = None
    cpu_us_per_example: float | None = None
    first_batch_seconds: float | None = None
    peak_rss_mib: float | None = None


class Outcome(enum.StrEnum):
    """How a trial ended."""

    ACCEPTED = "accepted"  # proven faster by the acceptance rule
    REJECTED = "rejected"  # changes the data, or was measured and is not proven faster
    SCREENED = "screened"  # not promising in short windows; never reported as a result
    SKIPPED = "skipped"  # not run: predicted to lose, beyond the model's error
    REFUSED = "refused"  # not run: above the memory limit, or without consent
    FAILED = "failed"  # raised, hung or was killed
    UNDECIDED = "undecided"  # the time budget ran out first


@dataclass(frozen=True)
class Trial:
    """One tried plan: its measurements and its outcome."""

    plan: Plan
    outcome: Outcome
    why: str
    gain: Interval | None = None  # ratio of its rate to that of the plan it was compared with
    kind: str = "search"  # "baseline", "screening", "search", "ablation", "confirmation", "verification"
    unit: str = "input"  # "input": the pipeline alone; "training": inside the training step
    ratios: tuple[float, ...] = ()  # one per pair, in the order measured
    seconds: float = 0.0
    predicted: float | None = None  # examples per second, input alone
    measured: float | None = None  # examples per second, input alone; None if it was not run alone
    windows: tuple[WindowPair, ...] = ()  # the windows of `ratios`; only for confirmation and verification


class RunFailed(Exception):
    """A window could not be measured; the message is the reason, the cause is the user's exception."""


class StepRaised(RunFailed):
    """The step given to `pipetune.tune` raised in a window; the cause is its exception."""


class OutOfBudget(Exception):
    """The time for this part of the session is used up."""
