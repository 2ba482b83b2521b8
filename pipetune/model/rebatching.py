"""How the batches a pipeline makes become the minibatches of the replicas.

`experimental_distribute_dataset` gets batches of the global size and has to cut them. TensorFlow 2.21 does it in two
ways, and which one is used depends on the sharding (`input_lib.py`, `auto_shard.cc`, `rebatch_dataset_op.cc`). The
"Distributed Input" guide shows only the first, for FILE and OFF too, where TensorFlow cuts in the second way.
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
    """A way to cut batches for replicas."""

    SPLIT = "split"  # every batch by itself, into parts of its own size over the replicas, rounded up
    EVEN = "even"  # the batches as one stream, in turn into sizes that add up to the global batch


def rebatching(applied: AutoShardPolicy, *, batch_size_known: bool = True) -> Rebatching:
    """The way TensorFlow cuts under an applied policy.

    It shards by DATA behind the cutting, so that every batch must give each worker its part. A batch size that
    TensorFlow cannot read from the pipeline (`autosharding.batch_size_known`) leaves only the batch's own size.
    """
    return Rebatching.EVEN if batch_size_known and applied is not AutoShardPolicy.DATA else Rebatching.SPLIT


def per_replica_batch(global_batch: int, replicas: int) -> int:
    """The largest batch a replica gets: the global one divided over them, rounded up."""
    check_positive(global_batch=global_batch, replicas=replicas)
    return math.ceil(global_batch / replicas)


def rebatch(elements: Sequence[T], global_batch: int, replicas: int) -> list[list[Sequence[T]]]:
    """Per global batch what each replica gets, as the guide has it: the worked examples of its section "Batching".

    It is what one worker delivers of a dataset in memory, or under policy DATA.
    """
    check_positive(global_batch=global_batch, replicas=replicas)
    return [
        [elements[part.start : part.stop] for part in split([batch], replicas)]
        for batch in batches(len(elements), global_batch)
    ]


def batches(elements: int | None, size: int, *, drop_remainder: bool = False) -> Iterator[range]:
    """The positions in each batch of so many elements; without end for None.

    Args:
        drop_remainder: leaves a last, smaller batch out.
    """
    check_positive(size=size)
    for start in itertools.count(0, size) if elements is None else range(0, elements, size):
        stop = start + size if elements is None else min(start + size, elements)
        if not drop_remainder or stop - start == size:
            yield range(start, stop)


def split(batches: Iterable[range], replicas: int) -> Iterator[range]:
    """Each batch in `replicas` parts of ceil(its size / replicas): the last may be smaller, or empty."""
    for batch in batches:
        size = per_replica_batch(len(batch), replicas)
        for part in range(replicas):
            yield batch[part * size : (part + 1) * size]


def even_sizes(global_batch: int, *, workers: int, replicas_per_worker: int, worker: int) -> tuple[int, ...]:
    """The sizes that a worker cuts its stream into, in turn: no two differ by more than one.

    As many sizes as replicas in all; each worker begins at its own, so that every step has the global batch.
    """
    check_positive(global_batch=global_batch, workers=workers, replicas_per_worker=replicas_per_worker)
    replicas = workers * replicas_per_worker
    floor, larger = divmod(global_batch, replicas)
    sizes = [floor + 1] * larger + [floor] * (replicas - larger)
    first = worker * replicas_per_worker
    return tuple(sizes[first:] + sizes[:first])


def even(elements: int | None, sizes: Sequence[int]) -> Iterator[range]:
    """So many elements (None: without end) cut into these sizes in turn; the last part may be smaller.

    Where the elements end exactly with a part, that is only noticed when the next one is wanted: sizes of 0 that come
    before still give empty parts, as in TensorFlow.
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
