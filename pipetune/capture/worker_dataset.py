"""Datasets that the workers of a coordinator build themselves: the script's, and others sent in its place.

A live dataset is sent to the workers as its graph, in a function that rebuilds it there, as TensorFlow itself does for
`create_per_worker_dataset(dataset)`. Objects outside the graph that it refers to (Python functions, tables, variables)
must exist there; on workers in other processes they do not.

Source: `tf.distribute.coordinator.ClusterCoordinator` (TensorFlow 2.21, `coordinator/values.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import PYTHON_CALLS
from pipetune.core.results import RunFailed
from pipetune.pipelines import live
from pipetune.timing import windows

_SENT = "_pipetune_sent"  # attribute of a dataset: its copies on the workers, and the number of losses before


@dataclass(frozen=True, eq=False)
class WorkerDataset:
    """A dataset that each worker of a coordinator builds for itself, in the way the script specifies."""

    coordinator: Any
    dataset: Any  # what a worker builds, built in this process
    result_type: type  # class of what the script's function returns: a dataset, or a distributed one
    options: Any = None  # `tf.distribute.InputOptions` that the script passed

    def dataset_function(self, dataset: Any) -> Callable[[], Any]:
        """Returns the argument of `create_per_worker_dataset` that builds `dataset`, distributed like the script's."""
        rebuilt = _remote_builder(dataset)
        return lambda: self._distribute(rebuilt())

    def iterator(self, dataset: Any, like: Any) -> Any:
        """Returns a new, endless iterator of `dataset` on each worker, to schedule in place of the script's `like`.

        The workers build the dataset once and keep it while `dataset` is alive here, so a cache stays filled. If a
        worker was lost since, all of them rebuild it, because the lost one would come back with an empty cache.

        Raises:
            RunFailed: the scheduled function cannot take the dataset, or it cannot be sent.
        """
        sent, before = getattr(dataset, _SENT, (None, 0))
        lost = tensorflow_private.worker_failures()
        if sent is None or before != lost:
            endless = windows.repeat_forever(dataset)
            sent = self._send(endless)
            elements = _elements_to_fill_caches(endless)
            if elements:
                tensorflow_private.fetch_from_workers(self.coordinator, _reader(elements), sent)
            object.__setattr__(dataset, _SENT, (sent, lost))
        return self._iterator(sent, like)

    def finite_iterator(self, elements: int, like: Any) -> Any:
        """Returns an iterator of the first `elements` elements of the script's own dataset on each worker.

        Raises:
            RunFailed: the dataset cannot be sent.
        """
        return self._iterator(self._send(self.dataset.take(elements)), like)

    def _iterator(self, sent: Any, like: Any) -> Any:
        made = tensorflow_private.create_on_workers(self.coordinator, _iterate, sent)
        return tensorflow_private.wrap_iterators(made, like)

    def _send(self, dataset: Any) -> Any:
        if dataset.element_spec != self.dataset.element_spec:
            raise RunFailed("Its elements have different shapes or types than the scheduled function expects.")
        why = sending_obstacle(dataset)
        if why:
            raise RunFailed(why)
        rebuilt = _remote_builder(dataset)

        def build() -> tuple[Any, Any]:
            made = rebuilt()
            return made, self._distribute(made)

        function = tf.function(build, autograph=False).get_concrete_function()
        return tensorflow_private.create_on_workers(self.coordinator, function)

    def _distribute(self, dataset: Any) -> Any:
        """Distributes `dataset` as the script's own function does; for use inside a function."""
        strategy = self.coordinator.strategy
        if self.result_type is tensorflow_private.DistributedDatasetFromFunction:
            made = tf.autograph.experimental.do_not_convert(lambda _context: dataset)
            return strategy.distribute_datasets_from_function(made, self.options)
        if self.result_type is tensorflow_private.DistributedDataset:
            return strategy.experimental_distribute_dataset(dataset, self.options)
        return dataset


def worker_dataset_of(coordinator: Any, given: Any) -> WorkerDataset | None:
    """Returns what each worker will build from the argument of `create_per_worker_dataset`; None if unknown.

    The script's function is called one extra time. It has to tolerate that: every worker calls it, and a worker that
    comes back calls it again. Such an argument may also be a dataset or a distributed dataset.
    """
    if callable(given):
        given = getattr(given, "python_function", given)()  # a tf.function would return a dataset of its graph
    options = getattr(given, "_options", None)
    dataset, kind = given, tensorflow_private.DatasetV2
    if isinstance(given, tensorflow_private.DistributedDatasetFromFunction):
        dataset, kind = tensorflow_private.call_dataset_function(given), type(given)
    elif isinstance(given, tensorflow_private.DistributedDataset):
        dataset, kind = tensorflow_private.original_dataset(given), type(given)
    if not isinstance(dataset, tensorflow_private.DatasetV2):
        return None
    return WorkerDataset(coordinator, dataset, kind, options)


def sending_obstacle(dataset: Any) -> str:
    """Returns why the workers cannot build the dataset from its graph; '' if the graph shows no obstacle.

    A Python function is registered in one process only. Workers in that same process could call it, but may deadlock:
    TensorFlow waits for workers while it holds the lock that Python functions need.
    """
    graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
    called = {node.op for nodes in (graph.node, *(one.node_def for one in graph.library.function)) for node in nodes}
    return "It calls a Python function, which cannot be sent to workers." if called & PYTHON_CALLS else ""


def _remote_builder(dataset: Any) -> Callable[[], Any]:
    """Returns a function that builds the dataset from its graph where it runs; call it inside another function."""
    # Captured: a constant in the function would be folded.
    graph = tf.constant(tensorflow_private.serialized_graph(dataset))
    spec = dataset.element_spec
    return lambda: tensorflow_private.dataset_from_graph(graph, spec)


def _iterate(sent: tuple[Any, Any]) -> Any:
    return iter(sent[1])


def _reader(elements: int) -> Callable[[tuple[Any, Any]], Any]:
    """Returns a function that reads `elements` elements of a dataset that was sent."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def read(dataset: Any) -> Any:
        return dataset.take(elements).reduce(np.int64(0), lambda count, _: count + 1)

    return lambda sent: read(sent[0])


def _elements_to_fill_caches(dataset: Any) -> int:
    """Returns the number of elements of `dataset` after which every cache in it is filled; 0 without a cache."""
    most = 0
    for cache in _caches(dataset):
        count = int(cache.cardinality())
        if count == tf.data.INFINITE_CARDINALITY or count == 1:
            continue
        if count < 0:
            count = int(cache.reduce(np.int64(0), lambda seen, _: seen + 1))
        above, below = (tensorflow_private.inferred_batch_size(one) or 1 for one in (cache, dataset))
        most = max(most, math.ceil(count / max(1, below // above)) + 1)
    return most


def _caches(dataset: Any) -> list[Any]:
    mine = [dataset] if live.kind_of(dataset).op == "cache" else []
    return mine + [cache for above in tensorflow_private.inputs(dataset) for cache in _caches(above)]
