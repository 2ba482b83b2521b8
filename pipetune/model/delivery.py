"""What every replica of every worker gets, step by step, for both ways of distribution."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import AUTOTUNE, Pipeline
from pipetune.model.segments import defaults_apply
from pipetune.model.sharding import (
    AutoShardPolicy,
    Rebatching,
    Step,
    Stream,
    applied_policy,
    assign_to_replicas,
    batch_ranges,
    check_positive,
    checks_replica_data,
    choose_rebatching,
    lockstep_steps,
    message_count,
    shard_by_element,
    shard_by_file,
    split_batches,
    split_stream,
    steps_until_exhausted,
    stream_split_sizes,
    truncated_steps,
    worker_streams,
)


@dataclass(frozen=True)
class WorkerDelivery:
    """What one worker reads, and what its replicas get."""

    stream: Stream  # from which its batches are taken
    read: int  # elements it reads for them
    minibatches: int  # that its own pipeline builds in these steps, or in the epoch
    steps: tuple[Step, ...]

    def elements(self, step: int, replica: int) -> tuple[int, ...]:
        """Returns the indices of the elements that a replica of this worker gets at a step."""
        batch = self.steps[step][replica]
        return tuple(itertools.chain.from_iterable(self.stream.between(batch.start, batch.stop)))

    def element_ranges(self) -> Iterator[range]:
        """Yields the indices of all elements that its replicas get as ranges, in the order of delivery."""
        for batch in itertools.chain.from_iterable(self.steps):
            yield from self.stream.between(batch.start, batch.stop)

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Elements in the minibatch, by step and replica."""
        return tuple(tuple(map(len, step)) for step in self.steps)

    @property
    def delivered_elements(self) -> int:
        """Elements that its replicas get."""
        return sum(map(sum, self.sizes))

    @property
    def dummies(self) -> int:
        """Empty batches that the runtime inserts for its replicas because others still have data."""
        return max(0, sum(map(len, self.steps)) - self.minibatches)

    @property
    def lost_minibatches(self) -> int:
        """Minibatches of its pipeline that are left over after the last step."""
        return max(0, self.minibatches - sum(map(len, self.steps)))

    @property
    def empty_minibatches(self) -> int:
        """Minibatches without an element: dummies, and parts of a batch that is too small for all replicas."""
        return sum(size == 0 for step in self.sizes for size in step)


@dataclass(frozen=True)
class ReplicaDelivery:
    """An epoch (for infinite data: the requested steps) on all workers, which run in lockstep."""

    elements: int  # in the data
    global_batch: int  # intended elements per step
    replicas_per_worker: int
    workers: tuple[WorkerDelivery, ...]
    policy: AutoShardPolicy  # as applied: never AUTO
    rebatching: Rebatching | None  # None: batches are not split
    messages: int  # how often all workers exchange who still has data
    first_out: int | None  # steps until the first worker has run out of data; None: the data is infinite

    @property
    def replicas(self) -> int:
        """Number of replicas on all workers."""
        return len(self.workers) * self.replicas_per_worker

    @property
    def steps(self) -> int:
        """Number of steps, which is the same on all workers."""
        return len(self.workers[0].steps)

    @cached_property
    def step_sizes(self) -> tuple[int, ...]:
        """Elements that all replicas together get, by step."""
        return tuple(sum(map(sum, step)) for step in zip(*(one.sizes for one in self.workers), strict=True))

    @property
    def delivered(self) -> int:
        """Elements that replicas get; an element that is delivered repeatedly counts each time."""
        return sum(self.step_sizes)

    @property
    def idle_workers(self) -> tuple[int, ...]:
        """Workers that get no element at all while others get some."""
        return tuple(index for index, one in enumerate(self.workers) if self.delivered and not one.delivered_elements)

    @property
    def balanced(self) -> bool:
        """Whether all workers build equally many minibatches, so that none has to wait or gets empty ones."""
        return len({one.minibatches for one in self.workers}) <= 1

    def delivery_counts(self) -> bytearray:
        """Returns how often each element is delivered, capped at 255, to use one byte per element."""
        times = bytearray(self.elements)
        for numbers in itertools.chain.from_iterable(one.element_ranges() for one in self.workers):
            place = slice(numbers.start, numbers.stop, numbers.step)
            times[place] = times[place].translate(_ONE_MORE)
        return times


_ONE_MORE = bytes(min(count + 1, 255) for count in range(256))


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
) -> ReplicaDelivery:
    """Returns what `experimental_distribute_dataset` delivers from a dataset batched by the global batch size.

    Args:
        files: elements in each file; a dataset in memory counts as one file.
        global_batch: elements in a global batch.
        workers: number of workers.
        replicas_per_worker: the same on every worker, as TensorFlow requires.
        policy: the requested sharding policy.
        from_files, batch_size_known: what TensorFlow finds in the pipeline, see `sharding`.
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
    cutting = choose_rebatching(applied, batch_size_known=batch_size_known) if replicas > 1 else None
    found = []
    for worker, stream in enumerate(worker_streams(files, workers, applied)):
        size = None if steps is not None and stream.size else stream.size
        whole = batch_ranges(size, global_batch, drop_remainder=drop_remainder)
        if cutting is Rebatching.STREAM:
            sizes = stream_split_sizes(
                global_batch, workers=workers, replicas_per_worker=replicas_per_worker, worker=worker
            )
            rest = size % global_batch if size and drop_remainder else 0
            parts = split_stream(size if size is None else size - rest, sizes)
        else:
            parts = split_batches(whole, replicas) if cutting else whole
        if applied is AutoShardPolicy.DATA:
            parts = itertools.islice(parts, worker, None, workers)
        mine = _take_steps(parts, steps, replicas_per_worker)
        read = stream.size if steps is None else math.ceil(_elements_needed(mine) / global_batch) * global_batch
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
    policy: AutoShardPolicy = AutoShardPolicy.DATA,
    drop_remainder: bool = False,
    steps: int | None = None,
) -> ReplicaDelivery:
    """Returns what `distribute_datasets_from_function` delivers; `dataset_fn` shards, then batches for a replica.

    TensorFlow adds nothing: the batches of a worker go to its replicas in turn.

    Args:
        files: elements in each file; a dataset in memory counts as one file.
        per_replica_batch: elements in a batch.
        workers: number of workers.
        replicas_per_worker: replicas of each worker.
        policy: FILE: it shards its list of files by the input pipeline, and with fewer files a worker is idle. DATA: it
            shards elements, so that every worker reads them all. OFF: it does not shard.
        drop_remainder: argument of its `batch`. All batches then have the same shape, and a single worker stops at the
            first replica that has no batch left.
        steps: number of steps taken from a dataset that repeats forever between sharding and batching; None for one
            epoch.

    Raises:
        ValueError: a size is below 1, or `policy` is AUTO, which has no meaning here.
    """
    check_positive(per_replica_batch=per_replica_batch, workers=workers, replicas_per_worker=replicas_per_worker)
    found = []
    for worker in range(workers):
        stream = _own_stream(files, workers, worker, policy)
        size = None if steps is not None and stream.size else stream.size
        mine = _take_steps(
            batch_ranges(size, per_replica_batch, drop_remainder=drop_remainder), steps, replicas_per_worker
        )
        if policy is AutoShardPolicy.DATA:
            read = sum(files) if steps is None else _elements_needed(mine) * workers
        else:
            read = stream.size if steps is None else _elements_needed(mine)
        found.append((stream, read, mine))
    return _delivery(
        found,
        elements=sum(files),
        global_batch=per_replica_batch * workers * replicas_per_worker,
        replicas_per_worker=replicas_per_worker,
        policy=policy,
        cutting=None,
        fixed_shapes=drop_remainder,
        endless=steps is not None,
    )


def _own_stream(files: Sequence[int], workers: int, worker: int, by: AutoShardPolicy) -> Stream:
    match by:
        case AutoShardPolicy.FILE:
            return shard_by_file(files, workers, worker)
        case AutoShardPolicy.DATA:
            return shard_by_element(files, workers, worker)
        case AutoShardPolicy.OFF:
            return shard_by_file(files, 1, 0)
        case AutoShardPolicy.AUTO:
            raise ValueError("a dataset_fn shards by file, by element, or not at all")


def _take_steps(parts: Iterator[range], steps: int | None, replicas: int) -> list[range]:
    return list(itertools.islice(parts, None if steps is None else steps * replicas))


def _elements_needed(parts: Sequence[range]) -> int:
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
) -> ReplicaDelivery:
    """Builds the lockstep steps from `found`: for each worker its stream, elements read, and minibatches."""
    own: list[list[Step]] = [assign_to_replicas(parts, replicas_per_worker) for _, _, parts in found]
    checks = checks_replica_data(workers=len(found), fixed_shapes=fixed_shapes, endless=endless)
    stepped = lockstep_steps(own, replicas_per_worker) if checks else truncated_steps(own, replicas_per_worker)
    return ReplicaDelivery(
        elements=elements,
        global_batch=global_batch,
        replicas_per_worker=replicas_per_worker,
        workers=tuple(
            WorkerDelivery(stream, read, len(parts), tuple(steps))
            for (stream, read, parts), steps in zip(found, stepped, strict=True)
        ),
        policy=policy,
        rebatching=cutting,
        messages=message_count(len(stepped[0]), workers=len(found), checked=checks),
        first_out=None if endless else steps_until_exhausted(own),
    )


@dataclass(frozen=True)
class Remainder:
    """Samples of one epoch, summed over all workers."""

    elements: int
    dropped: int  # not trained on if only full batches are kept
    padding_rows: int  # padding rows if the last batches are filled up


def epoch_remainder(counts: Sequence[int], per_replica_batch: int, *, replicas_per_worker: int = 1) -> Remainder:
    """Returns the number of samples that one epoch drops or adds because last batches are incomplete.

    Args:
        counts: samples that each worker's pipeline reads.
        per_replica_batch: rows in a batch.
        replicas_per_worker: replicas that each worker feeds.

    Raises:
        ValueError: a size is below 1.
    """
    delivery = function_delivery(
        counts,
        per_replica_batch,
        workers=len(counts),
        replicas_per_worker=replicas_per_worker,
        policy=AutoShardPolicy.FILE,  # one "file" per worker: all that it reads
        drop_remainder=True,
    )
    # With one worker whole steps are filled up: with fixed shapes, a step that lacks a batch is not run.
    step = per_replica_batch * (replicas_per_worker if len(counts) == 1 else 1)
    filled = sum(math.ceil(count / step) * step - count for count in counts)
    return Remainder(sum(counts), sum(counts) - delivery.delivered, filled)


_INJECTED = "experimental_optimization.inject_prefetch"
_LARGEST = 1024  # elements in a recommended buffer, by judgement: more evens out longer pauses, and holds more memory
_ENOUGH = 0.02  # of a step; a buffer that is within this of an unlimited one suffices


def output_buffer(pipeline: Pipeline) -> int | None:
    """Returns the number of elements prepared ahead of the consumer; 0 for none, None if TensorFlow chooses it.

    This is the buffer of the last prefetch, or of the one that TensorFlow appends to a pipeline that does not end
    in a prefetch.
    """
    node = pipeline.output
    while node.op == "with_options" and node.inputs:
        node = pipeline[node.inputs[0]]
    if node.op == "prefetch":
        size = node.argument("buffer_size")
        return size if isinstance(size, int) and size != AUTOTUNE else None
    if defaults_apply(pipeline) and pipeline.options.get(_INJECTED) is not False:
        return None
    ahead = any(
        other.op == "prefetch"
        or ((name := operator_facts(other.op).parallel_argument) and other.argument(name) is not None)
        for other in pipeline
    )
    return None if ahead else 0


def step_seconds(intervals: Sequence[float], model_seconds: float, buffer: int | None) -> float:
    """Returns the seconds per step of a model that is fed through a buffer.

    Args:
        intervals: seconds that the input takes for each of several consecutive elements; not empty. They are repeated.
        model_seconds: seconds per step of the model alone.
        buffer: size in elements; 0 means that input and model take turns, None that the buffer is unlimited.
    """
    mean = statistics.fmean(intervals)
    if buffer is None:
        return max(mean, model_seconds)
    if buffer == 0:
        return mean + model_seconds
    count = len(intervals)
    taken = [0.0] * (2 * count)  # time at which the model takes each element
    made = 0.0
    for index in range(2 * count):  # the first pass fills the buffer, the second is measured
        room = taken[index - buffer] if index >= buffer else 0.0
        made = max(made, room) + intervals[index % count]
        free = taken[index - 1] + model_seconds if index else 0.0
        taken[index] = max(made, free)
    return (taken[-1] - taken[count - 1]) / count


def sufficient_buffer(intervals: Sequence[float], model_seconds: float) -> int | None:
    """Returns the smallest power of two that is about as good as an unlimited buffer; None if none is."""
    goal = (1 + _ENOUGH) * step_seconds(intervals, model_seconds, None)
    size = 1
    while size <= min(_LARGEST, 2 * len(intervals)):
        if step_seconds(intervals, model_seconds, size) <= goal:
            return size
        size *= 2
    return None
