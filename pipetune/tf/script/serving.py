"""Replaces the datasets that a script consumes, by iteration, distribution strategy or ClusterCoordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.handover import COORDINATOR, DATASET, FUNCTION
from pipetune.tf import private
from pipetune.tf.script import per_worker
from pipetune.tf.script.patches import Patches

Choose = Callable[[Any], Any]
"""Returns the dataset to consume instead of the given one; the given one itself if it is not replaced."""


def serve(choose: Choose, patches: Patches) -> None:
    """Has `choose` replace every dataset that is consumed, until `patches` are undone.

    A dataset that a strategy distributes is never iterated itself: its substitute is distributed in its place. A
    dataset that the script's own function builds for a strategy is replaced inside that function; for the workers of a
    coordinator it is built once in this process, and they build its substitute.
    """
    serving = _Serving(choose)
    patches.wrap(private.DatasetV2, "__iter__", serving.iterated)
    patches.wrap(private.Strategy, DATASET, serving.distributed)
    patches.wrap(private.Strategy, FUNCTION, serving.made)
    patches.wrap(tf.distribute.coordinator.ClusterCoordinator, COORDINATOR, serving.built_on_workers)


class _Serving:
    """Replacements of the patched methods."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._looking = False  # pipetune runs the script's dataset function: nothing is replaced meanwhile

    def iterated(self, original: Any, dataset: Any) -> Any:
        return original(self._chosen(dataset))

    def distributed(self, original: Any, strategy: Any, dataset: Any, options: Any = None) -> Any:
        return original(strategy, self._chosen(dataset), options)

    def made(self, original: Any, strategy: Any, dataset_fn: Any, options: Any = None) -> Any:
        def instead(context: Any) -> Any:
            return self._chosen(dataset_fn(context))

        return original(strategy, tf.autograph.experimental.do_not_convert(instead), options)

    def built_on_workers(self, original: Any, coordinator: Any, dataset_fn: Any) -> Any:
        self._looking = True
        try:
            found = per_worker.described(coordinator, dataset_fn)
        finally:
            self._looking = False
        if found is None or per_worker.why_not_sent(found.dataset):
            return original(coordinator, dataset_fn)
        chosen = self._chosen(found.dataset)
        if chosen is found.dataset:
            return original(coordinator, dataset_fn)
        return original(coordinator, tf.autograph.experimental.do_not_convert(found.function(chosen)))

    def _chosen(self, dataset: Any) -> Any:
        readable = isinstance(dataset, private.DatasetV2) and not private.executing_in_function()
        return self._choose(dataset) if readable and not self._looking else dataset
