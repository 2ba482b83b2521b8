"""What is measured: windows of training steps, single steps, pauses of the input, rates, and intervals made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Interval:
    """A ratio or a quantity with its confidence interval; `pairs` is the number of measurements it is based on."""

    median: float
    low: float
    high: float
    pairs: int
    method: str = "t on log ratios, 95 %"


_NOTICEABLE_PAUSES = 0.02
"""Share of a step from which on pauses of the input are looked at. By judgement: with twice as much a better input is
worth a search."""


def two_digits(value: float) -> str:
    """Returns a number with two significant digits, and all before the point: "0.12", "1.5", "15", "1,500"."""
    return f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"


def percent(share: float, *, digits: int = 0, sign: str = "") -> str:
    """Returns a share of one in whole percent, or with so many digits behind the point: "37 %"; `sign` is "" or "+"."""
    return f"{100 * share:{sign}.{digits}f} %"


def joined(items: Sequence[str]) -> str:
    """Returns words as part of a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


@dataclass(frozen=True)
class Pause:
    """What an input that comes in bursts does again and again, such as one that loads a file at a time."""

    elements: int  # from one pause to the next
    seconds: float  # of a pause

    def __str__(self) -> str:
        return f"{two_digits(self.seconds)} s after every {self.elements:,} elements"

    @property
    def seconds_per_element(self) -> float:
        """An element's share of a pause."""
        return self.seconds / self.elements

    def within(self, epoch_steps: int | None) -> Pause | None:
        """Returns it; None where it is the start of each epoch, which counts once an epoch (`counting_start`)."""
        return self if epoch_steps is None or self.elements < 0.9 * epoch_steps else None

    def unbridged(self, ahead: int, step_seconds: float) -> Pause | None:
        """Returns what training waits for of each pause, with so many elements prepared ahead; None if nothing."""
        left = self.seconds - ahead * step_seconds
        return replace(self, seconds=left) if left > 0 else None

    def matters(self, step_seconds: float) -> bool:
        """Whether it may take a share of training with steps of this length."""
        return self.seconds_per_element > _NOTICEABLE_PAUSES * step_seconds

    def missed_by(self, steps: int, step_seconds: float) -> bool:
        """Whether windows of so many training steps do not reach it, though it matters."""
        return steps < self.elements and self.matters(step_seconds)


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
    intervals: tuple[float, ...] = ()  # seconds between the last elements of an input window
    pause: Pause | None = None  # of the input, if it comes in bursts; in an input window
    compile_seconds: float = 0.0  # part of `wall_seconds` spent tracing or compiling a new shape
    others_seconds: float | None = None  # that the same cores ran other processes, not its children; None: unknown
    queued_seconds: float | None = None  # of all threads of the process: ready, without a processor; None: unknown
    cores: int | None = None  # on which the process may run; None: unknown
    start_seconds: float = 0.0  # per step, beside `wall_seconds`: its share of the start of an epoch

    @property
    def step_seconds(self) -> float:
        """Wall seconds per element, with its share of the start of an epoch."""
        return self.wall_seconds / self.steps + self.start_seconds

    def counting_start(self, epoch_steps: int | None, *, more_seconds: float = 0.0) -> Window:
        """Returns the window with the share of a step of what the start of an epoch takes longer than a step.

        A window of whole epochs has their starts inside.

        Args:
            epoch_steps: steps of an epoch, after which the input starts anew; None if unknown: no start is counted.
            more_seconds: what a start takes longer than in this window, whose shuffle buffers may be smaller.
        """
        if not epoch_steps or self.steps >= epoch_steps:
            return self
        start = max(0.0, self.first_seconds + more_seconds - self.wall_seconds / self.steps)
        return replace(self, start_seconds=start / epoch_steps)

    @property
    def rate(self) -> Rate:
        """The throughput of an input window, without the memory that it takes."""
        return Rate(
            examples_per_second=self.examples_per_second,
            batches_per_second=1 / self.step_seconds,
            cpu_us_per_example=self.cpu_seconds_per_example * 1e6,
            first_batch_seconds=self.first_seconds,
        )

    @property
    def examples_per_second(self) -> float:
        return self.examples / self.wall_seconds

    @property
    def cpu_seconds_per_example(self) -> float:
        return self.cpu_seconds / self.examples


@dataclass(frozen=True)
class StepSeries:
    """Single training steps, one after the other, from the start of an epoch; wall seconds, to the microsecond.

    No step is left out: the wait at the start of an epoch is a wait like any other. A step waits as long as its request
    for an element blocks. That it computes more slowly where the input works on the same cores is no wait here, but
    counts in the wait share of a `ConsumerProfile`, which compares with steps without an input.
    """

    step_seconds: tuple[float, ...] = ()  # the wait for its element included
    wait_seconds: tuple[float, ...] | None = None  # of each step, for its element; None: it cannot be told
    epoch_ends: tuple[int, ...] = ()  # steps until an epoch had ended: 30 if step 30, counted from 0, begins the next
    compile_seconds: float = 0.0  # of all steps: part spent tracing a new shape
    why: str = ""  # why there are no steps, or why their waits cannot be told


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


class RunFailed(Exception):
    """A window could not be measured; the message is the reason, the cause is the user's exception."""


class StepRaised(RunFailed):
    """The step given to `pipetune.tune` raised in a window; the cause is its exception."""


class OutOfBudget(Exception):
    """The time for this part of the session is used up."""


METHOD = "two independent intervals combined in quadrature"


def ratio_of(after: Interval, before: Interval) -> Interval | None:
    """Returns the ratio `after` / `before`; None if a bound is not finite or not above zero.

    The distances from the medians to the bounds are added in quadrature on the log scale, each side separately:
    exact for independent normal errors of the logs, which intervals of ratios assume.
    """
    if min(after.low, before.low) <= 0 or not _finite(after, before):
        return None
    centre = math.log(after.median / before.median)
    down = math.hypot(math.log(after.median / after.low), math.log(before.high / before.median))
    up = math.hypot(math.log(after.high / after.median), math.log(before.median / before.low))
    pairs = min(after.pairs, before.pairs)
    return Interval(math.exp(centre), math.exp(centre - down), math.exp(centre + up), pairs, METHOD)


def difference_of(after: Interval, before: Interval) -> Interval | None:
    """Returns the difference `after` - `before`, used for shares; None if a bound is not finite."""
    if not _finite(after, before):
        return None
    centre = after.median - before.median
    down = math.hypot(after.median - after.low, before.high - before.median)
    up = math.hypot(after.high - after.median, before.median - before.low)
    return Interval(centre, centre - down, centre + up, min(after.pairs, before.pairs), METHOD)


def _finite(*intervals: Interval) -> bool:
    bounds = (bound for interval in intervals for bound in (interval.median, interval.low, interval.high))
    return all(map(math.isfinite, bounds))
