"""Compares the elements and bytes that workers received with the data; computes what they would receive."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipetune.core.distribution import Coverage, ElementIdentity, WorkerShare
from pipetune.model.sharding import AutoShardPolicy, worker_batches

MOST_CELLS = 48
"""Maximum number of cells (consecutive stretches of the data) that a diagram shows."""

Counts = Mapping[int, int]
"""Number of occurrences of each key."""


@dataclass(frozen=True)
class DeliveryCounts:
    """Numbers of elements by how often they were delivered."""

    never: int = 0
    once: int = 0
    twice: int = 0
    more_than_twice: int = 0
    unexpected: int = 0  # delivered, but not part of the data

    @property
    def not_once(self) -> int:
        """Elements that were not delivered exactly once."""
        return self.never + self.twice + self.more_than_twice + self.unexpected


def count_deliveries(expected: Counts, received: Counts) -> DeliveryCounts:
    """Returns how often the elements of `expected` were delivered in `received`."""
    found = [0, 0, 0, 0]
    for key, equal in expected.items():
        each, more = divmod(received.get(key, 0), equal)
        found[min(each, 3)] += equal - more
        found[min(each + 1, 3)] += more
    never, once, twice, oftener = found
    return DeliveryCounts(
        never, once, twice, oftener, sum(count for key, count in received.items() if key not in expected)
    )


def count_batches(elements: int, size: int, *, drop_remainder: bool) -> tuple[int, int]:
    """Returns the number of batches that `elements` elements make, and how many of them are short."""
    if drop_remainder:
        return elements // size, 0
    return math.ceil(elements / size), int(elements % size > 0)


def epoch_remainder(counts: Sequence[int], batch_size: int, *, replicas_per_worker: int = 1) -> tuple[int, int]:
    """Returns how many elements full batches leave out in an epoch, and how many padding rows would fill the last ones.

    With one worker whole steps are filled: with fixed shapes, TensorFlow does not run a step that lacks a batch.

    Args:
        counts: elements that each worker's pipeline reads.
        batch_size: rows in a batch of a replica.
        replicas_per_worker: replicas that each worker feeds.
    """
    step = batch_size * (replicas_per_worker if len(counts) == 1 else 1)
    return sum(count % step for count in counts), sum(-count % step for count in counts)


@dataclass(frozen=True)
class Cells:
    """The data in its own order, divided into consecutive cells: their sizes, and the cell of each key."""

    sizes: tuple[int, ...]
    of_key: Mapping[int, int]
    by_file: bool

    def count(self, received: Counts) -> tuple[int, ...]:
        """Returns the number of delivered elements in each cell; keys that are not part of the data are ignored."""
        found = [0] * len(self.sizes)
        for key, count in received.items():
            if key in self.of_key:
                found[self.of_key[key]] += count
        return tuple(found)


def divide_into_cells(expected: Counts, *, files: Sequence[int] = (), max_cells: int = MOST_CELLS) -> Cells:
    """Returns the data, in the order of the keys of `expected`, divided into cells.

    Args:
        expected: the elements of the data.
        files: elements in each file, in that order; () if unknown. Up to `max_cells` files become one cell each.
        max_cells: the largest number of cells.
    """
    ends, by_file = _cell_ends(sum(expected.values()), files, max_cells)
    of_key, position = {}, 0
    for key, equal in expected.items():
        of_key[key] = bisect.bisect_right(ends, position)
        position += equal
    return Cells(_cell_sizes(ends), of_key, by_file)


def _cell_ends(total: int, files: Sequence[int], max_cells: int) -> tuple[list[int], bool]:
    """Returns the exclusive end of each cell of `total` elements, and whether each cell is a file."""
    if 1 < len(files) <= max_cells and sum(files) == total:
        return list(itertools.accumulate(files)), True
    count = min(max_cells, total)
    return [index * total // count for index in range(1, count + 1)], False


def _cell_sizes(ends: Sequence[int]) -> tuple[int, ...]:
    return tuple(end - start for start, end in itertools.pairwise([0, *ends]))


@dataclass(frozen=True)
class StoredBytes:
    """The files that the data comes from, and the number of bytes in them for each element.

    Read-ahead of the readers is included in neither.
    """

    bytes_by_key: Mapping[int, float]  # bytes of one element with this key; elements share a file evenly
    file_sizes: tuple[int, ...]  # size of each file in bytes, by file index
    file_index_shift: int | None = None  # key >> file_bits is the index of the file; None: keys do not contain it
    ends_early: bool = False  # reading stops once enough elements were read

    def used_bytes(self, received: Mapping[int, int]) -> int | None:
        """Returns the bytes of these elements, repeated elements counted each time; None if one is unknown."""
        if not received.keys() <= self.bytes_by_key.keys():
            return None
        return round(sum(count * self.bytes_by_key[key] for key, count in received.items()))

    def read_bytes(self, expected: Mapping[int, int], received: Mapping[int, int], *, everything: bool) -> int | None:
        """Returns the bytes that a worker reads to get the elements `received`; None if unknown.

        Args:
            expected: all elements of the data.
            received: the elements that the worker received.
            everything: whether it reads all of the data, or only the files that contain its own elements. In the second
                case, a file from which every element is left out is counted for no worker.
        """
        if everything:
            return self.used_bytes(expected) if self.ends_early else sum(self.file_sizes)
        if self.file_index_shift is None or not received.keys() <= self.bytes_by_key.keys():
            return None
        if self.ends_early:
            return self.used_bytes(dict.fromkeys(received, 1))
        return sum(self.file_sizes[number] for number in {key >> self.file_index_shift for key in received})


def worst_coverage(
    expected: Sequence[Counts],
    received: Sequence[Sequence[Counts]],
    *,
    told_by: ElementIdentity,
    counted: str = "elements",
    files: Sequence[int] = (),
    each_everything: bool = False,
    stored: StoredBytes | None = None,
    reads_all: bool = False,
) -> Coverage:
    """Returns the coverage of the worst epoch; the caller adds batches and elements read.

    Args:
        expected: by epoch, the elements of the data.
        received: by worker and epoch, the elements that the worker received.
        told_by: how elements were identified.
        counted: what was counted, as in `Coverage.counted`.
        files: see `divide_into_cells`.
        each_everything: every worker should receive all of the data; the counts are those of the worst worker.
        stored: files and bytes that the elements come from; None if unknown.
        reads_all: whether each worker reads all of the files, or only those of its own elements.
    """
    counts = [[worker[epoch] for worker in received] for epoch in range(len(expected))]
    found = [
        (epoch, count_deliveries(expected[epoch], part))
        for epoch, parts in enumerate(counts)
        for part in (parts if each_everything else [sum(map(Counter, parts), Counter())])
    ]
    epoch, worst = max(found, key=lambda one: one[1].not_once)
    place = divide_into_cells(expected[epoch], files=files)
    return Coverage(
        workers=tuple(
            WorkerShare(
                sum(mine.values()),
                cells=place.count(mine),
                read_bytes=stored.read_bytes(expected[epoch], mine, everything=reads_all) if stored else None,
                used_bytes=stored.used_bytes(mine) if stored else None,
            )
            for mine in counts[epoch]
        ),
        counted=counted,
        told_by=told_by,
        elements=sum(expected[epoch].values()),
        never=worst.never,
        once=worst.once,
        twice=worst.twice,
        oftener=worst.more_than_twice,
        foreign=worst.unexpected,
        cells=place.sizes,
        by_file=place.by_file,
        files=len(files) if sum(files) == sum(expected[epoch].values()) else 0,
        each_everything=each_everything,
        epochs=len(expected),
    )


def computed_coverage(
    elements: int,
    batch_size: int,
    *,
    workers: int,
    replicas_per_worker: int = 1,
    policy: AutoShardPolicy | None = None,
    batch_size_known: bool = True,
) -> Coverage:
    """Returns what the workers receive of data that all of them read, without running anything.

    Args:
        elements: number of elements in the data.
        batch_size: elements in a batch of the script: under a strategy, the global batch.
        workers: number of workers.
        replicas_per_worker: replicas of each of them.
        policy: the applied policy of a strategy, DATA or OFF; None: each worker runs the pipeline by itself.
        batch_size_known: whether TensorFlow can infer the batch size from the pipeline.
    """
    ends, _ = _cell_ends(elements, (), MOST_CELLS)
    full = batch_size if policy is None else max(1, batch_size // (workers * replicas_per_worker))
    shares = []
    for worker in range(workers):
        batches = worker_batches(
            elements,
            batch_size,
            workers=workers,
            replicas_per_worker=replicas_per_worker,
            worker=worker,
            policy=policy,
            batch_size_known=batch_size_known,
        )
        shares.append(_computed_share(batches, full, elements, ends))
    times = 1 if policy is AutoShardPolicy.DATA else workers  # without DATA each worker receives everything
    return Coverage(
        workers=tuple(shares),
        counted="elements",
        told_by=ElementIdentity.ARITHMETIC,
        elements=elements,
        never=0,
        once=elements if times == 1 else 0,
        twice=elements if times == 2 else 0,
        oftener=elements if times > 2 else 0,
        cells=_cell_sizes(ends),
        replicas_per_worker=replicas_per_worker,
    )


def _computed_share(batches: Iterable[range], full: int, read: int, ends: Sequence[int]) -> WorkerShare:
    """What a worker receives that gets these batches, `full` elements in a full one; `ends` are those of the cells."""
    cells = [0] * len(ends)
    count = short = 0
    for batch in batches:
        count, short = count + 1, short + (len(batch) < full)
        cell = bisect.bisect_right(ends, batch.start)
        while batch:
            inside = batch[: ends[cell] - batch.start]
            cells[cell] += len(inside)
            batch, cell = batch[len(inside) :], cell + 1
    return WorkerShare(elements=sum(cells), batches=count, short_batches=short, read=read, cells=tuple(cells))
