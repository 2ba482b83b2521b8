"""Whether a tf.data service would help a training process, with how many workers, and what could replace it."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.sizing import Quantity

FED = 0.95
"""Share of the training's rate from which an input counts as fast enough (XProf: under 5 % of a step is waiting)."""


@dataclass(frozen=True)
class ServiceNeed:
    """Rate of one training process, rate of its local input, and the service workers that would be needed."""

    step_rate: float | None = None  # examples per second that training consumes if its input is never late
    local_rate: Quantity | None = None  # examples per second that the input delivers on the same machine
    workers: Quantity | None = None  # whole workers; the cost of sending is not included
    worker_cores: float = 1.0  # cores per worker
    bytes_per_second: Quantity | None = None  # into the training process, uncompressed
    packed_bytes_per_second: Quantity | None = None  # into the training process, compressed
    shares_processors: bool = False  # model and input share the same processors
    why: str = ""  # why this is unknown, as part of a sentence

    @property
    def recommended(self) -> bool | None:
        """Whether the local input is slower than the model's rate; None if that is undecided or unknown."""
        if self.step_rate is None or self.local_rate is None:
            return None
        if self.local_rate.low >= FED * self.step_rate:
            return False
        return True if self.local_rate.high < FED * self.step_rate else None

    @property
    def most_workers(self) -> int | None:
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
