"""How the batches of a pipeline become the minibatches of the replicas.

`experimental_distribute_dataset` gets batches of the global size and has to split them. TensorFlow 2.21 does it in two
ways, and which one is used depends on the sharding (`input_lib.py`, `auto_shard.cc`, `rebatch_dataset_op.cc`). The
"Distributed Input" guide shows only the first, even for FILE and OFF, where TensorFlow uses the second.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from pipetune.model.sharding import AutoShardPolicy, check_positive

T = TypeVar("T")


class Rebatching(enum.StrEnum):
    """A way to split batches among replicas."""

    SPLIT = "split"  # each batch separately, into parts of its own size over the replicas, rounded up
    EVEN = "even"  # the batches as one stream, cyclically into sizes that add up to the global batch


def rebatching(applied: AutoShardPolicy, *, batch_size_known: bool = True) -> Rebatching:
    """The way TensorFlow splits batches under an applied policy.

    By DATA it shards after splitting, so that every batch must contain a part for each worker. If TensorFlow cannot
    read the batch size from the pipeline (`autosharding.batch_size_known`), it can only go by the size of each batch.
    """
    return Rebatching.EVEN if batch_size_known and applied is not AutoShardPolicy.DATA else Rebatching.SPLIT


def per_replica_batch(global_batch: int, replicas: int) -> int:
    """The largest batch of a replica: the global batch divided by the number of replicas, rounded up."""
    check_positive(global_batch=global_batch, replicas=replicas)
    return math.ceil(global_batch / replicas)


def rebatch(elements: Sequence[T], global_batch: int, replicas: int) -> list[list[Sequence[T]]]:
    """For each global batch, the elements of each replica, as in the examples of the guide's section "Batching".

    This is what one worker delivers from a dataset in memory, or under policy DATA.
    """
    check_positive(global_batch=global_batch, replicas=replicas)
    return [
        [elements[part.start : part.stop] for part in split([batch], replicas)]
        for batch in batches(len(elements), global_batch)
    ]


def batches(elements: int | None, size: int, *, drop_remainder: bool = False) -> Iterator[range]:
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


def split(batches: Iterable[range], replicas: int) -> Iterator[range]:
    """Splits each batch into `replicas` parts of ceil(its size / replicas); the last parts may be smaller or empty."""
    for batch in batches:
        size = per_replica_batch(len(batch), replicas)
        for part in range(replicas):
            yield batch[part * size : (part + 1) * size]


def even_sizes(global_batch: int, *, workers: int, replicas_per_worker: int, worker: int) -> tuple[int, ...]:
    """The sizes into which a worker splits its stream, cyclically; no two differ by more than one.

    There is one size per replica of the job; each worker begins at its own replicas' sizes, so that every step has the
    global batch size in total.
    """
    check_positive(global_batch=global_batch, workers=workers, replicas_per_worker=replicas_per_worker)
    replicas = workers * replicas_per_worker
    floor, larger = divmod(global_batch, replicas)
    sizes = [floor + 1] * larger + [floor] * (replicas - larger)
    first = worker * replicas_per_worker
    return tuple(sizes[first:] + sizes[:first])


def even(elements: int | None, sizes: Sequence[int]) -> Iterator[range]:
    """Splits a stream of `elements` elements (None: infinite) cyclically into `sizes`; the last part may be smaller.

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
