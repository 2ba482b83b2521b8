"""Parts of a session: trials, epochs, graph passes, AUTOTUNE's values, predictions, services, equality of pipelines."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipetune.core.edits import Plan, Safety
from pipetune.core.measurement import Interval, WindowPair
from pipetune.core.sizing import QuantityRange


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


class RejectionReason(enum.StrEnum):
    """Why the search left a rewrite out of the plan."""

    NOT_EQUAL = "not-equal"  # the comparison found different data
    NOT_COMPARED = "not-compared"  # the comparison could not prove that the data is equal
    FAILED = "failed"  # it raised, hung or was killed
    REFUSED = "refused"  # above the memory limit, or it cannot be measured here
    EXCLUDED = "excluded"  # it conflicts with a rewrite in the plan
    OTHER_KIND = "other-kind"  # a different rewrite of its group, or a different value, was tried instead
    PREDICTED_SLOWER = "predicted-slower"  # not measured
    NOT_EXPECTED = "not-expected"  # model and short windows predict no relevant gain; not measured in pairs
    NOT_FASTER = "not-faster"  # measured in pairs, not proven faster
    ADDS_NOTHING = "adds-nothing"  # measured in pairs with the rest of the plan
    UNDECIDED = "undecided"  # time ran out while it was measured in pairs
    NO_TIME = "no-time"  # a gain was possible, but time ran out before it was measured in pairs
    NEEDS_CONSENT = "needs-consent"
