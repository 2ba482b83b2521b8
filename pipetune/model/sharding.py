"""How TensorFlow shards a pipeline over workers, and how it splits batches among their replicas."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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

    There is one size per replica of the job; each worker begins at its own replicas' sizes, so that every step has the
    global batch size in total.
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
