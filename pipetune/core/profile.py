"""Results of profiling: costs per operator and per part of a function, memory, and how input and training overlap."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipetune.core.functions import FunctionFacts, FunctionVariant
from pipetune.core.machine import DeviceTransfer, Overheads
from pipetune.core.measurement import Interval, Pause, Rate
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.storage import FileUse


@dataclass(frozen=True)
class BufferContents:
    """Contents of the buffers of one kind of operator while the pipeline ran; `name` is the runtime's."""

    name: str
    elements: float
    bytes: float


@dataclass(frozen=True)
class MemoryGrowth:
    """Slope of the process's resident memory over consumed elements, once all buffers are full."""

    bytes_per_element: Interval
    elements: int  # consumed during the observation
    grown_bytes: float  # from the first reading to the last
    steady: bool  # significant, large enough to matter, and not slowing down
    epoch_elements: int | None = None  # elements of the output per epoch, if known

    @property
    def epochs(self) -> float | None:
        """Epochs covered by the observation; None if their length is unknown."""
        return self.elements / self.epoch_elements if self.epoch_elements else None


@dataclass(frozen=True)
class PaddingShares:
    """Padding, measured on a sample of the input elements of a `padded_batch`, in their order.

    Shares refer to the bytes of the components of a batch whose size varies.
    """

    share: float = 0.0  # of padding, in the original pipeline
    batches: int = 0  # full batches in the sample
    why_not: str = ""  # why the elements cannot be bucketed by length, as the end of a sentence
    length_of: tuple[str | int, ...] = ()  # path to the component whose first dimension is the length
    unpacked: bool = False  # whether an element is a tuple, which functions receive as separate arguments
    boundaries: tuple[int, ...] = ()  # lower length bounds of the buckets after the first
    bucketed_share: float = 0.0  # of padding with these buckets

    @property
    def saved_share(self) -> float:
        """Share of the bytes of the original batches that buckets would save."""
        return 1 - (1 - self.share) / (1 - self.bucketed_share) if self.bucketed_share < 1 else 0.0


def part_costs(node_id: str, part: FunctionFacts, profile: Profile) -> OperatorProfile | None:
    """Returns the cost of an operator that calls a part of a function; None if it was not measured."""
    whole = profile.operator(part.part_of)
    if whole is not None and part.called_on_batches:
        # Both parts were timed together on a batch: all of the time is attributed to the second.
        seconds = whole.on_batch_seconds if node_id == part.part_of else 0.0
        return OperatorProfile(node_id, whole.stage, on_batch_seconds=seconds)
    if whole is None or whole.head_share is None:
        return None
    is_head = part.form is FunctionVariant.HEAD
    share = whole.head_share if is_head else max(0.0, 1 - whole.head_share)
    return OperatorProfile(
        node_id,
        whole.stage,
        cpu_seconds=_scaled(share, whole.cpu_seconds),
        wall_seconds=_scaled(share, whole.wall_seconds),
        waiting_seconds=_scaled(share, whole.waiting_seconds),
        visits=whole.visits,
        ratio=whole.ratio,
        bytes_out=(part.cut.element_bytes if part.cut is not None else None) if is_head else whole.bytes_out,
        cost_source=whole.cost_source,
    )


def with_part_costs(profile: Profile, pipeline: Pipeline) -> Profile:
    """Returns the profile of a pipeline with split functions, in which the parts are separate operators."""
    split = [(node.id, node.function) for node in pipeline if node.function is not None and node.function.part_of]
    parts = {node: part_costs(node, part, profile) for node, part in split}
    others = (one for one in profile.operators if one.node not in parts)
    return replace(profile, operators=(*others, *(one for one in parts.values() if one is not None)))


def _scaled(share: float, seconds: float | None) -> float | None:
    return None if seconds is None else share * seconds


class Stage(enum.StrEnum):
    """Extract, transform or load, as the tf.data performance guide divides a pipeline."""

    EXTRACT = "extract"
    TRANSFORM = "transform"
    LOAD = "load"


class CostSource(enum.StrEnum):
    RUNTIME_MODEL = "runtime model"  # cannot distinguish waiting from working
    PREFIX_DIFFERENCING = "prefix differencing"


@dataclass(frozen=True)
class OperatorProfile:
    """Cost of one operator alone (without its inputs), per output element.

    Read from the runtime's model of a run at parallelism 1 and scaled so that the sum is the process CPU time of that
    run; replaced by the results of prefix differencing if possible. None if neither method shows the operator.
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
    waiting_seconds: float | None = None  # part of `wall_seconds` without CPU use; only from differencing
    cpu_interval: Interval | None = None  # of `cpu_seconds`; only from differencing
    waiting_interval: Interval | None = None  # of `waiting_seconds`; only from differencing
    cost_source: CostSource = CostSource.RUNTIME_MODEL
    on_batch_seconds: float | None = None  # per batch, if its function can be called on one or its rows gathered
    variant_shares: Mapping[str, float] | None = None  # share of its cost that remains, by `FunctionVariant`
    shrinking_share: float | None = None  # share of its cost that remains when decoding at a smaller scale
    head_share: float | None = None  # of its function's cost, that of the first part; None: not measured
    several_threads: bool = False  # a kernel of it uses several threads; only from differencing
    padding: PaddingShares | None = None  # in its batches; None: sizes do not vary, or not examined
    inside: Mapping[str, float] | None = None  # share of its thread time by operator its function creates; "": its own
    varies: bool = False  # it runs Python, and was seen to give other elements when it was read again


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
    real_cpu_seconds: float | None = None  # CPU time of the process per real step
    start_seconds: float = 0.0  # part of `real_seconds`: a step's share of the wait at the start of an epoch

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
    def start_wait_seconds(self) -> float | None:
        """The step's share of the wait at the start of an epoch, as far as it is left beside model and input wait."""
        if self.real_seconds is None or self.model_seconds is None or self.input_wait_seconds is None:
            return None
        return min(self.start_seconds, self.real_seconds - self.model_seconds - self.input_wait_seconds)

    @property
    def overlap_lost_seconds(self) -> float | None:
        """The rest of the real step: time in which input and model could have overlapped but did not."""
        start = self.start_wait_seconds
        if start is None or self.real_seconds is None:
            return None
        return self.real_seconds - (self.model_seconds or 0.0) - (self.input_wait_seconds or 0.0) - start

    @property
    def predicted_maximum(self) -> float | None:
        """Predicted seconds per step if input and model overlap and share no resources."""
        if self.bound_seconds is None or self.input_seconds is None:
            return None
        return max(self.bound_seconds, self.input_seconds)


LONGEST_FILL_SECONDS = 1.5
"""Of a pipeline's shuffle buffers, up to which they are filled where their filling counts: once for memory and first
batch, and in each of the twelve windows of a verification, which has some 20 of 60 seconds."""


LARGEST_BUFFER = 1024
"""Elements in a recommended buffer, by judgement: more evens out longer pauses, and holds more memory."""


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
    cut_buffers: Mapping[str, int] = field(default_factory=dict)  # shuffles of windows, by id
    fill_seconds: float = 0.0  # that the original buffers take longer to fill than those
    cache_seconds: float | None = None  # to fill the script's own caches; None: windows show epochs that fill them
    files: FileUse | None = None  # what it reads; None: not examined
    growth: MemoryGrowth | None = None  # of memory over time; None: not observed
    held: tuple[BufferContents, ...] = ()  # by the buffers of the original pipeline, including TensorFlow's own
    intervals: tuple[float, ...] = ()  # seconds between consecutive elements of the input alone
    pause: Pause | None = None  # of an input in bursts, if what is prepared ahead is used up before its end
    notes: tuple[str, ...] = ()
    overheads: Overheads | None = None  # of this machine, if they were measured
    transfer: DeviceTransfer | None = None  # copy of one element to the accelerator; None on a CPU

    @property
    def verified_buffers(self) -> Mapping[str, int]:
        """The shuffle buffers that a verification is measured with, by node id; the others are the script's own."""
        return self.cut_buffers if self.fill_seconds > LONGEST_FILL_SECONDS else {}

    def pause_within(self, epoch_steps: int | None) -> Pause | None:
        """Returns the pauses of an input in bursts that are no starts of epochs of so many steps; None if unknown."""
        return self.pause.within(epoch_steps) if self.pause is not None else None

    @property
    def bridging_buffer(self) -> int | None:
        """Elements that training takes during a pause of the input, rounded up to a power of two; None without pauses.

        None, too, where that would be more than `LARGEST_BUFFER`.
        """
        step = self.consumer.bound_seconds
        if self.pause is None or not step:
            return None
        size = 2 ** math.ceil(math.log2(max(1.0, self.pause.seconds / step)))
        return size if size <= LARGEST_BUFFER else None

    def with_own_first_batch(self, rates: Mapping[str, Rate]) -> dict[str, Rate]:
        """Returns rates, by pipeline, without the first batch: with smaller shuffle buffers it came too soon.

        That of the original pipeline ("defaults") is known from its own buffers.
        """
        known = {"defaults": self.first_element_seconds}
        return {name: replace(rate, first_batch_seconds=known.get(name)) for name, rate in rates.items()}

    def operator(self, node: str) -> OperatorProfile | None:
        """Returns the profile of the operator with this id; None if it was not profiled."""
        return next((operator for operator in self.operators if operator.node == node), None)


LEAST_POSSIBLE_GAIN = 1.05
"""A speedup of training that is worth a search; by judgement: a patch must gain 3 % with its whole interval."""

NOT_BOUND_BELOW = 1 - 1 / LEAST_POSSIBLE_GAIN
"""Share of a step spent waiting that, removed whole, gives `LEAST_POSSIBLE_GAIN`."""

INPUT_BOUND_ABOVE = 0.20
"""Share of a step spent waiting above which the input is at fault (XProf's input-pipeline analyzer)."""


class Verdict(enum.StrEnum):
    """Whether the input slows training down, as far as the interval of the wait decides what to do next."""

    INPUT_BOUND = "input-bound"  # a better input gains something for certain, and may gain much
    BALANCED = "balanced"  # a better input can gain little
    NOT_INPUT_BOUND = "not-input-bound"  # a better input cannot gain `LEAST_POSSIBLE_GAIN`
    UNDETERMINED = "undetermined"  # it may gain much, or nothing


class Cause(enum.StrEnum):
    """Why a step takes longer than the model needs, i.e. what a fix must change."""

    CONSUMER = "consumer"  # none: the model itself takes the time
    OPERATOR = "operator"  # the bottleneck operator, whether it works or waits
    PYTHON = "python"  # the bottleneck operator runs Python: calls take turns wherever they hold the GIL
    BUFFER = "buffer"  # fast enough on average, but the final prefetch is too small for its bursts
    NO_PREFETCH = "turns"  # nothing is prefetched: input and model alternate
    START = "start"  # the start of an epoch, while nothing is delivered: a shuffle buffer is filled, files are opened
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


VALIDATION_INPUT, EPOCH_PAUSE = "validation-input", "epoch-pause"
"""Codes of the findings that a patch may settle: validation takes much of an epoch, and the start of one takes long."""

CACHE_CODES = ("cache-fill", "cached-augmentation", "frozen-order")
"""Codes of the findings that a patch settles which takes their cache out."""


@dataclass(frozen=True)
class Finding:
    """A problem in the user's script, independent of what pipetune changes."""

    code: str  # identifies the check
    message: str  # what is wrong, and why
    hint: str = ""  # how to fix it
    file: str | None = None
    line: int | None = None


def finding_at(code: str, node: Node, message: str, hint: str) -> Finding:
    """Returns a finding at the source line of `node`, the operator with the mistake."""
    place = node.location
    return Finding(code, message, hint, place.file if place else None, place.line if place else None)
