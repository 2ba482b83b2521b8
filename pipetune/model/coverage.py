"""Compares the elements that workers received with the elements of the data, each identified by a key.

A key may stand for several equal elements if only the value identifies them. Their deliveries are then assumed to be
spread as evenly as possible: two equal rows delivered twice in total count as once each. This can hide a row that was
delivered twice while its equal was not delivered, but never reports a row as repeated that was not.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipetune.core.coverage import Coverage, Identity, WorkerShare
from pipetune.model.stored import Stored

MOST_CELLS = 48
"""Maximum number of cells (consecutive stretches of the data) that a diagram shows."""

Counts = Mapping[int, int]
"""Number of occurrences of each key."""


@dataclass(frozen=True)
class Times:
    """Numbers of elements by how often they were delivered."""

    never: int = 0
    once: int = 0
    twice: int = 0
    oftener: int = 0
    foreign: int = 0  # delivered, but not part of the data

    @property
    def wrong(self) -> int:
        """Elements that were not delivered exactly once."""
        return self.never + self.twice + self.oftener + self.foreign


def times(wanted: Counts, given: Counts) -> Times:
    """Counts how often the elements of `wanted` were delivered in `given`."""
    found = [0, 0, 0, 0]
    for key, equal in wanted.items():
        each, more = divmod(given.get(key, 0), equal)
        found[min(each, 3)] += equal - more
        found[min(each + 1, 3)] += more
    never, once, twice, oftener = found
    return Times(never, once, twice, oftener, sum(count for key, count in given.items() if key not in wanted))


def together(parts: Iterable[Counts]) -> dict[int, int]:
    """Adds up the counts of all parts."""
    found: dict[int, int] = {}
    for part in parts:
        for key, count in part.items():
            found[key] = found.get(key, 0) + count
    return found


def batches(elements: int, size: int, *, drop_remainder: bool) -> tuple[int, int]:
    """The number of batches that `elements` elements make, and how many of them are short."""
    if drop_remainder:
        return elements // size, 0
    return math.ceil(elements / size), int(elements % size > 0)


@dataclass(frozen=True)
class Cells:
    """The data in its own order, divided into consecutive cells: their sizes, and the cell of each key."""

    sizes: tuple[int, ...]
    of_key: Mapping[int, int]
    by_file: bool

    def of(self, given: Counts) -> tuple[int, ...]:
        """Counts the delivered elements in each cell; keys that are not part of the data are ignored."""
        found = [0] * len(self.sizes)
        for key, count in given.items():
            if key in self.of_key:
                found[self.of_key[key]] += count
        return tuple(found)


def cells(wanted: Counts, *, files: Sequence[int] = (), most: int = MOST_CELLS) -> Cells:
    """Divides the data, in the order of the keys of `wanted`, into cells.

    Args:
        files: elements in each file, in that order; () if unknown. Up to `most` files become one cell each.
    """
    total = sum(wanted.values())
    by_file = 1 < len(files) <= most and sum(files) == total
    count = min(most, total)
    ends = list(itertools.accumulate(files)) if by_file else [index * total // count for index in range(1, count + 1)]
    sizes = [end - start for start, end in itertools.pairwise([0, *ends])]
    of_key, position = {}, 0
    for key, equal in wanted.items():
        of_key[key] = bisect.bisect_right(ends, position)
        position += equal
    return Cells(tuple(sizes), of_key, by_file)


def coverage(
    wanted: Sequence[Counts],
    given: Sequence[Sequence[Counts]],
    *,
    told_by: Identity,
    counted: str = "elements",
    files: Sequence[int] = (),
    each_everything: bool = False,
    stored: Stored | None = None,
    reads_all: bool = False,
) -> Coverage:
    """Returns the coverage of the worst epoch; the caller adds batches and elements read.

    Args:
        wanted: by epoch, the elements of the data.
        given: by worker and epoch, the elements that the worker received.
        told_by: how elements were identified.
        counted: what was counted, as in `Coverage.counted`.
        files: see `cells`.
        each_everything: every worker should receive all of the data; the counts are those of the worst worker.
        stored: files and bytes that the elements come from; None if unknown.
        reads_all: whether each worker reads all of the files, or only those of its own elements.
    """
    counts = [[worker[epoch] for worker in given] for epoch in range(len(wanted))]
    found = [
        (epoch, times(wanted[epoch], part))
        for epoch, parts in enumerate(counts)
        for part in (parts if each_everything else [together(parts)])
    ]
    epoch, worst = max(found, key=lambda one: one[1].wrong)
    place = cells(wanted[epoch], files=files)
    return Coverage(
        workers=tuple(
            WorkerShare(
                sum(mine.values()),
                cells=place.of(mine),
                read_bytes=stored.read(wanted[epoch], mine, everything=reads_all) if stored else None,
                used_bytes=stored.used(mine) if stored else None,
            )
            for mine in counts[epoch]
        ),
        counted=counted,
        told_by=told_by,
        elements=sum(wanted[epoch].values()),
        never=worst.never,
        once=worst.once,
        twice=worst.twice,
        oftener=worst.oftener,
        foreign=worst.foreign,
        cells=place.sizes,
        by_file=place.by_file,
        files=len(files) if sum(files) == sum(wanted[epoch].values()) else 0,
        each_everything=each_everything,
        epochs=len(wanted),
    )
