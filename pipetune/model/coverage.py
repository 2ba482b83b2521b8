"""Counts what workers were given against what there is; elements are keys, whatever they were told apart by.

A key may stand for several equal elements, where nothing but the value tells them apart. Then the key's elements are
taken to come as evenly as they can: two equal rows that come twice in all came once each. That hides a row that came
twice while its equal did not come, and never calls a row repeated that was not.
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
"""Stretches of the data that a picture of it shows apart."""

Counts = Mapping[int, int]
"""How often each key comes."""


@dataclass(frozen=True)
class Times:
    """How many elements come how often."""

    never: int = 0
    once: int = 0
    twice: int = 0
    oftener: int = 0
    foreign: int = 0  # that are none of the data

    @property
    def wrong(self) -> int:
        """Elements that do not come exactly once."""
        return self.never + self.twice + self.oftener + self.foreign


def times(wanted: Counts, given: Counts) -> Times:
    """How often the elements of `wanted` come in `given`."""
    found = [0, 0, 0, 0]
    for key, equal in wanted.items():
        each, more = divmod(given.get(key, 0), equal)
        found[min(each, 3)] += equal - more
        found[min(each + 1, 3)] += more
    never, once, twice, oftener = found
    return Times(never, once, twice, oftener, sum(count for key, count in given.items() if key not in wanted))


def together(parts: Iterable[Counts]) -> dict[int, int]:
    """All of them as one."""
    found: dict[int, int] = {}
    for part in parts:
        for key, count in part.items():
            found[key] = found.get(key, 0) + count
    return found


def batches(elements: int, size: int, *, drop_remainder: bool) -> tuple[int, int]:
    """Batches of so many elements, and how many of them are short."""
    if drop_remainder:
        return elements // size, 0
    return math.ceil(elements / size), int(elements % size > 0)


@dataclass(frozen=True)
class Cells:
    """The keys of the data in its order, cut into stretches."""

    sizes: tuple[int, ...]
    of_key: Mapping[int, int]
    by_file: bool

    def of(self, given: Counts) -> tuple[int, ...]:
        """How many of these elements lie in each stretch; those that are not of the data in none."""
        found = [0] * len(self.sizes)
        for key, count in given.items():
            if key in self.of_key:
                found[self.of_key[key]] += count
        return tuple(found)


def cells(wanted: Counts, *, files: Sequence[int] = (), most: int = MOST_CELLS) -> Cells:
    """Stretches for keys in the order of `wanted`.

    Args:
        files: elements in each file, in that order; () where they are not known. One stretch each, if they are few.
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
    """The coverage of the epoch that fared worst; batches and elements read are for the caller to add.

    Args:
        wanted: by epoch, what there is.
        given: by worker, by epoch, what it got.
        files: see `cells`.
        each_everything: every worker is to get everything; the one that fares worst is counted.
        stored: what the elements are of on storage; None: not known.
        reads_all: each worker reads all of that; else the files of its own elements.
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
