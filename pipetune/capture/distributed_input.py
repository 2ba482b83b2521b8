"""A dataset that a strategy distributes to its replicas, and other datasets distributed in the same way."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import COORDINATOR, FIT, FUNCTION, InputDistribution
from pipetune.core.operators import FLATTENING, READERS
from pipetune.pipelines import functions, live
from pipetune.timing import windows

_READERS = (*READERS, "SSTableDataset", "ArrayRecordDataset")
_HANDED = "_pipetune_handed"  # attribute of a distributed dataset that holds its `DistributedInput`


@dataclass(frozen=True, eq=False)
class DistributedInput:
    """One call that distributed a dataset through a strategy, and its result."""

    strategy: Any
    dataset: Any  # the script's, before distribution
    distributed: Any  # the distributed dataset; None if other processes build it
    how: str  # as in `InputDistribution`
    options: Any = None  # `tf.distribute.InputOptions` that the script passed

    def distribute(self, dataset: Any) -> Any:
        """Returns another dataset, distributed by the same call, with the same handling of partial batches."""
        if self.how == FUNCTION:
            made = self.strategy.distribute_datasets_from_function(lambda _context: dataset, self.options)
        else:
            made = self.strategy.experimental_distribute_dataset(dataset, self.options)
        tensorflow_private.copy_partial_batch_handling(made, self.distributed)
        return made

    def host_pipeline(self, dataset: Any) -> Any:
        """Returns the host pipeline that the strategy builds from `dataset`: rebatched, sharded and prefetched."""
        if self.how == COORDINATOR:
            return dataset
        (first, *_) = tensorflow_private.host_pipelines(self.distribute(dataset))
        return first

    @functools.cached_property
    def handover(self) -> InputDistribution:
        """The distribution as values, read from the operators that the strategy appended to the dataset."""
        replicas = int(self.strategy.num_replicas_in_sync)
        workers = workers_of(self.strategy)
        each = max(1, replicas // workers)
        batch = tensorflow_private.inferred_batch_size(self.dataset)
        found = InputDistribution(public_name(self.strategy), replicas, self.how, workers, batch)
        if self.how in (FUNCTION, COORDINATOR):
            return found
        own, prefetched = self._splits_by_own_size(batch), 0
        shares: tuple[int, ...] = ()
        for behind in self._appended_datasets():
            if type(behind).__name__ == "_PrefetchDataset":
                prefetched = int(behind._buffer_size)
            elif type(behind).__name__ == "_RebatchDataset" and not own:
                shares = tuple(int(size) for size in behind._batch_sizes.numpy()[:each])
            elif type(behind).__name__ in ("_RebatchDataset", "_LegacyRebatchDataset"):
                rows = batch or 0
                size = math.ceil(rows / replicas)
                shares = tuple(max(0, min(size, rows - index * size)) for index in range(each))
        policy = self._policy() if workers > 1 else ""
        return replace(found, shares=shares, by_own_size=own and bool(shares), prefetched=prefetched, policy=policy)

    def _policy(self) -> str:
        return str(self.dataset.options().experimental_distribute.auto_shard_policy.name)

    def _splits_by_own_size(self, batch: int | None) -> bool:
        """Whether TensorFlow divides each batch by its own size, not by the size of a full batch.

        It does so if the size of a full batch is unknown, or if it shards by element: that pass replaces
        `_RebatchDataset` with `_LegacyRebatchDataset`, even for a single worker (`_AutoShardDataset`).
        """
        policy = self._policy()
        return batch is None or policy == "DATA" or (policy == "AUTO" and not reads_files(self.dataset))

    def _appended_datasets(self) -> Iterator[Any]:
        """Yields the datasets that the strategy appended to the script's, the last one first."""
        found = tensorflow_private.host_pipelines(self.distributed)[:1]
        while found and found[0] is not self.dataset:
            yield found[0]
            found = tensorflow_private.inputs(found[0])


def endless(dataset: Any, handed: DistributedInput | None) -> Any:
    """Returns the dataset repeated indefinitely, and distributed as the script's was if `handed` is given."""
    repeated = windows.repeat_forever(dataset)
    return repeated if handed is None else handed.distribute(repeated)


def distribute_like_fit(strategy: Any, dataset: Any) -> DistributedInput | None:
    """Returns `dataset` distributed as by Keras under `strategy`; None if that is None or distributes nothing."""
    if strategy is None or tensorflow_private.is_default_strategy(strategy):
        return None
    made = strategy.experimental_distribute_dataset(dataset)
    distributes = isinstance(made, tensorflow_private.DistributedDataset)
    return DistributedInput(strategy, dataset, made, FIT) if distributes else None


def workers_of(strategy: Any) -> int:
    """Returns how many processes train together under the strategy, each with its own input pipeline."""
    resolver = tensorflow_private.cluster_resolver(strategy)
    cluster = resolver.cluster_spec().as_dict() if resolver is not None else {}
    kinds = ("worker",) if "ps" in cluster else ("chief", "worker")  # with parameter servers the chief only directs
    return max(1, sum(len(cluster.get(kind, ())) for kind in kinds))


def public_name(strategy: Any) -> str:
    """Returns the public name of a strategy's class: TensorFlow uses other names internally for some."""
    kind = type(strategy)
    named = (name for name in dir(tf.distribute) if getattr(tf.distribute, name) is kind)
    return next(named, kind.__name__)


def reads_files(dataset: Any) -> bool:
    """Whether TensorFlow finds files in a pipeline that it can shard over workers: a reader, at any depth."""
    kind = live.kind_of(dataset)
    if kind.op in _READERS:
        return True
    inner = (functions.inner_operators(getattr(dataset, name)) for name in kind.functions if kind.op in FLATTENING)
    if any(kernel.startswith(_READERS) for kernels in inner for kernel in kernels):
        return True
    return any(map(reads_files, tensorflow_private.inputs(dataset)))


def attach(handed: DistributedInput) -> None:
    """Attaches `handed` to its distributed dataset, for `find_distributed_input`."""
    object.__setattr__(handed.distributed, _HANDED, handed)


def find_distributed_input(distributed: Any) -> DistributedInput | None:
    """Returns how a distributed dataset was created; None if its creation was not observed."""
    found: DistributedInput | None = getattr(distributed, _HANDED, None)
    return found


def host_dataset(value: Any) -> Any:
    """Returns the script's own dataset if `value` was distributed by a strategy; any other `value` unchanged."""
    handed = find_distributed_input(value)
    return value if handed is None else handed.dataset
