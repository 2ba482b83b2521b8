"""Datasets that the workers of a coordinator build by themselves: the script's, and others sent in its place.

A dataset that is alive here goes to the workers as its graph, in a function that builds it there: the way that
TensorFlow itself takes for `create_per_worker_dataset(dataset)`. What the graph names outside of itself (Python
functions, tables, variables) has to be there: on workers of other processes it is not.

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

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_SENT = "_pipetune_sent"  # the attribute of a dataset: what the workers have built of it, and those lost before that


@dataclass(frozen=True, eq=False)
class PerWorker:
    """A dataset that each worker of a coordinator builds for itself, as the script has it built."""

    coordinator: Any
    dataset: Any  # what a worker builds, built in this process
    form: type  # what the script's function returns: a dataset, or a distributed one
    options: Any = None  # `tf.distribute.InputOptions`, as the script gave them

    def function(self, dataset: Any) -> Callable[[], Any]:
        """What `create_per_worker_dataset` takes to build `dataset` on every worker, handed over as the script does."""
        rebuilt = _rebuilt_there(dataset)
        return lambda: self._hand_over(rebuilt())

    def iterator(self, dataset: Any, like: Any) -> Any:
        """A fresh iterator of `dataset`, endless, on each worker, to be scheduled in the place of the script's, `like`.

        The workers build the dataset once, and keep it while `dataset` lives here: a cache stays filled. All build it
        anew where one was lost since: it would come back with an empty one.

        Raises:
            RunFailed: it is none that the scheduled function could take.
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
        """An iterator of so many elements of the script's own dataset on each worker."""
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
        """Inside a function: what the script's own function makes of its dataset."""
        strategy = self.coordinator.strategy
        if self.form is private.DistributedFromFunction:
            made = tf.autograph.experimental.do_not_convert(lambda _context: dataset)
            return strategy.distribute_datasets_from_function(made, self.options)
        if self.form is private.DistributedDataset:
            return strategy.experimental_distribute_dataset(dataset, self.options)
        return dataset


def described(coordinator: Any, given: Any) -> PerWorker | None:
    """What each worker will build of what `create_per_worker_dataset` is given; None where that cannot be seen.

    The script's function is called once more than it says: every worker calls it, and a worker that comes back does so
    again, so that it has to stand that.
    """
    if callable(given):
        given = getattr(given, "python_function", given)()  # a tf.function would give a dataset of its graph
    options = getattr(given, "_options", None)
    if isinstance(given, private.DistributedFromFunction):
        return _readable(PerWorker(coordinator, private.made_by_function(given), type(given), options))
    if isinstance(given, private.DistributedDataset):
        return _readable(PerWorker(coordinator, private.before_distribution(given), type(given), options))
    return _readable(PerWorker(coordinator, given, private.DatasetV2))


def _readable(found: PerWorker) -> PerWorker | None:
    return found if isinstance(found.dataset, private.DatasetV2) else None


def why_not_sent(dataset: Any) -> str:
    """Why the workers cannot build the dataset of its graph; '' where they can, as far as the graph tells.

    A Python function is registered in one process. Where the workers are in that process too it could be called, but
    may stand still for ever: TensorFlow waits for workers with the lock held that Python functions need.
    """
    graph = tf.compat.v1.GraphDef.FromString(private.serialized_graph(dataset))
    called = {node.op for nodes in (graph, *(one for one in graph.library.function)) for node in _nodes(nodes)}
    return "It calls a Python function, which no worker can be sent." if called & _PYTHON else ""


_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def _nodes(graph: Any) -> Any:
    return graph.node if hasattr(graph, "node") else graph.node_def


def _rebuilt_there(dataset: Any) -> Callable[[], Any]:
    """A function that builds the dataset of its graph where it is run; to be called inside another function."""
    graph = tf.constant(private.serialized_graph(dataset))  # captured: as a constant of the function it would be folded
    spec = dataset.element_spec
    return lambda: private.dataset_from_graph(graph, spec)


def _iterate(sent: tuple[Any, Any]) -> Any:
    return iter(sent[1])


def _reader(elements: int) -> Callable[[tuple[Any, Any]], Any]:
    """A function that reads so many elements of a dataset that was sent."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def read(dataset: Any) -> Any:
        return dataset.take(elements).reduce(np.int64(0), lambda count, _: count + 1)

    return lambda sent: read(sent[0])


def _until_caches_are_full(dataset: Any) -> int:
    """Elements of `dataset` after which every cache in it has come to its end; 0 without a cache."""
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
