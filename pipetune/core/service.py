"""Whether a tf.data service would help a training process, with how many workers, and what could take its place."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.sizing import Quantity

FED = 0.95
"""From this share of what training takes an input counts as fast enough (XProf: less than 5 % of a step waited for)."""


@dataclass(frozen=True)
class ServiceNeed:
    """What one training process takes, what its own machine delivers, and the workers that would deliver the rest."""

    step_rate: float | None = None  # examples per second that training takes where its input is never late
    local_rate: Quantity | None = None  # examples per second that the input delivers on the same machine
    workers: Quantity | None = None  # whole ones; what sending costs left out
    worker_cores: float = 1.0  # of each
    bytes_per_second: Quantity | None = None  # into the training process, as elements lie in memory
    packed_bytes_per_second: Quantity | None = None  # the same compressed
    shares_processors: bool = False  # model and input run on the same processors here
    why: str = ""  # why it cannot be told, as part of a sentence

    @property
    def recommended(self) -> bool | None:
        """Whether the local bound is below the model's rate; None where that is open or not known."""
        if self.step_rate is None or self.local_rate is None:
            return None
        if self.local_rate.low >= FED * self.step_rate:
            return False
        return True if self.local_rate.high < FED * self.step_rate else None

    @property
    def most_workers(self) -> int | None:
        """Workers at the careful end of the range."""
        return None if self.workers is None else round(self.workers.high)


@dataclass(frozen=True)
class StoredPrefix:
    """A part of the pipeline that repeats in every epoch, stored once for all runs and all workers to begin with."""

    node: str  # the operator up to which
    size_bytes: float  # on disk
    sentence: str  # what it takes, saves and promises
    seconds_to_make: float | None = None  # of work and waiting, once; None: not measured
    storage_bytes_per_second: float | None = None  # at which it was taken to be read and written; None: not measured
    epochs_to_pay: int | None = None  # at whose end less time was spent than without; None: not known, or never
