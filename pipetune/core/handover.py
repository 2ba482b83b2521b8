"""How a distribution strategy delivers a dataset to the replicas that train on it.

Source: the "Distributed Input" guide of TensorFlow (tf.distribute).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

DATASET = "experimental_distribute_dataset"
FUNCTION = "distribute_datasets_from_function"
FIT = "Model.fit"
COORDINATOR = "create_per_worker_dataset"
OWN_PIPELINES = "a pipeline of each process"  # Horovod: no strategy distributes the dataset


@dataclass(frozen=True)
class Handover:
    """How the script's dataset is distributed to the replicas; sizes in rows."""

    strategy: str  # its class name: "MirroredStrategy"
    replicas: int  # that train in lockstep, over all workers
    how: str  # the call that distributes it: `DATASET`, `FUNCTION`, `FIT`, `COORDINATOR` or `OWN_PIPELINES`
    workers: int = 1  # processes with an input pipeline, each with replicas of its own
    batch: int | None = None  # of a full element of the dataset; None: varies or unknown
    shares: tuple[int, ...] = ()  # of a full batch, for each replica of this worker; () if it is not divided
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
        return 1 if self.divides or self.how == OWN_PIPELINES else self.replicas_per_worker


class CapturedKind(enum.StrEnum):
    """What a dataset function that is called on the workers captures from the script's process."""

    DATASET = "dataset"
    ITERATOR = "iterator"
    STATE = "state"  # a variable, a table


@dataclass(frozen=True)
class Captured:
    """One object of the script's process that such a function captures, and where it is used."""

    kind: CapturedKind
    name: str  # its name at that place in the script; '' if it was not found by name
    file: str
    line: int
