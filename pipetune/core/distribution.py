"""How a pipeline is delivered to workers, by a strategy or by a stand-alone module, and what each worker receives."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipetune.core.pipeline import Pipeline

DATASET = "experimental_distribute_dataset"
FUNCTION = "distribute_datasets_from_function"
FIT = "Model.fit"
INFERENCE = ("Model.predict", "Model.evaluate")
VALIDATION_DATA = f"validation_data of {FIT}"
COORDINATOR = "create_per_worker_dataset"
PIPELINE_PER_PROCESS = "a pipeline of each process"  # Horovod: no strategy distributes the dataset


@dataclass(frozen=True)
class InputDistribution:
    """How the script's dataset is distributed to the replicas; sizes in rows."""

    strategy: str  # its class name: "MirroredStrategy"
    replicas: int  # number of replicas that train in lockstep, over all workers
    how: str  # the call that distributes it: `DATASET`, `FUNCTION`, `FIT`, `COORDINATOR` or `PIPELINE_PER_PROCESS`
    workers: int = 1  # processes with an input pipeline, each with its own replicas
    batch: int | None = None  # rows of a full element of the dataset; None: varies or unknown
    shares: tuple[int, ...] = ()  # rows of a full batch for each replica of this worker; () if it is not divided
    by_own_size: bool = False  # a partial batch is divided by its own size; else by the shares of a full batch
    prefetched: int = 0  # elements that the strategy itself prefetches from the dataset
    policy: str = ""  # auto-shard policy over several workers: "AUTO", "FILE", "DATA", "OFF"

    @property
    def replicas_per_worker(self) -> int:
        return max(1, self.replicas // max(1, self.workers))

    @property
    def divides(self) -> bool:
        """Whether an element of the dataset is a global batch, which the strategy divides among the replicas."""
        return self.how in (DATASET, FIT)

    @property
    def elements_per_step(self) -> int:
        """Elements of this worker's dataset per training step: one per replica, or one that is divided."""
        return 1 if self.divides or self.how == PIPELINE_PER_PROCESS else self.replicas_per_worker


class CapturedKind(enum.StrEnum):
    """Kind of object that a dataset function for the workers captures from the script's process."""

    DATASET = "dataset"
    ITERATOR = "iterator"
    STATE = "state"  # a variable, a table


@dataclass(frozen=True)
class CapturedObject:
    """An object of the script's process that a dataset function for the workers captures, and where it is used."""

    kind: CapturedKind
    name: str  # its name at that place in the script; '' if it was not found by name
    file: str
    line: int


@dataclass(frozen=True)
class WorkerInput:
    """The input of one worker, measured alone on its own share of the data as the strategy shards it."""

    worker: int
    step_seconds: tuple[float, ...] = ()  # input time of one training step, one value per round
    first_seconds: float | None = None  # until the first element of a fresh iterator, median of the rounds
    why: str = ""  # why nothing was measured

    @property
    def seconds(self) -> float:
        """Input time of one training step, median of the rounds."""
        return statistics.median(self.step_seconds)


@dataclass(frozen=True)
class InputSkew:
    """Comparison of the inputs of all workers, measured one after the other in rounds."""

    inputs: tuple[WorkerInput, ...]

    @property
    def measured_inputs(self) -> tuple[WorkerInput, ...]:
        return tuple(one for one in self.inputs if one.step_seconds)

    @property
    def slowest(self) -> WorkerInput | None:
        """The worker whose input takes longest; None if fewer than two were measured."""
        return max(self.measured_inputs, key=lambda one: one.seconds) if len(self.measured_inputs) > 1 else None

    @property
    def ratio(self) -> float | None:
        """The slowest worker's seconds over the median of all workers; 1 if all are equal."""
        if self.slowest is None:
            return None
        return self.slowest.seconds / statistics.median(one.seconds for one in self.measured_inputs)

    @property
    def is_certain(self) -> bool:
        """Whether every round of the slowest worker was slower than every round of the others (two or more rounds)."""
        slowest = self.slowest
        if slowest is None or len(slowest.step_seconds) < 2:
            return False
        others = (one for one in self.measured_inputs if one.worker != slowest.worker)
        return min(slowest.step_seconds) > max(max(one.step_seconds) for one in others)

    @property
    def first_batch_spread_seconds(self) -> float | None:
        """Seconds between the earliest and the latest first element, if all workers started at the same time."""
        firsts = [one.first_seconds for one in self.measured_inputs if one.first_seconds is not None]
        return max(firsts) - min(firsts) if len(firsts) > 1 else None


def string_literal(text: str) -> str:
    """Returns a string literal, in double quotes unless its text needs escaping."""
    return repr(text) if set(text) & set("\"'\\") or not text.isprintable() else f'"{text}"'


class DeliveryMode(enum.Enum):
    """What each of the parallel pipelines delivers, and the function of the module that builds one."""

    PARTS = "a part each"  # dataset_fn(input_context)
    RANKS = "a part each, by rank"  # dataset_fn(steps, size=, rank=)
    WHOLE = "everything each"  # dataset_fn(input_context), with the same context for all
    SERVICE = "what the dispatcher hands out"  # pipeline(), behind a tf.data service


@dataclass(frozen=True)
class ElementBytes:
    """Bytes of one element of the finished pipeline when it is sent to another process."""

    raw: int
    packed: int | None = None  # compressed; None: not measured


@dataclass(frozen=True)
class Definition:
    """A statement at module level that binds `name`: an import, a constant, a function."""

    name: str
    text: str

    @property
    def is_import(self) -> bool:
        return self.text.startswith(("import ", "from "))


@dataclass(frozen=True)
class FunctionSource:
    """A user's function as an expression, and the definitions it needs, in order."""

    reference: str  # "parse", "tf.data.TFRecordDataset", "lambda x: x + 1"
    definitions: tuple[Definition, ...] = ()
    unpacks_tuple: bool = False  # called with several arguments, because elements are tuples


@dataclass(frozen=True)
class SourceText:
    """The source operator of a pipeline as text.

    File names are in `pattern` or `names`, anything else is an `expression`. With `takes_source`, the expression
    uses the argument `source` that the caller passes. With `gathers_rows`, the expression evaluates to arrays whose
    rows are gathered by index.
    """

    count: int  # number of elements; -1: infinite
    pattern: str = ""
    names: tuple[str, ...] = ()
    expression: str = ""
    takes_source: bool = False
    definitions: tuple[Definition, ...] = ()
    gathers_rows: bool = False

    @property
    def yields_file_names(self) -> bool:
        return bool(self.pattern or self.names)


@dataclass(frozen=True)
class StandaloneParts:
    """A pipeline and, by node id, the information about its operators that only live objects have."""

    pipeline: Pipeline
    sources: Mapping[str, SourceText]
    functions: Mapping[str, FunctionSource] = field(default_factory=dict)
    extra_arguments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # argument -> expression
    processors: int = 1  # of the machine; determines the default cycle length of interleave

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """What the texts of functions and sources use."""
        of_functions = (one for function in self.functions.values() for one in function.definitions)
        return (*of_functions, *(one for source in self.sources.values() for one in source.definitions))


class ElementIdentity(enum.StrEnum):
    """How elements were identified."""

    INDEX = "number"  # an index attached when the element is read: equal elements stay distinct
    DIGEST = "digest"  # of its value: occurrences of equal elements are counted together
    NAME = "file name"  # files were counted, not the elements in them
    ARITHMETIC = "arithmetic"  # nothing was run: computed from how TensorFlow shards data


@dataclass(frozen=True)
class WorkerShare:
    """What one worker receives in an epoch."""

    elements: int  # received, repetitions included
    batches: int | None = None
    short_batches: int | None = None  # with fewer rows than a full batch, including empty ones
    read: int | None = None  # elements it reads to get its own; None: unknown
    cells: tuple[int, ...] = ()  # how many of its elements lie in each of `Coverage.cells`
    read_bytes: int | None = None  # of files; None: unknown, or the data is not in files
    used_bytes: int | None = None  # the part of `read_bytes` that belongs to its own elements


@dataclass(frozen=True)
class Coverage:
    """Coverage of one epoch with `workers`, in total and per worker; of several epochs, the worst."""

    workers: tuple[WorkerShare, ...]
    counted: str  # "elements", "first elements" (if the data is too long to read it all), "files"
    told_by: ElementIdentity
    elements: int  # number of elements in the data
    never: int  # elements that no worker receives
    once: int  # elements received once
    twice: int  # elements received twice
    oftener: int  # elements received three times or more
    foreign: int = 0  # received elements that are not part of the data
    cells: tuple[int, ...] = ()  # number of elements in each segment of the data, in its original order
    by_file: bool = False  # each segment is one file
    files: int = 0  # number of files that contain elements; 0: the data is not in files, or unknown
    replicas_per_worker: int = 1  # each takes one batch per step
    each_everything: bool = False  # every worker should receive all data: counts of the worst worker
    epochs: int = 1
    servers: int = 0  # tf.data service workers that feed one training process, the only one in `workers`

    @property
    def complete(self) -> bool:
        """Whether every element is received exactly once."""
        return not (self.never or self.twice or self.oftener or self.foreign)

    @property
    def repeated(self) -> int:
        return self.twice + self.oftener

    @property
    def idle_workers(self) -> tuple[int, ...]:
        """Indices of workers that receive nothing while others receive elements."""
        found = tuple(index for index, one in enumerate(self.workers) if not one.elements)
        return found if len(found) < len(self.workers) else ()

    @property
    def first_out(self) -> int | None:
        """Steps until the first worker runs out of batches; None if batches were not counted."""
        counts = [one.batches for one in self.workers if one.batches is not None]
        if not counts or len(counts) < len(self.workers):
            return None
        return math.ceil(min(counts) / self.replicas_per_worker)

    @property
    def short_batches(self) -> int | None:
        """Short batches of all workers in total; None if unknown."""
        return self._total("short_batches")

    @property
    def read_over_used(self) -> float | None:
        """Elements read per element received, over all workers; None if unknown."""
        read, used = self._total("read"), sum(one.elements for one in self.workers)
        return read / used if read is not None and used else None

    @property
    def read_bytes(self) -> int | None:
        """Bytes of files that all workers read in total; a file read twice counts twice."""
        return self._total("read_bytes")

    @property
    def used_bytes(self) -> int | None:
        """Bytes of files that belong to the received elements; an element received twice counts twice."""
        return self._total("used_bytes")

    @property
    def bytes_read_over_used(self) -> float | None:
        """Bytes read per byte that belongs to a received element, over all workers; None if unknown."""
        read, used = self.read_bytes, self.used_bytes
        return read / used if read is not None and used else None

    def _total(self, name: str) -> int | None:
        """Returns the sum of a field of all workers; None if that of one of them is unknown."""
        counts = [getattr(one, name) for one in self.workers]
        return sum(counts) if counts and None not in counts else None


@dataclass(frozen=True)
class OriginalSharding:
    """How the original dataset of the script is divided among the workers of a job."""

    workers: int
    coverage: Coverage | None = None
    policy: str = ""  # auto-shard policy in effect: "FILE", "DATA" or "OFF"; "" if no strategy shards it
    why: str = ""  # why nothing was counted
    refused: bool = False  # TensorFlow cannot shard it this way; `why` says what is missing
    stopped_at: str = ""  # for DATA: the operator at which TensorFlow stopped looking for files; "" if none
    files: int = 0  # number of files of data too long to be counted; 0: none, or unknown
    file_bytes: int | None = None  # total size of these files

    @property
    def each_reads_all(self) -> bool:
        return self.policy in ("DATA", "OFF") and self.file_bytes is not None


@dataclass(frozen=True)
class ModuleCheck:
    """Result of running a distributed module with one number of workers; None: not counted."""

    workers: int
    each: str = "a part"  # what each worker should receive: "a part" or "everything"
    shard_by: str = ""  # "file", "element"; "" for a tf.data service
    spec: tuple[str, ...] = ()  # how its `element_spec` differs from that of the script, in sentences
    elements: int | None = None  # number of elements in an epoch
    missing: int | None = None  # in the worst epoch: over all workers, or of any that should receive everything
    duplicated: int | None = None  # as `missing`
    per_worker: tuple[int, ...] = ()  # elements that each worker received in the first epoch
    counted: str = ""  # "elements", "first elements", "files"
    epochs: int = 0  # number of epochs that were run
    per_replica_batch: int | None = None  # rows
    batches_per_worker: tuple[int, ...] | None = None
    short_batches_per_worker: tuple[int, ...] | None = None
    equal_batches: bool | None = None  # whether all workers receive the same number of batches, all of them full
    dropped: int | None = None  # samples per epoch that `drop_remainder` drops
    filled: int | None = None  # padding rows per epoch if last batches are filled instead
    why: str = ""  # why something was not counted, or a remark on the batches

    @property
    def everything(self) -> bool:
        return self.each == "everything"
