"""Which elements each worker's input reads, as TensorFlow shards it; how it divides batches among replicas."""

from __future__ import annotations

import bisect
import enum
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pipetune.core.errors import PipetuneError
from pipetune.core.operators import public_name
from pipetune.core.pipeline import Node, Pipeline

T = TypeVar("T")


class AutoShardPolicy(enum.StrEnum):
    """The values of `tf.data.experimental.AutoShardPolicy` whose effect can be computed."""

    AUTO = "auto"  # FILE if the pipeline reads files in a way that TensorFlow can divide, else DATA
    FILE = "file"  # each worker reads its own files
    DATA = "data"  # each worker reads everything and keeps its own share
    OFF = "off"  # each worker reads and keeps everything


@dataclass(frozen=True)
class Stream:
    """The indices of the elements in the order a worker reads them, as ranges: an epoch is long, its ranges are few.

    Elements are indexed from 0 on, file after file.
    """

    ranges: tuple[range, ...]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(map(len, self.ranges)))

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._ends[-1] if self.ranges else 0

    def between(self, start: int, stop: int) -> tuple[range, ...]:
        """Returns the element indices at these positions; past the end the stream starts over, as if repeated."""
        found = []
        while start < stop and self.size:
            position = start % self.size
            index = bisect.bisect_right(self._ends, position)
            series = self.ranges[index]
            first = len(series) - (self._ends[index] - position)
            last = min(len(series), first + stop - start)
            found.append(series[first:last])
            start += last - first
        return tuple(found)


def applied_policy(policy: AutoShardPolicy, *, from_files: bool, workers: int) -> AutoShardPolicy:
    """Returns the policy that TensorFlow applies for `policy`.

    Args:
        policy: the requested policy.
        from_files: whether TensorFlow finds files to divide (`find_shardable_files`). AUTO depends on this alone: it
            applies FILE even to too few files, and fails.
        workers: with one worker, TensorFlow skips FILE, but not AUTO and DATA: they decide how batches are split
            (`rebatching`).

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


def worker_streams(files: Sequence[int], workers: int, policy: AutoShardPolicy) -> tuple[Stream, ...]:
    """Returns what each worker reads under an applied policy; `files` has the number of elements in each file.

    FILE gives worker i the files i, i + workers, i + 2 workers, ... With DATA every worker reads everything: TensorFlow
    shards the rebatched elements, at the very end of the pipeline.

    Raises:
        PipetuneError: policy FILE with fewer files than workers. In TensorFlow a worker that has a file raises
            InvalidArgumentError at its first element, and one that has none sees the end of the data.
    """
    check_positive(workers=workers)
    if policy is not AutoShardPolicy.FILE:
        return (shard_by_file(files, 1, 0),) * workers
    if 0 < len(files) < workers:
        raise PipetuneError(
            f"{len(files)} {'file' if len(files) == 1 else 'files'} cannot be divided over {workers} workers.",
            hint="Shard by DATA, or split the input into as many files as there are workers.",
        )
    return tuple(shard_by_file(files, workers, index) for index in range(workers))


def shard_by_file(files: Sequence[int], count: int, index: int) -> Stream:
    """Returns the elements of every `count`-th file from `index` on, one file after the other."""
    ends = list(itertools.accumulate(files, initial=0))
    return Stream(tuple(range(ends[file], ends[file + 1]) for file in shard(range(len(files)), count, index)))


def shard_by_element(files: Sequence[int], count: int, index: int) -> Stream:
    """Returns every `count`-th element from `index` on."""
    _check_shard(count, index)
    return Stream((range(index, sum(files), count),))


def shard(elements: Sequence[T], count: int, index: int) -> Sequence[T]:
    """Returns `Dataset.shard(count, index)`: every `count`-th element from `index` on.

    Raises:
        ValueError: `index` outside 0..count-1.
    """
    _check_shard(count, index)
    return elements[index::count]


def _check_shard(count: int, index: int) -> None:
    check_positive(count=count)
    if not 0 <= index < count:
        raise ValueError(f"shard {index} of {count}")


def check_positive(**values: int) -> None:
    """Checks that all values are at least 1.

    Raises:
        ValueError: one is not; the message has its name.
    """
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


READERS = frozenset({"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"})
"""Readers whose files TensorFlow can divide; not `CsvDataset`, nor a map that calls `tf.io.read_file`."""

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
    return bool(_sizes(pipeline, [pipeline.output]))


def _sizes(pipeline: Pipeline, nodes: Sequence[Node]) -> set[int]:
    """The common batch size of all these nodes, as a set; empty if there is none or more than one."""
    found: set[int] = set()
    for node in nodes:
        size = node.argument("batch_size")
        if node.op in _BATCHES and node.argument("num_parallel_calls") is None and isinstance(size, int):
            found.add(size)
        elif node.op in _EVERY_INPUT or node.op in _SIZE_TRANSPARENT:
            above = _sizes(pipeline, [pipeline[name] for name in node.inputs])
            if not above:
                return set()
            found |= above
        else:
            return set()
    return found if len(found) == 1 else set()


class Rebatching(enum.StrEnum):
    """A way to split batches among replicas."""

    PER_BATCH = "split"  # each batch separately, into parts of its own size over the replicas, rounded up
    STREAM = "even"  # the batches as one stream, cyclically into sizes that add up to the global batch


def choose_rebatching(applied: AutoShardPolicy, *, batch_size_known: bool = True) -> Rebatching:
    """Returns the way TensorFlow splits batches under an applied policy.

    With DATA it shards after splitting, so that every batch must contain a part for each worker. If TensorFlow cannot
    infer the batch size from the pipeline (`batch_size_known`), it has to use the size of each batch.
    """
    return Rebatching.STREAM if batch_size_known and applied is not AutoShardPolicy.DATA else Rebatching.PER_BATCH


def per_replica_batch(global_batch: int, replicas: int) -> int:
    """Returns the largest batch of a replica: the global batch divided by the number of replicas, rounded up."""
    check_positive(global_batch=global_batch, replicas=replicas)
    return math.ceil(global_batch / replicas)


def batch_ranges(elements: int | None, size: int, *, drop_remainder: bool = False) -> Iterator[range]:
    """Yields the positions of the elements of each batch.

    Args:
        elements: number of elements; None for an infinite stream.
        size: elements in a batch.
        drop_remainder: whether a smaller last batch is dropped.
    """
    check_positive(size=size)
    for start in itertools.count(0, size) if elements is None else range(0, elements, size):
        stop = start + size if elements is None else min(start + size, elements)
        if not drop_remainder or stop - start == size:
            yield range(start, stop)


def split_batches(batches: Iterable[range], replicas: int) -> Iterator[range]:
    """Yields `replicas` parts of each batch, of ceil(its size / replicas); the last ones may be smaller or empty."""
    for batch in batches:
        size = per_replica_batch(len(batch), replicas)
        for part in range(replicas):
            yield batch[part * size : (part + 1) * size]


def stream_split_sizes(global_batch: int, *, workers: int, replicas_per_worker: int, worker: int) -> tuple[int, ...]:
    """Returns the sizes into which a worker splits its stream, cyclically; no two differ by more than one.

    There is one size per replica of the job; each worker begins at its own replicas' sizes, so that every step has the
    global batch size in total.

    Args:
        global_batch: elements in a global batch.
        workers: number of workers.
        replicas_per_worker: replicas of each worker.
        worker: index of the worker.
    """
    check_positive(global_batch=global_batch, workers=workers, replicas_per_worker=replicas_per_worker)
    replicas = workers * replicas_per_worker
    floor, larger = divmod(global_batch, replicas)
    sizes = [floor + 1] * larger + [floor] * (replicas - larger)
    first = worker * replicas_per_worker
    return tuple(sizes[first:] + sizes[:first])


def split_stream(elements: int | None, sizes: Sequence[int]) -> Iterator[range]:
    """Yields parts of a stream of `elements` elements (None: infinite), cyclically of `sizes`, the last may be smaller.

    If the elements end exactly with a part, this is only noticed at the next non-empty part: sizes of 0 in between
    still yield empty parts, as in TensorFlow.
    """
    position = 0
    for size in itertools.cycle(sizes):
        stop = position + size if elements is None else min(position + size, elements)
        if size and stop == position:
            return
        yield range(position, stop)
        if stop - position < size:
            return
        position = stop


Step = tuple[range, ...]
"""The minibatch of each replica of one worker, as positions in the worker's stream; a dummy is empty."""

DUMMY = range(0)


def checks_replica_data(*, workers: int, fixed_shapes: bool, endless: bool) -> bool:
    """Whether TensorFlow checks at every step which replicas have data.

    It does not for infinite data, nor for a single worker whose batches all have the same fixed shape.
    """
    return not endless and (workers > 1 or not fixed_shapes)


def assign_to_replicas(minibatches: Sequence[range], replicas: int) -> list[Step]:
    """Returns the minibatches of a worker, assigned to its replicas in turn; the last step may have too few."""
    return [tuple(minibatches[start : start + replicas]) for start in range(0, len(minibatches), replicas)]


def lockstep_steps(workers: Sequence[Sequence[Step]], replicas: int) -> list[tuple[Step, ...]]:
    """Returns the steps of all workers in lockstep, with dummies, until no replica of any worker has data.

    Args:
        workers: the `assign_to_replicas` steps of each worker.
        replicas: replicas of each worker.
    """
    count = max(map(len, workers), default=0)
    return [
        tuple(_filled(steps[number] if number < len(steps) else (), replicas) for number in range(count))
        for steps in workers
    ]


def truncated_steps(workers: Sequence[Sequence[Step]], replicas: int) -> list[tuple[Step, ...]]:
    """Returns the steps without dummies: they end at the first replica without data; the rest of the data is lost."""
    count = min((sum(len(step) == replicas for step in steps) for steps in workers), default=0)
    return [tuple(steps[:count]) for steps in workers]


def message_count(steps: int, *, workers: int, checked: bool) -> int:
    """Returns how often workers exchange which replicas have data: once per step, and once to detect the end."""
    return steps + 1 if checked and workers > 1 else 0


def steps_until_exhausted(workers: Iterable[Sequence[Step]]) -> int:
    """Returns the number of steps until the first worker has run out of data."""
    return min(map(len, workers), default=0)


def _filled(step: Step, replicas: int) -> Step:
    return (*step, *itertools.repeat(DUMMY, replicas - len(step)))
