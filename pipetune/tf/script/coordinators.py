"""Watches a coordinator of parameter-server training: its workers build their datasets themselves.

Source: the "Parameter server training" guide of TensorFlow, section on `create_per_worker_dataset`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from pipetune.core.handover import COORDINATOR
from pipetune.tf import private
from pipetune.tf.script import consumers
from pipetune.tf.script.handing_over import HandedOver

if TYPE_CHECKING:
    from pipetune.tf.script.hooks import Hooks

_WHY = (
    "Workers of other processes build the dataset and take its elements as a ClusterCoordinator sends them steps: no "
    "other input can be served from here."
)


def watch(hooks: Hooks) -> None:
    """From now on every coordinator is watched."""
    owner = tf.distribute.coordinator.ClusterCoordinator
    hooks.patches.wrap(owner, "create_per_worker_dataset", functools.partial(_around, hooks))


def _around(hooks: Hooks, original: Any, coordinator: Any, dataset_fn: Any) -> Any:
    """The dataset of the first per-worker dataset is what training consumes."""
    if hooks.role() or hooks.begun:
        return original(coordinator, dataset_fn)
    with hooks.as_role("a look"):
        dataset = _made_here(dataset_fn)
    if not isinstance(dataset, private.DatasetV2):
        return original(coordinator, dataset_fn)
    use = hooks.note(dataset, "training", f"ClusterCoordinator.{COORDINATOR}")
    use.handed = HandedOver(coordinator.strategy, dataset, None, COORDINATOR)
    if hooks.wanted is not None and use.name != hooks.wanted:
        return original(coordinator, dataset_fn)
    hooks.begin(use, consumers.NoConsumer(_WHY))
    raise consumers.ScriptStopped


def _made_here(given: Any) -> Any:
    """What a worker would build, built in this process.

    The script's function is called once more than it says: every worker calls it, and a worker that comes back does so
    again, so that it has to stand that.
    """
    if callable(given):
        given = getattr(given, "python_function", given)()  # a tf.function would give a dataset of its graph
    if isinstance(given, private.DistributedFromFunction):
        return private.made_by_function(given)
    if isinstance(given, private.DistributedDataset):
        return private.before_distribution(given)
    return given
