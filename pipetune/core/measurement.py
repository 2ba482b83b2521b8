"""Measured values: intervals, rates, windows, trials."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipetune.core.edits import Plan


@dataclass(frozen=True)
class Interval:
    """A ratio or a quantity with its confidence interval; `pairs` is how many measurements it rests on."""

    median: float
    low: float
    high: float
    pairs: int
    method: str = "t on log ratios, 95 %"


@dataclass(frozen=True)
class Window:
    """One stretch of measuring, on a fresh iterator, after its warm-up was discarded.

    Seconds are seconds of wall time. `steps` counts elements of the pipeline's output (batches, where it
    batches). For a training window `wall_seconds` covers steps and input together.
    """

    steps: int
    examples: int
    wall_seconds: float
    cpu_seconds: float  # of the whole process
    first_seconds: float  # until the first element, not part of the rest
    converged: bool = True  # False: AUTOTUNE's parameters were still moving
    wait_seconds: float | None = None  # spent waiting for input, where the consumer lets it be seen
    exhausted: bool = False  # the data ran out before the window was full
    intervals: tuple[float, ...] = ()  # seconds from element to element, the last ones of an input window
    compile_seconds: float = 0.0  # of the wall seconds, spent tracing or compiling a shape not seen before
    others_seconds: float | None = None  # CPU seconds that other processes took on our cores meanwhile; None: not known

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
    """Two windows of one unit that belong together: the tuned pipeline's, and the one of the script as it is."""

    tuned: Window
    original: Window
    tuned_first: bool


@dataclass(frozen=True)
class Rate:
    """How fast one variant of a pipeline delivers, consumed as fast as it can."""

    examples_per_second: float | None = None
    batches_per_second: float | None = None
    cpu_us_per_example: float | None = None
    first_batch_seconds: float | None = None
    peak_rss_mib: float | None = None


class Outcome(enum.StrEnum):
    """How a trial ended."""

    ACCEPTED = "accepted"  # proven faster by the acceptance rule
    REJECTED = "rejected"  # changes the data, or was measured and is not proven faster
    SCREENED = "screened"  # short windows showed no promise; never a result
    SKIPPED = "skipped"  # not run: predicted to lose, beyond the model's error
    REFUSED = "refused"  # not run: above the memory limit, or without consent
    FAILED = "failed"  # raised, hung or was killed
    UNDECIDED = "undecided"  # the budget ended first


@dataclass(frozen=True)
class Trial:
    """One plan tried: what was measured, and what became of it."""

    plan: Plan
    outcome: Outcome
    why: str
    gain: Interval | None = None  # rate over the plan it was tried against
    kind: str = "search"  # "baseline", "screening", "search", "ablation", "confirmation", "verification"
    unit: str = "input"  # "input": the pipeline alone; "training": inside the training step
    ratios: tuple[float, ...] = ()  # every pair, in the order measured
    seconds: float = 0.0
    predicted: float | None = None  # examples per second of the input alone
    measured: float | None = None  # the same, where it was run alone
    windows: tuple[WindowPair, ...] = ()  # behind `ratios`, of a confirmation or a verification


class RunFailed(Exception):
    """A window could not be measured; the message is the reason, the cause the user's own exception."""


class StepRaised(RunFailed):
    """The step given to `pipetune.tune` raised in a window; the cause is its exception."""


class OutOfBudget(Exception):
    """The time for this part of the session is used up."""
