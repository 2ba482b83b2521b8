"""Computes the coverage from how TensorFlow divides data, for data that is too large to be read and counted."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise

from pipetune.core.coverage import Coverage, Identity, WorkerShare
from pipetune.model.coverage import MOST_CELLS
from pipetune.model.delivery import Delivery, WorkerDelivery


def coverage_of(delivery: Delivery, *, files: Sequence[int] = ()) -> Coverage:
    """Converts a delivery to a coverage.

    Args:
        delivery: what the workers receive.
        files: elements in each file, if there are several; up to `MOST_CELLS` files become one cell each.
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
    """Number of the worker's elements in each cell; `ends` are the cells' exclusive ends."""
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
