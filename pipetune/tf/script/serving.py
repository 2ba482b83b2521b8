"""Has a script consume other datasets than it makes: where it iterates them, and where others take them.

Those are strategies, and the coordinator of parameter servers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.handover import COORDINATOR, DATASET, FUNCTION
from pipetune.tf import private
from pipetune.tf.script import per_worker
from pipetune.tf.script.patches import Patches

Choose = Callable[[Any], Any]
"""The dataset to consume instead of the one given; that one itself where nothing takes its place."""


def serve(choose: Choose, patches: Patches) -> None:
    """From now on, until `patches` are put back, every dataset that is consumed is asked for its substitute.

    What a strategy distributes is never iterated itself: its substitute is handed over in its place. What the script's
    own function makes for a strategy is replaced inside that function; for the workers of a coordinator it is built
    once here, and they build its substitute.
    """
    serving = _Serving(choose)
    patches.wrap(private.DatasetV2, "__iter__", serving.iterated)
    patches.wrap(private.Strategy, DATASET, serving.distributed)
    patches.wrap(private.Strategy, FUNCTION, serving.made)
    patches.wrap(tf.distribute.coordinator.ClusterCoordinator, COORDINATOR, serving.built_on_workers)


class _Serving:
    """What takes the place of the script's calls."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._looking = False  # at what the script makes: nothing takes its place meanwhile

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
