"""The job and the results of a process that reads a stand-alone module; imports no TensorFlow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.codec import decode, encode
from pipetune.core.distribution import DeliveryMode, ElementIdentity

JOB, MODULE, PARAMETER = "job.json", "module.py", "parameter"
READY, GO, COUNTS, FOUND = "ready-{}", "go", "counts-{}.npz", "found-{}.json"
"""Files in the shared folder of the processes; those with a number belong to one process."""


@dataclass(frozen=True)
class ReadingJob:
    """A module and how its elements are counted."""

    delivery: DeliveryMode
    workers: int
    counted: str  # a key of `counting.REDUCTIONS`
    key: ElementIdentity
    global_batch_size: int | None = None
    full_batch: int = 1  # rows of a full batch
    most_steps: int | None = None  # for infinite data; None for finite data
    seconds: float = 60.0  # time limit of waiting for the peers
    path: tuple[str, ...] = ()  # search path of the user's modules

    def write(self, folder: Path) -> None:
        (folder / JOB).write_text(json.dumps(encode(self)))

    @classmethod
    def read(cls, folder: Path) -> ReadingJob:
        return decode(cls, json.loads((folder / JOB).read_text()))


@dataclass(frozen=True)
class Read:
    """The results of one process for an epoch, except the counts of its elements."""

    worker: int  # index according to the strategy or the environment
    workers: int
    batches: int  # batches with rows
    short_batches: int
    steps: int  # including steps without rows for this process

    def write(self, folder: Path, index: int) -> None:
        """Writes the file atomically."""
        path = folder / FOUND.format(index)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(encode(self)))
        unfinished.rename(path)

    @classmethod
    def read(cls, folder: Path, index: int) -> Read | None:
        """The results of process `index`; None if it has not finished."""
        path = folder / FOUND.format(index)
        return decode(cls, json.loads(path.read_text())) if path.exists() else None
