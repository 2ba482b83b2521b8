"""Which elements and bytes workers receive: computed from how TensorFlow shards, and compared with the data."""

from __future__ import annotations

import bisect
import enum
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipetune.core.distribution import Coverage, ElementIdentity, WorkerShare
from pipetune.core.errors import PipetuneError
from pipetune.core.operators import READERS, public_name
from pipetune.core.pipeline import Node, Pipeline


class AutoShardPolicy(enum.StrEnum):
    """The values of `tf.data.experimental.AutoShardPolicy` whose effect can be computed."""

    AUTO = "auto"  # FILE if the pipeline reads files in a way that TensorFlow can divide, else DATA
    FILE = "file"  # each worker reads its own files
    DATA = "data"  # each worker reads everything and keeps its own share
    OFF = "off"  # each worker reads and keeps everything


def applied_policy(policy: AutoShardPolicy, *, from_files: bool, workers: int) -> AutoShardPolicy:
    """Returns the policy that TensorFlow applies for `policy`.

    Args:
        policy: the requested policy.
        from_files: whether TensorFlow finds files to divide (`find_shardable_files`). AUTO depends on this alone: it
            applies FILE even to too few files, and fails.
        workers: with one worker, TensorFlow skips FILE, but not AUTO and DATA: they decide how batches are split
            (`worker_batches`).

    Raises:
        PipetuneError: FILE without such files for several workers; TensorFlow raises NotFoundError.
    """
    if policy is AutoShardPolicy.AUTO:
        return AutoShardPolicy.FILE if from_files else AutoShardPolicy.DATA
    if policy is AutoShardPolicy.FILE and not from_files and workers > 1:
        raise PipetuneError(
            "The policy FILE needs a pipeline that reads files, and TensorFlow finds none to divide.",
            hint="Shard by DATA, or leave the policy at AUTO.",
        )
    return policy


_EVERY_INPUT = frozenset({"concatenate", "zip"})
_FILE_TRANSPARENT = frozenset(
    {"assert_cardinality", "batch", "cache", "filter", "flat_map", "interleave", "map", "padded_batch", "prefetch",
     "ragged_batch", "rebatch", "repeat", "shard", "shuffle", "skip", "take", "to_ragged", "unbatch", "window",
     "with_options"}
)  # fmt: skip
_SIZE_TRANSPARENT = frozenset(
    {"assert_cardinality", "cache", "filter", "prefetch", "repeat", "shard", "shuffle", "skip", "take", "with_options"}
)
_BATCHES = frozenset({"batch", "padded_batch", "ragged_batch"})


@dataclass(frozen=True)
class ShardableFiles:
    """Where TensorFlow would divide files; true if it can."""

    divided_at: tuple[str, ...]  # file-reading operators that it inserts a shard upstream of; empty if it cannot
    stopped_at: str = ""  # the operator at which it gave up; empty if it did not

    def __bool__(self) -> bool:
        return not self.stopped_at


def find_shardable_files(pipeline: Pipeline) -> ShardableFiles:
    """Returns whether the policy FILE can be applied to `pipeline`; with AUTO, this decides between FILE and DATA."""
    divided: list[str] = []
    todo = [pipeline.output]
    while todo:
        node = todo.pop()
        if node.op in READERS or any(public_name(kernel) in READERS for kernel in node.inner):
            divided.append(node.id)
        elif not node.inputs or node.op not in _FILE_TRANSPARENT | _EVERY_INPUT:
            return ShardableFiles((), node.id)
        else:
            todo += [pipeline[name] for name in node.inputs]
    return ShardableFiles(tuple(divided))


def batch_size_known(pipeline: Pipeline) -> bool:
    """Whether TensorFlow can infer the global batch size without reading: from the shapes, or from the last batch.

    A `map` after `batch`, or `batch(num_parallel_calls=...)`, hides it if the shapes do not contain it.
    """
    sizes = pipeline.output.element_spec.first_sizes
    if sizes is not None:
        return len(set(sizes)) == 1
    return _batch_size(pipeline, pipeline.output) is not None


def _batch_size(pipeline: Pipeline, node: Node) -> int | None:
    """The size of the batches that all inputs of `node` have in common; None if there is none or more than one."""
    size = node.argument("batch_size")
    if node.op in _BATCHES and node.argument("num_parallel_calls") is None and isinstance(size, int):
        return size
    if node.op not in _EVERY_INPUT | _SIZE_TRANSPARENT:
        return None
    sizes = {_batch_size(pipeline, pipeline[name]) for name in node.inputs}
    return sizes.pop() if len(sizes) == 1 else None


def worker_batches(
    elements: int,
    global_batch: int,
    *,
    workers: int,
    replicas_per_worker: int,
    worker: int,
    policy: AutoShardPolicy | None,
    batch_size_known: bool,
) -> Iterator[range]:
    """Yields the batches of one worker's replicas, as positions in the data, of which every worker reads all.

    This is so under an applied policy DATA or OFF, and where no strategy shards the data (None). A strategy splits the
    batches among the replicas of the whole job. DATA then shards these parts, so every batch must contain one for each
    worker. Under OFF the batches are split as one stream, unless TensorFlow cannot infer their size
    (`batch_size_known`).
    """
    batches = batch_ranges(elements, global_batch)
    replicas = workers * replicas_per_worker
    if policy is None or replicas == 1:
        return batches
    if policy is AutoShardPolicy.DATA:
        return itertools.islice(split_batches(batches, replicas), worker, None, workers)
    if not batch_size_known:
        return split_batches(batches, replicas)
    sizes = stream_split_sizes(global_batch, workers=workers, replicas_per_worker=replicas_per_worker, worker=worker)
    return split_stream(elements, sizes)


def batch_ranges(elements: int, size: int) -> Iterator[range]:
    """Yields the positions of the elements of each batch."""
    for start in range(0, elements, size):
        yield range(start, min(start + size, elements))


def split_batches(batches: Iterable[range], replicas: int) -> Iterator[range]:
    """Yields `replicas` parts of each batch, of ceil(its size / replicas); the last ones may be smaller or empty."""
    for batch in batches:
        size = math.ceil(len(batch) / replicas)
        for part in range(replicas):
            yield batch[part * size : (part + 1) * size]


def stream_split_sizes(global_batch: int, *, workers: int, replicas_per_worker: int, worker: int) -> tuple[int, ...]:
    """Returns the sizes into which a worker splits its stream, cyclically; no two differ by more than one.

    There is one size per replica of the job. Each worker begins at its own, so that every step has the global batch.
    """
    replicas = workers * replicas_per_worker
    floor, larger = divmod(global_batch, replicas)
    sizes = [floor + 1] * larger + [floor] * (replicas - larger)
    first = worker * replicas_per_worker
    return tuple(sizes[first:] + sizes[:first])


def split_stream(elements: int, sizes: Sequence[int]) -> Iterator[range]:
    """Yields parts of a stream of `elements` elements, cyclically of `sizes`; the last may be smaller.

    If the elements end exactly with a part, this is only noticed at the next non-empty part: sizes of 0 in between
    still yield empty parts, as in TensorFlow.
    """
    position = 0
    for size in itertools.cycle(sizes):
        stop = min(position + size, elements)
        if size and stop == position:
            return
        yield range(position, stop)
        if stop - position < size:
            return
        position = stop


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
    foreign = sum(count for key, count in received.items() if key not in expected)
    return DeliveryCounts(never, once, twice, oftener, foreign)


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
