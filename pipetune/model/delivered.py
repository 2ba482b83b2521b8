"""The coverage that follows from how TensorFlow divides data, where there is too much of it to be read and counted."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise

from pipetune.core.coverage import Coverage, Identity, WorkerShare
from pipetune.model.coverage import MOST_CELLS
from pipetune.model.delivery import Delivery, WorkerDelivery


def coverage_of(delivery: Delivery, *, files: Sequence[int] = ()) -> Coverage:
    """The same as a coverage.

    Args:
        files: elements in each, where the data has more than one; few files are shown apart.
    """
    times = delivery.times()
    never, once, twice = times.count(0), times.count(1), times.count(2)
    by_file = 1 < len(files) <= MOST_CELLS
    count = min(MOST_CELLS, delivery.elements)
    ends = list(accumulate(files)) if by_file else [index * delivery.elements // count for index in range(1, count + 1)]
    return Coverage(
        workers=tuple(_share(one, delivery, ends) for one in delivery.workers),
        counted="elements",
        told_by=Identity.ARITHMETIC,
        elements=delivery.elements,
        never=never,
        once=once,
        twice=twice,
        oftener=delivery.elements - never - once - twice,
        cells=tuple(end - start for start, end in pairwise([0, *ends])),
        by_file=by_file,
        files=len(files),
        replicas_per_worker=delivery.replicas_per_worker,
    )


def _share(worker: WorkerDelivery, delivery: Delivery, ends: Sequence[int]) -> WorkerShare:
    full = max(1, delivery.global_batch // delivery.replicas)
    sizes = [size for step in worker.sizes for size in step][: worker.minibatches]
    return WorkerShare(
        elements=worker.kept,
        batches=worker.minibatches,
        short_batches=sum(size < full for size in sizes),
        read=worker.read,
        cells=_cells(worker, ends),
    )


def _cells(worker: WorkerDelivery, ends: Sequence[int]) -> tuple[int, ...]:
    """How many of its elements lie in front of each end, and behind the end before."""
    found = [0] * len(ends)
    for numbers in worker.series():
        if not numbers:
            continue
        cell = bisect.bisect_right(ends, numbers[0])
        done = 0
        while done < len(numbers):
            reached = min(len(numbers), -(-(ends[cell] - numbers.start) // numbers.step))
            found[cell] += reached - done
            done, cell = reached, cell + 1
    return tuple(found)
