"""A dataset that a strategy distributes to its replicas, and other datasets distributed in the same way."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pipetune.core.handover import COORDINATOR, FUNCTION, Handover
from pipetune.tf import private
from pipetune.tf.measure import windows
from pipetune.tf.pipelines import functions, operators

REPLAYS = True  # datasets created by calls from this module are pipetune's, not the user's

_READERS = (*operators.READERS, "SSTableDataset", "ArrayRecordDataset")
_OPENING = frozenset({"interleave", "flat_map"})
_HANDED = "_pipetune_handed"  # the attribute of a distributed dataset that holds its `HandedOver`


@dataclass(frozen=True, eq=False)
class HandedOver:
    """One call that distributed a dataset through a strategy, and its result."""

    strategy: Any
    dataset: Any  # the script's, before distribution
    distributed: Any  # the distributed dataset; None where other processes build it
    how: str  # as in `Handover`
    options: Any = None  # `tf.distribute.InputOptions` that the script passed

    def like(self, dataset: Any) -> Any:
        """Distributes another dataset by the same call of the strategy, with the same handling of partial batches."""
        if self.how == FUNCTION:
            made = self.strategy.distribute_datasets_from_function(lambda _context: dataset, self.options)
        else:
            made = self.strategy.experimental_distribute_dataset(dataset, self.options)
        private.handle_partial_batches_like(made, self.distributed)
        return made

    def endless(self, dataset: Any) -> Any:
        """Repeats the dataset indefinitely and distributes it."""
        return self.like(windows.endless(dataset))

    def on_host(self, dataset: Any) -> Any:
        """Returns the host pipeline that the strategy builds from `dataset`: rebatched, sharded and prefetched."""
        if self.how == COORDINATOR:
            return dataset
        (first, *_) = private.host_pipelines(self.like(dataset))
        return first

    @property
    def parts(self) -> int:
        """Elements of `on_host` per element of the dataset."""
        return len(self.facts().shares) or 1

    def facts(self) -> Handover:
        """Describes the distribution by values, read from the operators that the strategy appended to the dataset."""
        return self._facts

    @functools.cached_property
    def _facts(self) -> Handover:
        replicas = int(self.strategy.num_replicas_in_sync)
        workers = workers_of(self.strategy)
        each = max(1, replicas // workers)
        batch = private.batch_size_seen(self.dataset)
        found = Handover(public_name(self.strategy), replicas, self.how, workers, batch)
        if self.how in (FUNCTION, COORDINATOR):
            return found
        own, prefetched = self._by_own_size(batch), 0
        shares: tuple[int, ...] = ()
        for behind in self._behind():
            if type(behind).__name__ == "_PrefetchDataset":
                prefetched = int(behind._buffer_size)
            elif type(behind).__name__ == "_RebatchDataset" and not own:
                shares = tuple(int(size) for size in behind._batch_sizes.numpy()[:each])
            elif type(behind).__name__ in ("_RebatchDataset", "_LegacyRebatchDataset"):
                shares = tuple(_pieces(batch, replicas))[:each] if batch else (0,) * each
        policy = self._policy() if workers > 1 else ""
        return replace(found, shares=shares, by_own_size=own and bool(shares), prefetched=prefetched, policy=policy)

    def _policy(self) -> str:
        return str(self.dataset.options().experimental_distribute.auto_shard_policy.name)

    def _by_own_size(self, batch: int | None) -> bool:
        """Whether TensorFlow divides each batch by its own size, not by the size of a full batch.

        It does if the size of a full batch is unknown, and if it shards by element: its pass for that replaces one
        rebatch operator with the other, also for a single worker (`_AutoShardDataset`).
        """
        policy = self._policy()
        return batch is None or policy == "DATA" or (policy == "AUTO" and not reads_files(self.dataset))

    def _behind(self) -> Iterator[Any]:
        """Yields the datasets that the strategy appended to the script's, the last one first."""
        found = private.host_pipelines(self.distributed)[:1]
        while found and found[0] is not self.dataset:
            yield found[0]
            found = private.inputs(found[0])


def workers_of(strategy: Any) -> int:
    """Returns how many processes train together under the strategy, each with its own input pipeline."""
    resolver = private.cluster_resolver(strategy)
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
    kind = operators.kind_of(dataset)
    if kind.op in _READERS:
        return True
    inner = (functions.inner_operators(getattr(dataset, name)) for name in kind.functions if kind.op in _OPENING)
    if any(kernel.startswith(_READERS) for kernels in inner for kernel in kernels):
        return True
    return any(map(reads_files, private.inputs(dataset)))


def remember(handed: HandedOver) -> None:
    """Attaches `handed` to its distributed dataset, for `of`."""
    object.__setattr__(handed.distributed, _HANDED, handed)


def of(distributed: Any) -> HandedOver | None:
    """Returns how a distributed dataset was created; None if its creation was not observed."""
    found: HandedOver | None = getattr(distributed, _HANDED, None)
    return found


def _pieces(batch: int, replicas: int) -> Iterator[int]:
    size = math.ceil(batch / replicas)
    return (max(0, min(size, batch - index * size)) for index in range(replicas))
