"""Which elements each worker's input reads: by file, by element, or all of them.

Follows the "Distributed Input" guide of TensorFlow (tf.distribute) and, where TensorFlow 2.21 differs from it, its code
(`auto_shard.cc`, `shard_dataset_op.cc`). For what happens to the elements afterwards see `rebatching` and `delivery`.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from pipetune.core.errors import PipetuneError

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

    series: tuple[range, ...]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(map(len, self.series)))

    @property
    def size(self) -> int:
        return self._ends[-1] if self.series else 0

    def between(self, start: int, stop: int) -> tuple[range, ...]:
        """The element indices at these positions; past the end the stream starts over, as a repeated dataset does."""
        found = []
        while start < stop and self.size:
            position = start % self.size
            index = bisect.bisect_right(self._ends, position)
            series = self.series[index]
            first = len(series) - (self._ends[index] - position)
            last = min(len(series), first + stop - start)
            found.append(series[first:last])
            start += last - first
        return tuple(found)


@dataclass(frozen=True)
class InputContext:
    """`tf.distribute.InputContext` with the same names: which of the input pipelines a `dataset_fn` is called for."""

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The global batch size divided by the number of replicas.

        Raises:
            ValueError: the global batch size is not divisible by it, as in TensorFlow.
        """
        check_positive(global_batch_size=global_batch_size, num_replicas_in_sync=self.num_replicas_in_sync)
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"the global batch size {global_batch_size} is not divisible by {self.num_replicas_in_sync} replicas"
            )
        return global_batch_size // self.num_replicas_in_sync


def applied_policy(policy: AutoShardPolicy, *, from_files: bool, workers: int) -> AutoShardPolicy:
    """The policy that TensorFlow applies for `policy`.

    Args:
        policy: the requested policy.
        from_files: whether TensorFlow finds files to divide (`autosharding.found`). AUTO depends on this alone: it
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


def streams(files: Sequence[int], workers: int, policy: AutoShardPolicy) -> tuple[Stream, ...]:
    """What each worker's pipeline reads under an applied policy; `files` has the number of elements in each file.

    FILE gives worker i the files i, i + workers, i + 2 workers, ... With DATA every worker reads everything: TensorFlow
    shards the rebatched elements, at the very end of the pipeline.

    Raises:
        PipetuneError: policy FILE with fewer files than workers. In TensorFlow a worker that has a file raises
            InvalidArgumentError at its first element, and one that has none sees the end of the data.
    """
    check_positive(workers=workers)
    if policy is not AutoShardPolicy.FILE:
        return (by_file(files, 1, 0),) * workers
    if 0 < len(files) < workers:
        raise PipetuneError(
            f"{len(files)} {'file' if len(files) == 1 else 'files'} cannot be divided over {workers} workers.",
            hint="Shard by DATA, or split the input into as many files as there are workers.",
        )
    return tuple(by_file(files, workers, index) for index in range(workers))


def by_file(files: Sequence[int], count: int, index: int) -> Stream:
    """The elements of every `count`-th file from `index` on, one file after the other."""
    ends = list(itertools.accumulate(files, initial=0))
    return Stream(tuple(range(ends[file], ends[file + 1]) for file in shard(range(len(files)), count, index)))


def by_element(files: Sequence[int], count: int, index: int) -> Stream:
    """Every `count`-th element from `index` on."""
    _check_shard(count, index)
    return Stream((range(index, sum(files), count),))


def shard(elements: Sequence[T], count: int, index: int) -> Sequence[T]:
    """`Dataset.shard(count, index)`: every `count`-th element from `index` on.

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
