"""What every replica of every worker gets, step by step: the one value that proof, size and report use.

A `Delivery` is made of arithmetic alone, with elements as numbers (0, 1, ... file after file). Where the pipeline
shuffles or interleaves, other elements stand at these places; the counts are the same.
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
    """What one worker reads and what its replicas get of it."""

    stream: Stream  # what its batches are cut from
    read: int  # elements it reads for that
    minibatches: int  # that its own pipeline makes in these steps, or in the epoch
    steps: tuple[Step, ...]

    def elements(self, step: int, replica: int) -> tuple[int, ...]:
        """The numbers of the elements that a replica of this worker gets at a step."""
        batch = self.steps[step][replica]
        return tuple(itertools.chain.from_iterable(self.stream.between(batch.start, batch.stop)))

    def series(self) -> Iterator[range]:
        """The numbers of all elements its replicas get, in series, in the order they come."""
        for batch in itertools.chain.from_iterable(self.steps):
            yield from self.stream.between(batch.start, batch.stop)

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """By step, by replica: elements in the minibatch."""
        return tuple(tuple(map(len, step)) for step in self.steps)

    @property
    def kept(self) -> int:
        """Elements its replicas get."""
        return sum(map(sum, self.sizes))

    @property
    def waste(self) -> float:
        """Share of what it reads that none of its replicas gets."""
        return 0.0 if self.read == 0 else 1 - self.kept / self.read

    @property
    def dummies(self) -> int:
        """Empty batches the runtime makes up for its replicas because others still have data."""
        return max(0, sum(map(len, self.steps)) - self.minibatches)

    @property
    def lost(self) -> int:
        """Minibatches of its pipeline that come after the last step."""
        return max(0, self.minibatches - sum(map(len, self.steps)))

    @property
    def empty(self) -> int:
        """Minibatches without an element: dummies, and parts of a batch too small to give each replica one."""
        return sum(size == 0 for step in self.sizes for size in step)

    @property
    def idle_steps(self) -> int:
        """Steps at which no replica of it gets an element."""
        return sum(not any(step) for step in self.sizes)


@dataclass(frozen=True)
class Coverage:
    """How often the elements of the data are delivered, all workers together."""

    never: int
    once: int
    repeatedly: int
    most: int  # times the most frequent one comes; counted up to 255


@dataclass(frozen=True)
class Delivery:
    """An epoch (of endless data: the steps asked for) on all workers, which go step by step together."""

    elements: int  # in the data
    global_batch: int  # that is meant to be in a step
    replicas_per_worker: int
    workers: tuple[WorkerDelivery, ...]
    policy: AutoShardPolicy  # as applied: never AUTO
    rebatching: Rebatching | None  # None: nothing is cut
    messages: int  # times all workers ask one another who still has data
    first_out: int | None  # steps until a worker has no data at all; None: the data is endless

    @property
    def replicas(self) -> int:
        """On all workers."""
        return len(self.workers) * self.replicas_per_worker

    @property
    def steps(self) -> int:
        return len(self.workers[0].steps)

    @cached_property
    def step_sizes(self) -> tuple[int, ...]:
        """By step: elements that all replicas together get."""
        return tuple(sum(map(sum, step)) for step in zip(*(one.sizes for one in self.workers), strict=True))

    @property
    def delivered(self) -> int:
        """Elements that replicas get, an element counted as often as it comes."""
        return sum(self.step_sizes)

    @property
    def short_steps(self) -> int:
        """Steps with fewer elements than the global batch."""
        return sum(size < self.global_batch for size in self.step_sizes)

    @property
    def extra_steps(self) -> int:
        """Steps beyond those that whole global batches of the same elements would take."""
        return self.steps - math.ceil(self.delivered / self.global_batch)

    @property
    def idle_workers(self) -> tuple[int, ...]:
        """Workers that get no element at all while there are some."""
        return tuple(index for index, one in enumerate(self.workers) if self.delivered and not one.kept)

    @property
    def even(self) -> bool:
        """Whether all workers make as many minibatches, so that none has to wait or go without."""
        return len({one.minibatches for one in self.workers}) <= 1

    @property
    def read_over_delivered(self) -> float | None:
        """Elements read for each delivered one; bytes alike. None where nothing is delivered."""
        return sum(one.read for one in self.workers) / self.delivered if self.delivered else None

    def coverage(self) -> Coverage:
        """Counts every element of the data once through."""
        times = self.times()
        never, once = times.count(0), times.count(1)
        return Coverage(never, once, self.elements - never - once, max(times, default=0))

    def times(self) -> bytearray:
        """How often each element is delivered, up to 255 times; the memory it takes is a byte for each."""
        times = bytearray(self.elements)
        for numbers in itertools.chain.from_iterable(one.series() for one in self.workers):
            place = slice(numbers.start, numbers.stop, numbers.step)
            times[place] = times[place].translate(_ONE_MORE)
        return times


_ONE_MORE = bytes(min(count + 1, 255) for count in range(256))
