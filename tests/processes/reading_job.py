"""What a process that reads a stand-alone module is told, and what it leaves behind; no TensorFlow at import."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.codec import decode, encode
from pipetune.core.coverage import Identity
from pipetune.core.standalone import Delivery

JOB, MODULE, PARAMETER = "job.json", "module.py", "parameter"
READY, GO, COUNTS, FOUND = "ready-{}", "go", "counts-{}.npz", "found-{}.json"
"""Files in the folder that the processes share; those with a number are of one process."""


@dataclass(frozen=True)
class ReadingJob:
    """One module, and how its elements are counted."""

    delivery: Delivery
    workers: int
    counted: str  # a key of `counting.REDUCTIONS`
    key: Identity
    global_batch_size: int | None = None
    full_batch: int = 1  # rows of a batch that is not short
    most_steps: int | None = None  # of data without end; None: it ends
    seconds: float = 60.0  # to wait for the others
    path: tuple[str, ...] = ()  # where the user's modules are found

    def write(self, folder: Path) -> None:
        (folder / JOB).write_text(json.dumps(encode(self)))

    @classmethod
    def read(cls, folder: Path) -> ReadingJob:
        return decode(cls, json.loads((folder / JOB).read_text()))


@dataclass(frozen=True)
class Read:
    """What one process read in an epoch, besides the counts of its elements."""

    worker: int  # as the strategy, or the environment, told it
    workers: int
    batches: int  # with rows
    short_batches: int
    steps: int  # those without rows for it among them

    def write(self, folder: Path, index: int) -> None:
        """Appears whole or not at all."""
        path = folder / FOUND.format(index)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(encode(self)))
        unfinished.rename(path)

    @classmethod
    def read(cls, folder: Path, index: int) -> Read | None:
        """What process `index` left; None where it has not finished."""
        path = folder / FOUND.format(index)
        return decode(cls, json.loads(path.read_text())) if path.exists() else None
