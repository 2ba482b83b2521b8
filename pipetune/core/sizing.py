"""Input requirements of a training job on more machines: the job, and each figure with its origin."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


class Origin(enum.StrEnum):
    MEASURED = "measured"  # in the session
    PREDICTED = "predicted"  # by the cost model, from what was measured
    GIVEN = "given"  # by an option
    ASSUMED = "assumed"  # none of these; the note explains it


@dataclass(frozen=True)
class QuantityRange:
    """A figure as a range; both ends are equal if there is a single value."""

    low: float
    high: float
    basis: Origin
    note: str = ""  # how it was determined, as part of a sentence

    def times(self, factor: float) -> QuantityRange:
        """Returns the range multiplied by `factor`, which must be positive."""
        return replace(self, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True)
class TrainingJob:
    """The training job to size. All replicas train in lockstep, each on its own batch."""

    replicas: int
    per_host: int  # replicas on one host, which share one input pipeline
    step_seconds: float
    batch_examples: float  # examples per step of one replica
    host_cores: float
    worker_cores: float  # cores of one worker of a tf.data service
    storage_bytes_per_second: float | None = None  # delivered by storage to all hosts in total
    network_bytes_per_second: float | None = None  # into one host
    compression: float | None = None  # compression ratio of the elements
    bases: Mapping[str, Origin] = field(default_factory=dict)  # origin of the fields above, by name

    @property
    def hosts(self) -> int:
        return math.ceil(self.replicas / self.per_host)

    @property
    def replicas_on_full_host(self) -> int:
        """Replicas on a full host, or on the only host."""
        return min(self.replicas, self.per_host)

    @property
    def replica_rate(self) -> float:
        """Examples per second consumed by one replica."""
        return self.batch_examples / self.step_seconds

    @property
    def rate(self) -> float:
        return self.replicas * self.replica_rate

    @property
    def host_rate(self) -> float:
        """Examples per second consumed by the replicas of one host."""
        return self.replicas_on_full_host * self.replica_rate


class ScalingLimit(enum.StrEnum):
    """What prevents more replicas from training at full speed."""

    CORES = "cores"  # of a host: its input needs more CPU time
    THREADS = "threads"  # of a host's input: operators in one thread, or a fixed parallelism
    NETWORK = "network"  # into a host
    STORAGE = "storage"  # all hosts in total read more than it delivers
    FILES = "files"  # there are fewer files than hosts
    DATA = "data"  # a step of all replicas consumes more examples than an epoch has
    INPUT = "input"  # of a host, as measured; its bottleneck is unknown


PER_HOST_LIMITS = frozenset({ScalingLimit.CORES, ScalingLimit.THREADS, ScalingLimit.NETWORK, ScalingLimit.INPUT})
"""Limits of one host: they are reached by more replicas per host, not by more hosts."""


@dataclass(frozen=True)
class ReplicaLimit:
    """The number of replicas up to which a limit lets every replica train at full speed."""

    limit: ScalingLimit
    replicas: QuantityRange  # on one host if the limit is in `PER_HOST_LIMITS`, else in the whole job; not rounded
    node: str | None = None  # the limiting operator
    reached: bool = False  # the job has more replicas than the lower end of the range


@dataclass(frozen=True)
class JobSize:
    """The job at another size."""

    replicas: int
    hosts: int
    needed: float  # examples per second
    delivered: float | None  # examples per second, conservatively; None if unknown
    held_by: ScalingLimit | None = None


@dataclass(frozen=True)
class InputRequirements:
    """What one variant of the pipeline needs and delivers in the job `Sizing.job`."""

    variant: str  # "current", "tuned"
    cpu_seconds: QuantityRange | None  # CPU time per example
    cores: QuantityRange | None  # cores of one host that its input keeps busy
    host_rate: QuantityRange | None  # examples per second of one input pipeline on a host
    host_limit: ScalingLimit  # what limits `host_rate`
    host_node: str | None
    most_rate: QuantityRange | None  # with unlimited cores; None: only cores limit it, or unknown
    most_node: str | None
    replicas_fed: QuantityRange | None  # replicas that one host can feed
    service_workers: QuantityRange | None  # whole workers
    storage_bytes_per_second: QuantityRange | None  # read by all hosts, once caches are filled
    memory_bytes: QuantityRange | None  # of one host that builds a batch per replica (a `dataset_fn`)
    memory_bytes_rebatched: QuantityRange | None  # of one host that builds global batches and divides them
    why: str = ""  # why rates cannot be predicted

    def can_feed(self, replicas: int) -> bool | None:
        """Whether one host feeds this many replicas; None if the range leaves it open or nothing is known."""
        if self.replicas_fed is None:
            return None
        if self.replicas_fed.low >= replicas:
            return True
        return False if self.replicas_fed.high < replicas else None


@dataclass(frozen=True)
class FilesNeeded:
    """Number of input files needed if the hosts divide them without splitting any."""

    files: int | None  # existing files; None: unknown
    at_least: int  # the number of hosts
    to_overlap: int | None  # files needed so that every host's interleave can fill its cycle
    used_share: float | None  # share of all hosts' time in use, for equal files: hosts with fewer files wait


@dataclass(frozen=True)
class MissingFigure:
    """A missing figure, why it is missing, and the option or command that provides it."""

    figure: str
    why: str
    ask: str = ""


@dataclass(frozen=True)
class Sizing:
    """The complete result for one dataset."""

    dataset: str
    job: TrainingJob
    feeds: tuple[InputRequirements, ...]  # the original first
    service_bytes_per_second: QuantityRange | None  # into one host, from a tf.data service, uncompressed
    service_bytes_compressed: QuantityRange | None
    loop_cores: QuantityRange | None  # of one host, used by the training loops themselves
    files: FilesNeeded
    epoch_examples: int | None
    ceilings: tuple[ReplicaLimit, ...]  # of the last variant, the lowest first
    rungs: tuple[JobSize, ...]
    missing: tuple[MissingFigure, ...] = ()
    processor: str = ""  # where CPU time was measured
    measured_cores: float = 0.0

    @property
    def best_requirements(self) -> InputRequirements:
        """The variant to run: tuned if there is a plan."""
        return self.feeds[-1]

    @property
    def first_ceiling(self) -> ReplicaLimit | None:
        """The first limit that this job, or the same job on more hosts, reaches.

        A per-host limit that the job does not reach is left out: more hosts never reach it.
        """
        return next((one for one in self.ceilings if one.reached or one.limit not in PER_HOST_LIMITS), None)
