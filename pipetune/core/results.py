"""Parts of a session: epochs, graph passes, AUTOTUNE's values, predictions, services, the equality of two pipelines."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipetune.core.edits import Plan, Safety
from pipetune.core.sizing import QuantityRange


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


class Outcome(enum.StrEnum):
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
    usable_cores: tuple[float | None, float | None] = (None, None)  # by it, by the original; None: unknown


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


@dataclass(frozen=True)
class EqualityCheck:
    """One check: "values", "randomness", "epochs", "generated inputs", "last batches", "spec", "cardinality"..."""

    name: str
    equal: bool | None  # None: the check could not be done; `detail` says why
    detail: str = ""
    late: bool = False  # time ran out first; with more time the check could be done, or a difference explained


@dataclass(frozen=True)
class Comparison:
    """All checks of one plan against the original pipeline."""

    safety: Safety
    checks: tuple[EqualityCheck, ...]
    elements: int  # compared
    epochs: int  # compared
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every check that could be done passed, and at least one was done."""
        done = [check for check in self.checks if check.equal is not None]
        return bool(done) and all(check.equal for check in done)

    @property
    def proven(self) -> bool:
        """Whether values and whole epochs were compared and every required check passed."""
        required = {"values", "epochs"} | {check.name for check in self.checks if check.name in _REQUIRED_IF_LISTED}
        return self.equal and required <= {check.name for check in self.checks if check.equal}

    @property
    def undecided(self) -> bool:
        """Whether more time could still prove equality: no difference was found, or none that is surely one."""
        different = any(check.equal is False and not check.late for check in self.checks)
        return not self.proven and not different and any(check.late for check in self.checks)

    @property
    def why(self) -> str:
        """The first difference found, as "check: detail"; "" if there is none."""
        return next((f"{check.name}: {check.detail}" for check in self.checks if check.equal is False), "")


_REQUIRED_IF_LISTED = frozenset({"randomness", "generated inputs", "last batches"})
"""Checks that not every plan needs; if they are in the list of checks, they must have passed."""


@dataclass(frozen=True)
class Drift:
    """Change of the seconds per element over a run."""

    change: Interval  # ratio of the fitted seconds per element at the end of the run to those at its start
    since: int  # index of the element at which the change begins
    elements: int  # length of the run
    significant: bool  # seen in every run, beyond correlated noise, and large enough to matter


@dataclass(frozen=True)
class RunDynamics:
    """Wall times of the input alone, consumed as fast as it delivers; None if not measured."""

    first_seconds: float | None = None  # until the first element of the first iterator
    fill_seconds: float | None = None  # part of a first element's time, filling shuffle buffers; None: no shuffle
    steady_seconds: float | None = None  # per element, after the first element and the warm-up
    border_seconds: float | None = None  # extra time of the first element of a later epoch
    borders: int = 0  # epoch boundaries passed; 0: `border_seconds` was measured on fresh iterators
    epoch_elements: int | None = None  # in one epoch, if an epoch ended or the count is known
    epochs: int = 0  # complete epochs observed
    later: Interval | None = None  # ratio of the rate of later epochs to that of the first
    drift: Drift | None = None
    curve: tuple[float, ...] = ()  # seconds per element, block by block, of the run examined for drift
    notes: tuple[str, ...] = ()

    @property
    def epoch_seconds(self) -> float | None:
        """Seconds the input alone needs for one later epoch, including the pause at its boundary."""
        if self.epoch_elements is None or self.steady_seconds is None:
            return None
        return self.epoch_elements * self.steady_seconds + (self.border_seconds or 0.0)


@dataclass(frozen=True)
class DatasetCost:
    """Cost of one dataset of the script. CPU seconds are those of the whole process.

    The `taken` fields cover what the script itself consumed before training began: the time in `iter` and the first
    twenty `next` calls (a loop that takes more is a training loop), or the whole call of `evaluate`, `predict`, `adapt`
    and `reduce` (`whole_call`), which includes the work of the model between the elements.
    """

    taken_wall_seconds: float = 0.0
    taken_cpu_seconds: float = 0.0
    whole_call: bool = False
    element_wall_seconds: float | None = None  # of the input alone, consumed as fast as it delivers
    element_cpu_seconds: float | None = None
    epoch_elements: int | None = None
    whole_pass: bool = True  # False: `epoch_elements` are only those that came in the time there was for a pass
    first_wall_seconds: float = 0.0  # until the first element of a pass: what `skip` drops is computed all the same
    training_steps: int | None = None  # of validation: steps of training for each pass; None: those of an epoch

    @property
    def epoch_wall_seconds(self) -> float | None:
        """Seconds for one pass over the dataset alone."""
        if self.element_wall_seconds is None or self.epoch_elements is None:
            return None
        return self.first_wall_seconds + self.element_wall_seconds * self.epoch_elements


def validation_share(share: float, *, training: float) -> float:
    """Returns the share of the time that validation takes where training takes `training` times as long beside it.

    Args:
        share: what it takes as the script is written, 0 to 1.
        training: below 1 where training is made faster, above 1 where validation is.
    """
    return share / (share + training * (1 - share)) if share else 0.0


@dataclass(frozen=True)
class AppliedPass:
    """A graph pass that TensorFlow applies to a pipeline by itself."""

    name: str  # TensorFlow's name: "map_parallelization"
    changes: tuple[str, ...] = ()  # removed and added operators: "Map becomes ParallelMap"


@dataclass(frozen=True)
class OptimizationPasses:
    """The graph passes that change the original pipeline, in the order TensorFlow runs them."""

    passes: tuple[AppliedPass, ...] = ()
    note: str = ""  # why nothing could be read, or not all


PARALLELISM = "parallelism"
BUFFER_SIZE = "buffer_size"


@dataclass(frozen=True)
class TunedValue:
    """One tunable parameter of one operator, as reported by the runtime's model.

    `parameter` is the runtime's name: "parallelism" (concurrent calls) or "buffer_size" (elements buffered ahead).
    """

    node: str  # node id in the pipeline; "" for an operator that TensorFlow added
    kernel: str  # the runtime's name of the operator: "ParallelMapV2", "MapAndBatch", "Prefetch"
    parameter: str
    value: float  # at the end of the observation
    low: float
    high: float
    tunable: bool
    first: float | None = None  # when first observed
    moved_seconds: float | None = None  # time of the last change after the first element; None: never changed


@dataclass(frozen=True)
class AutotuneValues:
    """All tuned values of one pipeline that was observed for `seconds`."""

    values: tuple[TunedValue, ...] = ()
    seconds: float = 0.0
    converged: bool = False  # parallelism did not change in the last part of the observation
    note: str = ""  # why there are no values
    kernels: Mapping[str, str] = field(default_factory=dict)  # node id -> the runtime's name of its operator

    def value(self, node: str, parameter: str) -> TunedValue | None:
        """Returns the value of a parameter of the operator with this id; None if it has none."""
        return next((one for one in self.values if (one.node, one.parameter) == (node, parameter)), None)

    @property
    def added(self) -> tuple[TunedValue, ...]:
        """Values of operators that TensorFlow added on its own."""
        return tuple(one for one in self.values if not one.node)


@dataclass(frozen=True)
class Prediction:
    """Prediction of the cost model for a plan; without a rate if it cannot predict one, and `why` says why."""

    examples_per_second: float | None = None
    cpu_seconds_per_example: float | None = None
    why: str = ""
    fallback_rate: float | None = None  # estimate in examples per second even then: only orders trials, never shown


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
    """Returns the mean absolute relative error of the rates for which it is known; None if there are none."""
    errors = [abs(rate.error) for rate in rates if rate.error is not None]
    return sum(errors) / len(errors) if errors else None


SUFFICIENT_SHARE = 0.95
"""Share of the training's rate from which an input counts as fast enough (XProf: under 5 % of a step is waiting)."""


@dataclass(frozen=True)
class ServiceNeed:
    """Rate of one training process, rate of its local input, and the service workers that would be needed."""

    step_rate: float | None = None  # examples per second that training consumes if its input is never late
    local_rate: QuantityRange | None = None  # examples per second that the input delivers on the same machine
    workers: QuantityRange | None = None  # whole workers; the cost of sending is not included
    worker_cores: float = 1.0  # cores per worker
    bytes_per_second: QuantityRange | None = None  # into the training process, uncompressed
    packed_bytes_per_second: QuantityRange | None = None  # into the training process, compressed
    shares_processors: bool = False  # model and input share the same processors
    why: str = ""  # why this is unknown, as part of a sentence

    @property
    def recommended(self) -> bool | None:
        """Whether the local input is slower than the model's rate; None if that is undecided or unknown."""
        if self.step_rate is None or self.local_rate is None:
            return None
        if self.local_rate.low >= SUFFICIENT_SHARE * self.step_rate:
            return False
        return True if self.local_rate.high < SUFFICIENT_SHARE * self.step_rate else None

    @property
    def max_workers(self) -> int | None:
        """Number of workers at the conservative end of the range."""
        return None if self.workers is None else round(self.workers.high)


@dataclass(frozen=True)
class StoredPrefix:
    """A part of the pipeline that is equal in every epoch, to be stored once as the input of all runs and workers."""

    node: str  # id of the last operator of the part
    size_bytes: float  # on disk
    sentence: str  # what it costs, saves and promises
    seconds_to_make: float | None = None  # once, CPU time and waiting; None: not measured
    storage_bytes_per_second: float | None = None  # assumed rate of reading and writing; None: not measured
    epochs_to_pay: int | None = None  # epochs after which it has paid off; None: unknown, or never


@dataclass(frozen=True)
class Scenario:
    """One change of the conditions and the maximum rates under it, in elements of the input per second.

    Rates are bounds predicted by the cost model; None if it cannot predict one, and `why` says why.
    """

    name: str  # "as it is", "twice the cores", ...
    input_rate: float | None = None  # what the input can deliver
    training_rate: float | None = None  # steps per second (per replica) that input and model allow together
    binds: str = ""  # the limiting side: "input", "model"; "" if unknown
    node: str | None = None  # the operator that limits the input
    bound: str = ""  # how it limits it: "cores", "segment", "parallel", "storage", "consumer"
    why: str = ""


class ResumeMethod(enum.StrEnum):
    """What the script stores of its position in the data."""

    ITERATOR_STATE = "iterator-state"  # the state of the iterator, in a checkpoint
    SKIP = "skip"  # the number of elements to skip
    IDS = "ids"  # the ids of the examples already used
    EPOCHS = "epochs"  # only the epoch: the data restarts from the beginning


@dataclass(frozen=True)
class ResumePoint:
    """One place in the script that resumes in this way."""

    way: ResumeMethod
    what: str  # in the words of the script: "tf.train.Checkpoint(iterator=...)"
    file: str = ""
    line: int = 0
    node: str = ""  # the operator that does it, if any: the `skip`
