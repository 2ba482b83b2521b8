"""Compares what workers received with the data; chooses how a pipeline is delivered to them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipetune.core.distribution import (
    COORDINATOR,
    FUNCTION,
    PIPELINE_PER_PROCESS,
    Coverage,
    ElementIdentity,
    InputDistribution,
    WorkerShare,
)
from pipetune.core.pipeline import Pipeline
from pipetune.model.delivery import ReplicaDelivery, WorkerDelivery
from pipetune.model.service import StoredBytes

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


def merge_counts(parts: Iterable[Counts]) -> dict[int, int]:
    """Returns the sum of the counts of all parts."""
    found: Counter[int] = Counter()
    for part in parts:
        found.update(part)
    return found


def count_batches(elements: int, size: int, *, drop_remainder: bool) -> tuple[int, int]:
    """Returns the number of batches that `elements` elements make, and how many of them are short."""
    if drop_remainder:
        return elements // size, 0
    return math.ceil(elements / size), int(elements % size > 0)


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
        for part in (parts if each_everything else [merge_counts(parts)])
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


def coverage_from_delivery(delivery: ReplicaDelivery, *, files: Sequence[int] = ()) -> Coverage:
    """Returns a delivery as a coverage.

    Args:
        delivery: what the workers receive.
        files: elements in each file, if there are several; up to `MOST_CELLS` files become one cell each.
    """
    times = delivery.delivery_counts()
    never, once, twice = times.count(0), times.count(1), times.count(2)
    ends, by_file = _cell_ends(delivery.elements, files, MOST_CELLS)
    return Coverage(
        workers=tuple(_share(one, delivery, ends) for one in delivery.workers),
        counted="elements",
        told_by=ElementIdentity.ARITHMETIC,
        elements=delivery.elements,
        never=never,
        once=once,
        twice=twice,
        oftener=delivery.elements - never - once - twice,
        cells=_cell_sizes(ends),
        by_file=by_file,
        files=len(files),
        replicas_per_worker=delivery.replicas_per_worker,
    )


def _share(worker: WorkerDelivery, delivery: ReplicaDelivery, ends: Sequence[int]) -> WorkerShare:
    full = max(1, delivery.global_batch // delivery.replicas)
    sizes = [size for step in worker.sizes for size in step][: worker.minibatches]
    return WorkerShare(
        elements=worker.delivered_elements,
        batches=worker.minibatches,
        short_batches=sum(size < full for size in sizes),
        read=worker.read,
        cells=_cells(worker, ends),
    )


def _cells(worker: WorkerDelivery, ends: Sequence[int]) -> tuple[int, ...]:
    """Number of the worker's elements in each cell; `ends` are the cells' exclusive ends."""
    found = [0] * len(ends)
    for numbers in worker.element_ranges():
        if not numbers:
            continue
        cell = bisect.bisect_right(ends, numbers[0])
        done = 0
        while done < len(numbers):
            reached = min(len(numbers), -(-(ends[cell] - numbers.start) // numbers.step))
            found[cell] += reached - done
            done, cell = reached, cell + 1
    return tuple(found)


NONE = "none"
"""Used in place of a kind: no distributed module is written, whatever the script uses."""

_KINDS = {
    "MirroredStrategy": "mirrored",
    "MultiWorkerMirroredStrategy": "multiworker",
    "TPUStrategy": "tpu",
    "ParameterServerStrategy": "parameter-server",
    "Horovod": "horovod",
}


@dataclass(frozen=True)
class KindChoice:
    """A kind, or "" for none, and a sentence that explains the choice."""

    kind: str = ""
    why: str = ""


def choose_kind(
    requested: str | None, pipeline: Pipeline, handover: InputDistribution | None, *, trials: bool = True
) -> KindChoice:
    """Returns the kind of distributed module to write.

    Args:
        requested: the value of `--distribute`; None if the script decides.
        pipeline: the pipeline of the script.
        handover: how the script distributes it; None if it does not.
        trials: whether more than a profile was requested; if not, only an explicitly requested kind is written.
    """
    if requested is not None:
        return (
            KindChoice() if requested == NONE else KindChoice(requested, _partial_pipeline_warning(pipeline, handover))
        )
    if handover is None or not trials:
        return KindChoice()
    kind, strategy = _KINDS.get(handover.strategy, ""), handover.strategy
    if handover.how == FUNCTION:
        return KindChoice(
            why=f"A function of the script already builds the dataset for {strategy}: the patch edits it in place."
        )
    if handover.how == PIPELINE_PER_PROCESS and any(node.op == "shard" for node in pipeline):
        return KindChoice(
            why=f"The script already shards its data over the processes of {strategy}: the patch keeps that."
        )
    if not kind:
        return KindChoice()
    trains = "in processes of Horovod" if handover.how == PIPELINE_PER_PROCESS else f"under {strategy}"
    return KindChoice(
        kind, f"Written because the script trains {trains}; use --distribute to choose another kind, or none."
    )


def _partial_pipeline_warning(pipeline: Pipeline, handover: InputDistribution | None) -> str:
    """Warns about a module that is built from the pipeline of a single worker or replica; "" if it is not."""
    if handover is None:
        return ""
    if any(node.op == "shard" and node.argument("num_shards") not in (None, 1) for node in pipeline):
        return (
            "The captured pipeline is already sharded (shard), and the module shards that part again: analyze the "
            "script as a single worker."
        )
    if handover.how in (COORDINATOR, PIPELINE_PER_PROCESS) or handover.divides:
        return ""
    return (
        f"The script's function builds batches for one of {handover.replicas} replicas, and the module splits such a "
        "batch among all of them: multiply GLOBAL_BATCH_SIZE accordingly to keep the batch size of a step."
    )
