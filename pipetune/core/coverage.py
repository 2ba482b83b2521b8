"""What several workers get of one epoch that they read side by side: which elements come, how often, and to whom."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Identity(enum.StrEnum):
    """How elements were told apart."""

    NUMBER = "number"  # given to each element as it was read, and carried through: equal elements stay two
    DIGEST = "digest"  # of its value: how often equal elements come is counted for all of them together
    NAME = "file name"  # files were counted, not what is in them
    ARITHMETIC = "arithmetic"  # nothing was run: it follows from how TensorFlow divides data


@dataclass(frozen=True)
class WorkerShare:
    """What one worker gets in an epoch."""

    elements: int  # an element counted as often as it comes
    batches: int | None = None
    short_batches: int | None = None  # those with fewer rows than a full one, empty ones among them
    read: int | None = None  # elements it reads to get its own; None: not known
    cells: tuple[int, ...] = ()  # of its elements, how many lie in each of `Coverage.cells`
    read_bytes: int | None = None  # of files; None: not known, or the data is not in files
    used_bytes: int | None = None  # of these, those that its elements are of


@dataclass(frozen=True)
class Coverage:
    """One epoch on so many workers, all of them together and each alone; of several epochs the worst."""

    workers: tuple[WorkerShare, ...]
    counted: str  # "elements", "first elements" (of data too long to be read), "files"
    told_by: Identity
    elements: int  # in the data
    never: int
    once: int
    twice: int
    oftener: int  # three times or more
    foreign: int = 0  # that come and are none of the data
    cells: tuple[int, ...] = ()  # the data in its own order, cut into stretches: elements in each
    by_file: bool = False  # each of the cells is a file
    files: int = 0  # that hold elements of the data; 0: it does not come from files, or that is not known
    replicas_per_worker: int = 1  # each takes a batch in a step
    each_everything: bool = False  # every worker is to get all of the data: counted is the worker that fared worst
    epochs: int = 1
    servers: int = 0  # workers of a tf.data service, from which a training process reads: `workers` is that one

    @property
    def complete(self) -> bool:
        """Whether every element comes exactly once."""
        return not (self.never or self.twice or self.oftener or self.foreign)

    @property
    def repeated(self) -> int:
        """Elements that come more than once."""
        return self.twice + self.oftener

    @property
    def idle_workers(self) -> tuple[int, ...]:
        """Workers that get nothing while others get something."""
        found = tuple(index for index, one in enumerate(self.workers) if not one.elements)
        return found if len(found) < len(self.workers) else ()

    @property
    def first_out(self) -> int | None:
        """Steps until the first worker has no batch left; None where batches were not counted."""
        counts = [one.batches for one in self.workers if one.batches is not None]
        if not counts or len(counts) < len(self.workers):
            return None
        return math.ceil(min(counts) / self.replicas_per_worker)

    @property
    def short_batches(self) -> int | None:
        """On all workers together."""
        return self._sum([one.short_batches for one in self.workers])

    @property
    def read_over_used(self) -> float | None:
        """Elements that all workers read for each one that a worker gets. None where it is not known."""
        used = sum(one.elements for one in self.workers)
        read = [one.read for one in self.workers if one.read is not None]
        return sum(read) / used if used and len(read) == len(self.workers) else None

    @property
    def read_bytes(self) -> int | None:
        """Bytes of files that all workers read, those of a file as often as it is read."""
        return self._sum([one.read_bytes for one in self.workers])

    @property
    def used_bytes(self) -> int | None:
        """Bytes of files that the elements which workers get are of, an element counted as often as it comes."""
        return self._sum([one.used_bytes for one in self.workers])

    @property
    def bytes_read_over_used(self) -> float | None:
        """Bytes that all workers read for each one that an element of theirs is of. None where it is not known."""
        read, used = self.read_bytes, self.used_bytes
        return read / used if read is not None and used else None

    def _sum(self, counts: list[int | None]) -> int | None:
        """Of all workers; None where it is not known of one of them."""
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(self.workers) else None


@dataclass(frozen=True)
class AsWritten:
    """What the workers of a job get of a dataset as the script makes it."""

    workers: int
    coverage: Coverage | None = None
    policy: str = ""  # by which TensorFlow divides it: "FILE", "DATA" or "OFF"; "" where no strategy does
    why: str = ""  # why nothing was counted
    refused: bool = False  # TensorFlow cannot divide it so, and `why` says what is missing
    stopped_at: str = ""  # by DATA: the operator at which TensorFlow gave up looking for files; "" where it did not
    files: int = 0  # that the data comes from, where it is too long to be counted; 0: none, or not known
    file_bytes: int | None = None  # of all of them

    @property
    def each_reads_all(self) -> bool:
        """Whether every worker reads all of the files."""
        return self.policy in ("DATA", "OFF") and self.file_bytes is not None
