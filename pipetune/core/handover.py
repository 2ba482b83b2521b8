"""How a distribution strategy takes a dataset to the replicas that train on it.

Source: the "Distributed Input" guide of TensorFlow (tf.distribute).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

DATASET = "experimental_distribute_dataset"
FUNCTION = "distribute_datasets_from_function"
FIT = "Model.fit"
COORDINATOR = "create_per_worker_dataset"
OWN_PIPELINES = "a pipeline of each process"  # Horovod: nothing is handed over


@dataclass(frozen=True)
class Handover:
    """What is between the script's dataset and the replicas; sizes in rows."""

    strategy: str  # its class, "MirroredStrategy"
    replicas: int  # that train in step, over all workers
    how: str  # the call that hands it over: `DATASET`, `FUNCTION`, `FIT`, `COORDINATOR` or `OWN_PIPELINES`
    workers: int = 1  # input pipelines: processes, each with replicas of its own
    batch: int | None = None  # of a full element of the dataset; None: it differs, or is not known
    shares: tuple[int, ...] = ()  # of a full batch, what each replica of this worker gets; () where nothing divides it
    by_own_size: bool = False  # a smaller batch is divided by its own size; else dealt by the size of a full one
    prefetched: int = 0  # elements that the strategy prefetches behind the dataset, by itself
    policy: str = ""  # by which it is sharded over several workers: "AUTO", "FILE", "DATA", "OFF"

    @property
    def replicas_per_worker(self) -> int:
        return max(1, self.replicas // max(1, self.workers))

    @property
    def divides(self) -> bool:
        """Whether an element of the dataset is a global batch, which the strategy divides over the replicas."""
        return self.how in (DATASET, FIT)

    @property
    def elements_per_step(self) -> int:
        """Elements of this worker's dataset in one training step: one for each replica, or one that is divided."""
        return 1 if self.divides or self.how == OWN_PIPELINES else self.replicas_per_worker


class CapturedKind(enum.StrEnum):
    """What a function that workers call for their dataset takes from the process of the script."""

    DATASET = "dataset"
    ITERATOR = "iterator"
    STATE = "state"  # a variable, a table


@dataclass(frozen=True)
class Captured:
    """Something of the script's process that such a function uses, and where it does."""

    kind: CapturedKind
    name: str  # as the script has it there; '' where it was not found by name
    file: str
    line: int
