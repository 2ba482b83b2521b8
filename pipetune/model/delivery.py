"""What every replica of every worker gets, step by step.

A `Delivery` is computed without running anything; elements are indices (0, 1, ... file after file). If the pipeline
shuffles or interleaves, other elements are at these positions; the counts are the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pipetune.model.partial_batches import Step
from pipetune.model.rebatching import Rebatching
from pipetune.model.sharding import AutoShardPolicy, Stream


@dataclass(frozen=True)
class WorkerDelivery:
    """What one worker reads, and what its replicas get."""

    stream: Stream  # from which its batches are taken
    read: int  # elements it reads for them
    minibatches: int  # that its own pipeline builds in these steps, or in the epoch
    steps: tuple[Step, ...]

    def elements(self, step: int, replica: int) -> tuple[int, ...]:
        """The indices of the elements that a replica of this worker gets at a step."""
        batch = self.steps[step][replica]
        return tuple(itertools.chain.from_iterable(self.stream.between(batch.start, batch.stop)))

    def series(self) -> Iterator[range]:
        """Yields the indices of all elements that its replicas get as ranges, in the order of delivery."""
        for batch in itertools.chain.from_iterable(self.steps):
            yield from self.stream.between(batch.start, batch.stop)

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Elements in the minibatch, by step and replica."""
        return tuple(tuple(map(len, step)) for step in self.steps)

    @property
    def kept(self) -> int:
        """Elements that its replicas get."""
        return sum(map(sum, self.sizes))

    @property
    def waste(self) -> float:
        """Share of the elements it reads that none of its replicas gets."""
        return 0.0 if self.read == 0 else 1 - self.kept / self.read

    @property
    def dummies(self) -> int:
        """Empty batches that the runtime inserts for its replicas because others still have data."""
        return max(0, sum(map(len, self.steps)) - self.minibatches)

    @property
    def lost(self) -> int:
        """Minibatches of its pipeline that are left over after the last step."""
        return max(0, self.minibatches - sum(map(len, self.steps)))

    @property
    def empty(self) -> int:
        """Minibatches without an element: dummies, and parts of a batch that is too small for all replicas."""
        return sum(size == 0 for step in self.sizes for size in step)

    @property
    def idle_steps(self) -> int:
        """Steps at which none of its replicas gets an element."""
        return sum(not any(step) for step in self.sizes)


@dataclass(frozen=True)
class Coverage:
    """How often the elements of the data are delivered, over all workers."""

    never: int
    once: int
    repeatedly: int
    most: int  # deliveries of the most frequent one; counted up to 255


@dataclass(frozen=True)
class Delivery:
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
    def short_steps(self) -> int:
        """Steps with fewer elements than the global batch."""
        return sum(size < self.global_batch for size in self.step_sizes)

    @property
    def extra_steps(self) -> int:
        """Steps in excess of those that the same elements would take in full global batches."""
        return self.steps - math.ceil(self.delivered / self.global_batch)

    @property
    def idle_workers(self) -> tuple[int, ...]:
        """Workers that get no element at all while others get some."""
        return tuple(index for index, one in enumerate(self.workers) if self.delivered and not one.kept)

    @property
    def even(self) -> bool:
        """Whether all workers build equally many minibatches, so that none has to wait or gets empty ones."""
        return len({one.minibatches for one in self.workers}) <= 1

    @property
    def read_over_delivered(self) -> float | None:
        """Elements read per element delivered; the same ratio holds for bytes. None if nothing is delivered."""
        return sum(one.read for one in self.workers) / self.delivered if self.delivered else None

    def coverage(self) -> Coverage:
        """Counts how often each element of the data is delivered."""
        times = self.times()
        never, once = times.count(0), times.count(1)
        return Coverage(never, once, self.elements - never - once, max(times, default=0))

    def times(self) -> bytearray:
        """How often each element is delivered, capped at 255, to use one byte per element."""
        times = bytearray(self.elements)
        for numbers in itertools.chain.from_iterable(one.series() for one in self.workers):
            place = slice(numbers.start, numbers.stop, numbers.step)
            times[place] = times[place].translate(_ONE_MORE)
        return times


_ONE_MORE = bytes(min(count + 1, 255) for count in range(256))
