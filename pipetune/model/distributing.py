"""Computes what replicas receive, for both ways of distribution: `experimental_distribute_dataset` and `dataset_fn`.

Both follow TensorFlow 2.21 (`input_lib.py`) and were compared with it, minibatch by minibatch; the first reproduces the
worked examples of the "Distributed Input" guide if batches are split in the way that the guide assumes (`rebatching`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from pipetune.model.delivery import Delivery, WorkerDelivery
from pipetune.model.partial_batches import Step, cut_off, dealt, first_out, handled, messages, together
from pipetune.model.rebatching import Rebatching, batches, even, even_sizes, rebatching, split
from pipetune.model.sharding import (
    AutoShardPolicy,
    Stream,
    applied_policy,
    by_element,
    by_file,
    check_positive,
    streams,
)


def dataset_delivery(
    files: Sequence[int],
    global_batch: int,
    *,
    workers: int = 1,
    replicas_per_worker: int = 1,
    policy: AutoShardPolicy = AutoShardPolicy.AUTO,
    from_files: bool = True,
    batch_size_known: bool = True,
    drop_remainder: bool = False,
    steps: int | None = None,
) -> Delivery:
    """What `experimental_distribute_dataset` delivers from a dataset batched by the global batch size.

    Args:
        files: elements in each file; a dataset in memory counts as one file.
        global_batch: elements in a global batch.
        workers: number of workers.
        replicas_per_worker: the same on every worker, as TensorFlow requires.
        policy: the requested sharding policy.
        from_files, batch_size_known: what TensorFlow finds in the pipeline, see `autosharding`.
        drop_remainder: argument of the user's `batch`. With FILE every worker drops a remainder of its own.
        steps: number of steps taken from a dataset that repeats forever before it is batched; None for one epoch, to
            its end.

    Raises:
        PipetuneError: the policy does not fit the files.
        ValueError: a size is below 1.
    """
    check_positive(global_batch=global_batch, workers=workers, replicas_per_worker=replicas_per_worker)
    applied = applied_policy(policy, from_files=from_files, workers=workers)
    replicas = workers * replicas_per_worker
    cutting = rebatching(applied, batch_size_known=batch_size_known) if replicas > 1 else None
    found = []
    for worker, stream in enumerate(streams(files, workers, applied)):
        size = None if steps is not None and stream.size else stream.size
        whole = batches(size, global_batch, drop_remainder=drop_remainder)
        if cutting is Rebatching.EVEN:
            sizes = even_sizes(global_batch, workers=workers, replicas_per_worker=replicas_per_worker, worker=worker)
            rest = size % global_batch if size and drop_remainder else 0
            parts = even(size if size is None else size - rest, sizes)
        else:
            parts = split(whole, replicas) if cutting else whole
        if applied is AutoShardPolicy.DATA:
            parts = itertools.islice(parts, worker, None, workers)
        mine = _taken(parts, steps, replicas_per_worker)
        read = stream.size if steps is None else math.ceil(_reached(mine) / global_batch) * global_batch
        found.append((stream, read, mine))
    return _delivery(
        found,
        elements=sum(files),
        global_batch=global_batch,
        replicas_per_worker=replicas_per_worker,
        policy=applied,
        cutting=cutting,
        fixed_shapes=drop_remainder and global_batch % replicas == 0,
        endless=steps is not None,
    )


def function_delivery(
    files: Sequence[int],
    per_replica_batch: int,
    *,
    workers: int = 1,
    replicas_per_worker: int = 1,
    by: AutoShardPolicy = AutoShardPolicy.DATA,
    drop_remainder: bool = False,
    fixed_shapes: bool | None = None,
    steps: int | None = None,
) -> Delivery:
    """What `distribute_datasets_from_function` delivers from a `dataset_fn` that shards, then batches for a replica.

    TensorFlow adds nothing: the batches of a worker go to its replicas in turn.

    Args:
        files: elements in each file; a dataset in memory counts as one file.
        per_replica_batch: elements in a batch.
        workers: number of workers.
        replicas_per_worker: replicas of each worker.
        by: FILE: it shards its list of files by the input pipeline, and with fewer files a worker is idle. DATA: it
            shards elements, so that every worker reads them all. OFF: it does not shard.
        drop_remainder: argument of its `batch`.
        fixed_shapes: whether all batches have the same shape; None derives it from `drop_remainder`. A single worker
            then stops at the first replica that has no batch left.
        steps: number of steps taken from a dataset that repeats forever between sharding and batching; None for one
            epoch.

    Raises:
        ValueError: a size is below 1, or `by` is AUTO, which has no meaning here.
    """
    check_positive(per_replica_batch=per_replica_batch, workers=workers, replicas_per_worker=replicas_per_worker)
    found = []
    for worker in range(workers):
        stream = _own(files, workers, worker, by)
        size = None if steps is not None and stream.size else stream.size
        mine = _taken(batches(size, per_replica_batch, drop_remainder=drop_remainder), steps, replicas_per_worker)
        if by is AutoShardPolicy.DATA:
            read = sum(files) if steps is None else _reached(mine) * workers
        else:
            read = stream.size if steps is None else _reached(mine)
        found.append((stream, read, mine))
    return _delivery(
        found,
        elements=sum(files),
        global_batch=per_replica_batch * workers * replicas_per_worker,
        replicas_per_worker=replicas_per_worker,
        policy=by,
        cutting=None,
        fixed_shapes=drop_remainder if fixed_shapes is None else fixed_shapes,
        endless=steps is not None,
    )


def _own(files: Sequence[int], workers: int, worker: int, by: AutoShardPolicy) -> Stream:
    match by:
        case AutoShardPolicy.FILE:
            return by_file(files, workers, worker)
        case AutoShardPolicy.DATA:
            return by_element(files, workers, worker)
        case AutoShardPolicy.OFF:
            return by_file(files, 1, 0)
        case AutoShardPolicy.AUTO:
            raise ValueError("a dataset_fn shards by file, by element, or not at all")


def _taken(parts: Iterator[range], steps: int | None, replicas: int) -> list[range]:
    return list(itertools.islice(parts, None if steps is None else steps * replicas))


def _reached(parts: Sequence[range]) -> int:
    """Number of elements of its stream that a worker has to read for these minibatches."""
    return max((part.stop for part in parts), default=0)


def _delivery(
    found: Sequence[tuple[Stream, int, list[range]]],
    *,
    elements: int,
    global_batch: int,
    replicas_per_worker: int,
    policy: AutoShardPolicy,
    cutting: Rebatching | None,
    fixed_shapes: bool,
    endless: bool,
) -> Delivery:
    """Builds the lockstep steps from `found`: for each worker its stream, elements read, and minibatches."""
    own: list[list[Step]] = [dealt(parts, replicas_per_worker) for _, _, parts in found]
    asks = handled(workers=len(found), fixed_shapes=fixed_shapes, endless=endless)
    stepped = together(own, replicas_per_worker) if asks else cut_off(own, replicas_per_worker)
    return Delivery(
        elements=elements,
        global_batch=global_batch,
        replicas_per_worker=replicas_per_worker,
        workers=tuple(
            WorkerDelivery(stream, read, len(parts), tuple(steps))
            for (stream, read, parts), steps in zip(found, stepped, strict=True)
        ),
        policy=policy,
        rebatching=cutting,
        messages=messages(len(stepped[0]), workers=len(found), handled=asks),
        first_out=None if endless else first_out(own),
    )
