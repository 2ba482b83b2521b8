"""Coverage of an epoch that several workers read in parallel: which elements each one receives, and how often."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Identity(enum.StrEnum):
    """How elements were identified."""

    NUMBER = "number"  # an index attached when the element is read: equal elements stay distinct
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
    """Coverage of one epoch with `workers`, in total and per worker. Over several epochs, the worst is kept."""

    workers: tuple[WorkerShare, ...]
    counted: str  # "elements", "first elements" (if the data is too long to read it all), "files"
    told_by: Identity
    elements: int  # in the data
    never: int
    once: int
    twice: int
    oftener: int  # three times or more
    foreign: int = 0  # received elements that are not part of the data
    cells: tuple[int, ...] = ()  # number of elements in each segment of the data, in its original order
    by_file: bool = False  # each segment is one file
    files: int = 0  # that contain elements of the data; 0: the data is not in files, or unknown
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
        """Elements that are received more than once."""
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
        return self._sum([one.short_batches for one in self.workers])

    @property
    def read_over_used(self) -> float | None:
        """Elements read per element received, over all workers; None if unknown."""
        used = sum(one.elements for one in self.workers)
        read = [one.read for one in self.workers if one.read is not None]
        return sum(read) / used if used and len(read) == len(self.workers) else None

    @property
    def read_bytes(self) -> int | None:
        """Bytes of files that all workers read in total; a file read twice counts twice."""
        return self._sum([one.read_bytes for one in self.workers])

    @property
    def used_bytes(self) -> int | None:
        """Bytes of files that belong to the received elements; an element received twice counts twice."""
        return self._sum([one.used_bytes for one in self.workers])

    @property
    def bytes_read_over_used(self) -> float | None:
        """Bytes read per byte that belongs to a received element, over all workers; None if unknown."""
        read, used = self.read_bytes, self.used_bytes
        return read / used if read is not None and used else None

    def _sum(self, counts: list[int | None]) -> int | None:
        """Returns the sum over all workers; None if the count of one of them is unknown."""
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(self.workers) else None


@dataclass(frozen=True)
class AsWritten:
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
        """Whether every worker reads all files."""
        return self.policy in ("DATA", "OFF") and self.file_bytes is not None
