"""What a training job on more machines needs of its input: what was asked, and each figure with where it is from."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


class Basis(enum.StrEnum):
    """Where a figure comes from."""

    MEASURED = "measured"  # in the session
    PREDICTED = "predicted"  # by the cost model, from what was measured
    GIVEN = "given"  # by an option
    ASSUMED = "assumed"  # neither; the note says what


@dataclass(frozen=True)
class Quantity:
    """A figure as a range; both ends are the same where there is one figure only."""

    low: float
    high: float
    basis: Basis
    note: str = ""  # how it was found out, as part of a sentence

    def times(self, factor: float) -> Quantity:
        """The range scaled; `factor` above zero."""
        return replace(self, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True)
class Job:
    """The training job that is asked about. All replicas step together, each on a batch of its own."""

    replicas: int
    per_host: int  # replicas that one host holds, and one input pipeline feeds
    step_seconds: float
    batch_examples: float  # that one replica takes in a step
    host_cores: float
    worker_cores: float  # of one worker of tf.data service
    storage_bytes_per_second: float | None = None  # that storage delivers to all hosts together
    network_bytes_per_second: float | None = None  # into one host
    compression: float | None = None  # how many times smaller elements are once compressed
    bases: Mapping[str, Basis] = field(default_factory=dict)  # of the fields above, by name

    @property
    def hosts(self) -> int:
        return math.ceil(self.replicas / self.per_host)

    @property
    def on_one_host(self) -> int:
        """Replicas on a host that is full, or on the only one."""
        return min(self.replicas, self.per_host)

    @property
    def replica_rate(self) -> float:
        """Examples per second that one replica takes."""
        return self.batch_examples / self.step_seconds

    @property
    def rate(self) -> float:
        """Examples per second that all replicas take."""
        return self.replicas * self.replica_rate

    @property
    def host_rate(self) -> float:
        """Examples per second that the replicas of one host take."""
        return self.on_one_host * self.replica_rate


class Limit(enum.StrEnum):
    """What keeps more replicas from training as fast each."""

    CORES = "cores"  # of a host: its input needs more processor time
    THREADS = "threads"  # of a host's input: operators in one thread, or a fixed number of calls
    NETWORK = "network"  # into a host
    STORAGE = "storage"  # all hosts together read more than it delivers
    FILES = "files"  # fewer of them than hosts
    DATA = "data"  # one step of all replicas takes more examples than an epoch has
    INPUT = "input"  # of a host, as it was measured; what binds it is not known


PER_HOST = frozenset({Limit.CORES, Limit.THREADS, Limit.NETWORK, Limit.INPUT})
"""Limits of one host: more hosts do not reach them, more replicas on each do."""


@dataclass(frozen=True)
class Ceiling:
    """Up to how many replicas a limit lets every replica train at its own pace."""

    limit: Limit
    replicas: Quantity  # on one host where the limit is in `PER_HOST`, else in the whole job; not rounded
    node: str | None = None  # the operator that binds
    reached: bool = False  # the job has more, at the careful end of the range


@dataclass(frozen=True)
class Rung:
    """The job at another size."""

    replicas: int
    hosts: int
    needed: float  # examples per second
    delivered: float | None  # at the careful ends of all ranges; None where it cannot be told
    held_by: Limit | None = None


@dataclass(frozen=True)
class Feed:
    """What one form of the pipeline needs; the job's figures are in `Sizing.job`."""

    variant: str  # "as written", "tuned"
    cpu_seconds: Quantity | None  # of processors, per example
    cores: Quantity | None  # of one host that its input keeps busy
    host_rate: Quantity | None  # examples per second of one input pipeline on a host's cores
    host_limit: Limit  # what binds there
    host_node: str | None
    most_rate: Quantity | None  # with any number of cores; None: cores alone decide, or it cannot be told
    most_node: str | None
    replicas_fed: Quantity | None  # by one host
    service_workers: Quantity | None  # whole workers
    storage_bytes_per_second: Quantity | None  # by all hosts, once caches are filled
    memory_bytes: Quantity | None  # of one host, every replica's batch made by itself (a `dataset_fn`)
    memory_bytes_rebatched: Quantity | None  # whole global batches made on every host and divided there
    why: str = ""  # why rates cannot be predicted

    def feeds(self, replicas: int) -> bool | None:
        """Whether one host feeds so many replicas; None where the range leaves it open or nothing is known."""
        if self.replicas_fed is None:
            return None
        if self.replicas_fed.low >= replicas:
            return True
        return False if self.replicas_fed.high < replicas else None


@dataclass(frozen=True)
class FilesNeeded:
    """Files that the hosts divide among them, each whole."""

    files: int | None  # that there are; None: not known
    at_least: int  # so many hosts
    to_overlap: int | None  # so that every host's interleave has as many as it reads at once
    used_share: float | None  # of all hosts' time, where files are alike: hosts with fewer wait for the others


@dataclass(frozen=True)
class Missing:
    """A figure that is left out, why, and the option or command that would bring it."""

    figure: str
    why: str
    ask: str = ""


@dataclass(frozen=True)
class Sizing:
    """All of it, for one dataset."""

    dataset: str
    job: Job
    feeds: tuple[Feed, ...]  # as written first
    service_bytes_per_second: Quantity | None  # into one host, from tf.data service, as they are
    service_bytes_compressed: Quantity | None
    loop_cores: Quantity | None  # of one host, for the training loops themselves
    files: FilesNeeded
    epoch_examples: int | None
    ceilings: tuple[Ceiling, ...]  # of the last form, the lowest first
    rungs: tuple[Rung, ...]
    missing: tuple[Missing, ...] = ()
    processor: str = ""  # on which CPU time was measured
    measured_cores: float = 0.0

    @property
    def feed(self) -> Feed:
        """The form to run: tuned where there is a plan."""
        return self.feeds[-1]

    @property
    def first_ceiling(self) -> Ceiling | None:
        """The first limit that the job, or a larger one of the same kind, reaches; one of a host that the job does
        not reach is never reached by more hosts.
        """
        return next((one for one in self.ceilings if one.reached or one.limit not in PER_HOST), None)
