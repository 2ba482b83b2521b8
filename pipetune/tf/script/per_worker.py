"""Datasets that the workers of a coordinator build themselves: the script's, and others sent in its place.

A live dataset is sent to the workers as its graph, in a function that rebuilds it there, as TensorFlow itself does for
`create_per_worker_dataset(dataset)`. Whatever the graph refers to outside of itself (Python functions, tables,
variables) has to exist there; on workers in other processes it does not.

Source: `tf.distribute.coordinator.ClusterCoordinator` (TensorFlow 2.21, `coordinator/values.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.measurement import RunFailed
from pipetune.tf import private
from pipetune.tf.measure import windows
from pipetune.tf.pipelines import operators

REPLAYS = True  # datasets created by calls from this module are pipetune's, not the user's

_SENT = "_pipetune_sent"  # the attribute of a dataset: its copies on the workers, and the losses counted before


@dataclass(frozen=True, eq=False)
class PerWorker:
    """A dataset that each worker of a coordinator builds for itself, in the way the script specifies."""

    coordinator: Any
    dataset: Any  # what a worker builds, built in this process
    form: type  # class of what the script's function returns: a dataset, or a distributed one
    options: Any = None  # `tf.distribute.InputOptions` that the script passed

    def function(self, dataset: Any) -> Callable[[], Any]:
        """Returns the argument of `create_per_worker_dataset` that builds `dataset`, distributed like the script's."""
        rebuilt = _rebuilt_there(dataset)
        return lambda: self._hand_over(rebuilt())

    def iterator(self, dataset: Any, like: Any) -> Any:
        """Creates a fresh, endless iterator of `dataset` on each worker, to schedule in place of the script's `like`.

        The workers build the dataset once, and keep it while `dataset` is alive here, so a cache stays filled. If a
        worker was lost since, all of them rebuild it: the lost one would come back with an empty cache.

        Raises:
            RunFailed: the scheduled function cannot take the dataset, or it cannot be sent.
        """
        sent, before = getattr(dataset, _SENT, (None, 0))
        lost = private.workers_lost()
        if sent is None or before != lost:
            endless = windows.endless(dataset)
            sent = self._send(endless)
            elements = _until_caches_are_full(endless)
            if elements:
                private.read_on_workers(self.coordinator, _reader(elements), sent)
            object.__setattr__(dataset, _SENT, (sent, lost))
        return self._iterator(sent, like)

    def ending_iterator(self, elements: int, like: Any) -> Any:
        """Creates an iterator of the first `elements` elements of the script's own dataset on each worker."""
        return self._iterator(self._send(self.dataset.take(elements)), like)

    def _iterator(self, sent: Any, like: Any) -> Any:
        return private.iterator_like(private.made_on_workers(self.coordinator, _iterate, sent), like)

    def _send(self, dataset: Any) -> Any:
        if dataset.element_spec != self.dataset.element_spec:
            raise RunFailed("Its elements have other shapes than those that the scheduled function was written for.")
        why = why_not_sent(dataset)
        if why:
            raise RunFailed(why)
        rebuilt = _rebuilt_there(dataset)

        def build() -> tuple[Any, Any]:
            made = rebuilt()
            return made, self._hand_over(made)

        function = tf.function(build, autograph=False).get_concrete_function()
        return private.made_on_workers(self.coordinator, function)

    def _hand_over(self, dataset: Any) -> Any:
        """Distributes `dataset` as the script's own function does; for use inside a function."""
        strategy = self.coordinator.strategy
        if self.form is private.DistributedFromFunction:
            made = tf.autograph.experimental.do_not_convert(lambda _context: dataset)
            return strategy.distribute_datasets_from_function(made, self.options)
        if self.form is private.DistributedDataset:
            return strategy.experimental_distribute_dataset(dataset, self.options)
        return dataset


def described(coordinator: Any, given: Any) -> PerWorker | None:
    """Returns what each worker will build from the argument of `create_per_worker_dataset`; None if unknown.

    The script's function is called one extra time. It has to tolerate that: every worker calls it, and a worker that
    comes back calls it again.

    Args:
        given: the argument: a function, a dataset or a distributed dataset.
    """
    if callable(given):
        given = getattr(given, "python_function", given)()  # a tf.function would return a dataset of its graph
    options = getattr(given, "_options", None)
    if isinstance(given, private.DistributedFromFunction):
        return _readable(PerWorker(coordinator, private.made_by_function(given), type(given), options))
    if isinstance(given, private.DistributedDataset):
        return _readable(PerWorker(coordinator, private.before_distribution(given), type(given), options))
    return _readable(PerWorker(coordinator, given, private.DatasetV2))


def _readable(found: PerWorker) -> PerWorker | None:
    return found if isinstance(found.dataset, private.DatasetV2) else None


def why_not_sent(dataset: Any) -> str:
    """Returns why the workers cannot build the dataset from its graph; '' if the graph shows no obstacle.

    A Python function is registered in one process only. Workers in that same process could call it, but may deadlock:
    TensorFlow waits for workers while it holds the lock that Python functions need.
    """
    graph = tf.compat.v1.GraphDef.FromString(private.serialized_graph(dataset))
    called = {node.op for nodes in (graph, *(one for one in graph.library.function)) for node in _nodes(nodes)}
    return "It calls a Python function, which no worker can be sent." if called & _PYTHON else ""


_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def _nodes(graph: Any) -> Any:
    return graph.node if hasattr(graph, "node") else graph.node_def


def _rebuilt_there(dataset: Any) -> Callable[[], Any]:
    """Returns a function that builds the dataset from its graph where it runs; call it inside another function."""
    graph = tf.constant(private.serialized_graph(dataset))  # captured: a constant in the function would be folded
    spec = dataset.element_spec
    return lambda: private.dataset_from_graph(graph, spec)


def _iterate(sent: tuple[Any, Any]) -> Any:
    return iter(sent[1])


def _reader(elements: int) -> Callable[[tuple[Any, Any]], Any]:
    """Returns a function that reads `elements` elements of a dataset that was sent."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def read(dataset: Any) -> Any:
        return dataset.take(elements).reduce(np.int64(0), lambda count, _: count + 1)

    return lambda sent: read(sent[0])


def _until_caches_are_full(dataset: Any) -> int:
    """Returns the number of elements of `dataset` after which every cache in it is filled; 0 without a cache."""
    most = 0
    for cache in _caches(dataset):
        count = int(cache.cardinality())
        if count == tf.data.INFINITE_CARDINALITY or count == 1:
            continue
        if count < 0:
            count = int(cache.reduce(np.int64(0), lambda seen, _: seen + 1))
        ratio = max(1, (private.batch_size_seen(dataset) or 1) // (private.batch_size_seen(cache) or 1))
        most = max(most, math.ceil(count / ratio) + 1)
    return most


def _caches(dataset: Any) -> list[Any]:
    mine = [dataset] if operators.kind_of(dataset).op == "cache" else []
    return mine + [cache for above in private.inputs(dataset) for cache in _caches(above)]
