"""Results of profiling: cost per operator, and how consumer and input share a training step."""

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
    """How the cost of an operator was determined."""

    RUNTIME_MODEL = "runtime model"  # cannot distinguish waiting from working
    PREFIX_DIFFERENCING = "prefix differencing"


@dataclass(frozen=True)
class CutCosts:
    """Costs of the two parts of a function at a possible split."""

    head_share: float  # share of the function's cost in its first part
    on_batch_seconds: float | None = None  # of the second part, per call on a batch
    saved_seconds: float | None = None  # CPU time per element saved by running the second part after the batch


@dataclass(frozen=True)
class OperatorProfile:
    """Cost of one operator alone (without its inputs), per output element.

    Read from the runtime's model of a run at parallelism 1 and scaled so that the sum is the process CPU
    time of that run; replaced by the results of prefix differencing, where possible. None if neither method
    shows the operator.
    """

    node: str
    stage: Stage
    cpu_seconds: float | None = None  # per output element
    wall_seconds: float | None = None  # per output element, including waiting
    elements: int | None = None  # number of output elements during the profile
    ratio: float | None = None  # input elements per output element
    visits: float | None = None  # output elements per output element of the pipeline
    bytes_in: float | None = None  # per output element
    bytes_out: float | None = None  # per output element
    buffered_elements: float | None = None
    buffered_bytes: float | None = None
    random: bool = False
    python: bool = False
    parallelism: int | None = None  # in effect while the original pipeline ran
    waiting_seconds: float | None = None  # part of `wall_seconds` without CPU use; only from differencing
    cpu_interval: Interval | None = None  # of `cpu_seconds`; only from differencing
    waiting_interval: Interval | None = None  # of `waiting_seconds`; only from differencing
    cost_source: CostSource = CostSource.RUNTIME_MODEL
    on_batch_seconds: float | None = None  # per batch, if its function can be called on one or its rows gathered
    cropping_share: float | None = None  # share of its cost that remains if only the crop is decoded
    shrinking_share: float | None = None  # share of its cost that remains when decoding at a smaller scale
    cuts: Mapping[str, CutCosts] | None = None  # by `CutKind`; None: not measured
    several_threads: bool = False  # a kernel of it uses several threads; only from differencing
    padding: Padding | None = None  # in its batches; None: sizes do not vary, or not examined
    inside: Mapping[str, float] | None = None  # share of its thread time by operator its function creates; "": its own


@dataclass(frozen=True)
class ConsumerProfile:
    """The training step measured in three ways; seconds per step."""

    kind: str  # "keras-fit", "loop", "function", "step", "none"
    real_seconds: float | None = None  # original step and input
    bound_seconds: float | None = None  # with one cached batch repeated: the bound set by the model
    input_seconds: float | None = None  # the input alone
    wait_share: Interval | None = None  # share of a step spent waiting for input
    why: str = ""  # why a figure is missing
    bound_cpu_seconds: float | None = None  # CPU time of the process per step with one cached batch

    @property
    def model_seconds(self) -> float | None:
        """The model's part of a real step: the bound, or the whole step if it was measured to be shorter."""
        if self.bound_seconds is None or self.real_seconds is None:
            return None
        return min(self.bound_seconds, self.real_seconds)

    @property
    def input_wait_seconds(self) -> float | None:
        """Time that even a perfectly overlapped input adds to the bound: max(input, bound) - bound, within the step."""
        if self.model_seconds is None or self.real_seconds is None or self.predicted_maximum is None:
            return None
        return min(self.predicted_maximum, self.real_seconds) - self.model_seconds

    @property
    def overlap_lost_seconds(self) -> float | None:
        """The rest of the real step: time in which input and model could have overlapped but did not."""
        if self.real_seconds is None or self.model_seconds is None or self.input_wait_seconds is None:
            return None
        return self.real_seconds - self.model_seconds - self.input_wait_seconds

    @property
    def predicted_sum(self) -> float | None:
        """Predicted seconds per step if input and model alternate."""
        if self.bound_seconds is None or self.input_seconds is None:
            return None
        return self.bound_seconds + self.input_seconds

    @property
    def predicted_maximum(self) -> float | None:
        """Predicted seconds per step if input and model overlap and share no resources."""
        if self.bound_seconds is None or self.input_seconds is None:
            return None
        return max(self.bound_seconds, self.input_seconds)


@dataclass(frozen=True)
class Profile:
    """The complete profile of one pipeline."""

    operators: tuple[OperatorProfile, ...]
    consumer: ConsumerProfile
    examples_per_element: float = 1.0  # of the pipeline's output
    element_bytes: float | None = None  # of the pipeline's output
    input_cpu_seconds: float | None = None  # process CPU time per output element, at parallelism 1
    input_wall_seconds: float | None = None  # wall time per output element, at parallelism 1
    first_element_seconds: float | None = None
    peak_rss_mib: float | None = None
    cardinality: Mapping[str, int] | None = None  # elements per epoch by node id, if they were counted
    files: FileUse | None = None  # what it reads; None: not examined
    growth: Growth | None = None  # of memory over time; None: not observed
    held: tuple[Held, ...] = ()  # by the buffers of the original pipeline, including TensorFlow's own
    intervals: tuple[float, ...] = ()  # seconds between consecutive elements of the input alone
    notes: tuple[str, ...] = ()
    overheads: Overheads | None = None  # of this machine, if they were measured
    transfer: Transfer | None = None  # copy of one element to the accelerator; None on a CPU

    def operator(self, node: str) -> OperatorProfile | None:
        return next((operator for operator in self.operators if operator.node == node), None)


class Verdict(enum.StrEnum):
    """Whether the input holds training back (thresholds of XProf's input-pipeline analyzer: 5 %, 20 %)."""

    INPUT_BOUND = "input-bound"
    BALANCED = "balanced"
    NOT_INPUT_BOUND = "not-input-bound"
    UNDETERMINED = "undetermined"


class Cause(enum.StrEnum):
    """Why a step takes longer than the model needs, i.e. what a fix must change."""

    CONSUMER = "consumer"  # none: the model itself takes the time
    OPERATOR = "operator"  # the bottleneck operator, whether it works or waits
    PYTHON = "python"  # the bottleneck operator runs Python: one call at a time, whatever its parallelism
    BUFFER = "buffer"  # fast enough on average, but the final prefetch is too small for its bursts
    TURNS = "turns"  # nothing is prefetched: input and model alternate
    PROCESSORS = "processors"  # input and model together need more CPU time than is available


@dataclass(frozen=True)
class Diagnosis:
    """The verdict, the bottleneck of the input, and how much a better input can save at most."""

    verdict: Verdict
    sentence: str
    wait_share: Interval | None = None
    wait_seconds: float | None = None  # per step
    most_saved_share: float | None = None  # share of a step that an input of zero cost would save
    bottleneck: str | None = None  # node id
    bottleneck_sentence: str = ""
    input_rate_bound: float | None = None  # elements per second that the cost model predicts for the original input
    sequential_segments: tuple[tuple[str, ...], ...] = ()  # node ids that run in one thread, slowest first
    cause: Cause | None = None  # None: no operator's cost is known
    cause_node: str | None = None  # the responsible operator; None if there is none


@dataclass(frozen=True)
class Finding:
    """A problem in the user's script, independent of what pipetune changes."""

    code: str
    message: str
    hint: str = ""
    file: str | None = None
    line: int | None = None
