"""What profiling found: cost per operator, and how the consumer and the input share a step."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from pipetune.core.measurement import Interval
from pipetune.core.memory import Growth, Held
from pipetune.core.overheads import Overheads
from pipetune.core.padding import Padding
from pipetune.core.storage import FileUse
from pipetune.core.transfer import Transfer


class Stage(enum.StrEnum):
    """Extract, transform or load, as the tf.data performance guide divides a pipeline."""

    EXTRACT = "extract"
    TRANSFORM = "transform"
    LOAD = "load"


class CostSource(enum.StrEnum):
    """Where the cost of an operator comes from."""

    RUNTIME_MODEL = "runtime model"  # cannot tell waiting from working
    PREFIX_DIFFERENCING = "prefix differencing"


@dataclass(frozen=True)
class CutCosts:
    """What the parts of a function cost where it can be cut in two."""

    head_share: float  # of what the whole function costs, by its first part
    on_batch_seconds: float | None = None  # per batch, of its second part called on one
    saved_seconds: float | None = None  # of CPU per element, by its second part behind the batch


@dataclass(frozen=True)
class OperatorProfile:
    """Cost of one operator alone (its inputs left out), per element it puts out.

    Read from the runtime's model of a run at parallelism 1 and scaled so that the sum is the process CPU
    time of that run; replaced by what prefix differencing measures, where that was possible. None where neither
    shows such an operator.
    """

    node: str
    stage: Stage
    cpu_seconds: float | None = None  # per element this operator puts out
    wall_seconds: float | None = None  # per element this operator puts out, waiting included
    elements: int | None = None  # put out during the profile
    ratio: float | None = None  # elements taken in per element put out
    visits: float | None = None  # elements this operator puts out per element of the pipeline
    bytes_in: float | None = None  # per element put out
    bytes_out: float | None = None  # per element put out
    buffered_elements: float | None = None
    buffered_bytes: float | None = None
    random: bool = False
    python: bool = False
    parallelism: int | None = None  # in force while the pipeline ran as written
    waiting_seconds: float | None = None  # of `wall_seconds`, on no processor; only differencing tells
    cpu_interval: Interval | None = None  # of `cpu_seconds`; only differencing has one
    waiting_interval: Interval | None = None  # of `waiting_seconds`
    cost_source: CostSource = CostSource.RUNTIME_MODEL
    on_batch_seconds: float | None = None  # per batch, where its function could be called on one, or its rows gathered
    cropping_share: float | None = None  # of its cost, what decoding only what it crops would leave
    shrinking_share: float | None = None  # of its cost, what decoding at a smaller scale would leave
    cuts: Mapping[str, CutCosts] | None = None  # by the kind of the cut; None: nothing was measured
    several_threads: bool = False  # its kernels use several at once; only differencing tells
    padding: Padding | None = None  # in the batches it makes; None: not of varying sizes, or not looked at
    inside: Mapping[str, float] | None = None  # share of its thread time by operator its function makes; "" its own


@dataclass(frozen=True)
class ConsumerProfile:
    """The training step, three ways; seconds per step."""

    kind: str  # "keras-fit", "loop", "function", "step", "none"
    real_seconds: float | None = None  # as written
    bound_seconds: float | None = None  # one cached batch repeated: the model's own bound
    input_seconds: float | None = None  # the input alone
    wait_share: Interval | None = None  # share of a step spent waiting for input
    why: str = ""  # why a figure is missing
    bound_cpu_seconds: float | None = None  # of the process, per step on one cached batch

    @property
    def model_seconds(self) -> float | None:
        """The model's part of a real step: the bound, or all of the step where that came out shorter."""
        if self.bound_seconds is None or self.real_seconds is None:
            return None
        return min(self.bound_seconds, self.real_seconds)

    @property
    def input_wait_seconds(self) -> float | None:
        """What even a perfectly overlapped input adds to the bound: max(input, bound) - bound, within the step."""
        if self.model_seconds is None or self.real_seconds is None or self.predicted_maximum is None:
            return None
        return min(self.predicted_maximum, self.real_seconds) - self.model_seconds

    @property
    def overlap_lost_seconds(self) -> float | None:
        """What remains of the real step: time in which input and model could have run at once and did not."""
        if self.real_seconds is None or self.model_seconds is None or self.input_wait_seconds is None:
            return None
        return self.real_seconds - self.model_seconds - self.input_wait_seconds

    @property
    def predicted_sum(self) -> float | None:
        """Seconds per step if input and model took turns."""
        if self.bound_seconds is None or self.input_seconds is None:
            return None
        return self.bound_seconds + self.input_seconds

    @property
    def predicted_maximum(self) -> float | None:
        """Seconds per step if input and model overlapped and shared nothing."""
        if self.bound_seconds is None or self.input_seconds is None:
            return None
        return max(self.bound_seconds, self.input_seconds)


@dataclass(frozen=True)
class Profile:
    """All of it, for one pipeline."""

    operators: tuple[OperatorProfile, ...]
    consumer: ConsumerProfile
    examples_per_element: float = 1.0  # of the pipeline's output
    element_bytes: float | None = None  # of the pipeline's output
    input_cpu_seconds: float | None = None  # process CPU per element of the output, at parallelism 1
    input_wall_seconds: float | None = None  # wall per element of the output, at parallelism 1
    first_element_seconds: float | None = None
    peak_rss_mib: float | None = None
    cardinality: Mapping[str, int] | None = None  # elements per node id, where counting found out
    files: FileUse | None = None  # what it reads; None: not looked at
    growth: Growth | None = None  # of memory while it goes on; None: not watched
    held: tuple[Held, ...] = ()  # by the buffers while it ran as written, TensorFlow's own among them
    intervals: tuple[float, ...] = ()  # seconds between elements of the input alone, one after the other
    notes: tuple[str, ...] = ()
    overheads: Overheads | None = None  # of this machine, where they were measured
    transfer: Transfer | None = None  # the copy of one element to the accelerator; None on a CPU

    def operator(self, node: str) -> OperatorProfile | None:
        return next((operator for operator in self.operators if operator.node == node), None)


class Verdict(enum.StrEnum):
    """Whether the input holds training back (thresholds of XProf's input-pipeline analyzer: 5 %, 20 %)."""

    INPUT_BOUND = "input-bound"
    BALANCED = "balanced"
    NOT_INPUT_BOUND = "not-input-bound"
    UNDETERMINED = "undetermined"


class Cause(enum.StrEnum):
    """What makes a step longer than the model needs; what a fix has to change."""

    CONSUMER = "consumer"  # nothing does: the model takes the time
    OPERATOR = "operator"  # the bottleneck operator, whether it works or waits
    PYTHON = "python"  # the bottleneck operator runs Python: one call at a time, whatever its parallelism
    BUFFER = "buffer"  # the input is fast enough on average, its bursts outlast the last prefetch
    TURNS = "turns"  # nothing is prepared ahead: input and model take turns
    PROCESSORS = "processors"  # input and model together need more processor time than is granted


@dataclass(frozen=True)
class Diagnosis:
    """The verdict, what binds the input, and the most a better input can save."""

    verdict: Verdict
    sentence: str
    wait_share: Interval | None = None
    wait_seconds: float | None = None  # per step
    most_saved_share: float | None = None  # of a step, by an input that costs nothing
    bottleneck: str | None = None  # node id
    bottleneck_sentence: str = ""
    input_rate_bound: float | None = None  # elements per second the model predicts for the input as written
    sequential_segments: tuple[tuple[str, ...], ...] = ()  # node ids that run in one thread, slowest first
    cause: Cause | None = None  # None: no operator's cost is known
    cause_node: str | None = None  # the operator at fault; None where none is


@dataclass(frozen=True)
class Finding:
    """Something wrong in the user's script today, whatever pipetune changes."""

    code: str
    message: str
    hint: str = ""
    file: str | None = None
    line: int | None = None
