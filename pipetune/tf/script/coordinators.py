"""Hooks the ClusterCoordinator of parameter-server training, whose workers build their datasets themselves.

Source: the "Parameter server training" guide of TensorFlow, section on `create_per_worker_dataset`.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from pipetune.core.errors import PipetuneError
from pipetune.core.handover import COORDINATOR, FIT
from pipetune.core.measurement import RunFailed
from pipetune.tf import private
from pipetune.tf.script import capture, captured, consumers, per_worker, workers
from pipetune.tf.script.coordinator_consumer import CoordinatorConsumer, Scheduled
from pipetune.tf.script.handing_over import HandedOver
from pipetune.tf.script.turns import called_by_library, inside_workflow

if TYPE_CHECKING:
    from pipetune.tf.script.consumption import Consumption
    from pipetune.tf.script.hooks import Hooks

_SEEN = "_pipetune_per_worker"  # the attribute of a per-worker dataset, and of its iterators, that holds its `_Seen`
_WHY = "The workers' steps cannot be taken on another dataset:"

BY_SERVERS = (
    "Add --parameter-servers 1: it starts a chief and servers beside the workers. Where the script starts its cluster "
    "itself, leave --workers out."
)
"""Hint for a script with parameter servers that is run with `--workers` alone."""

_Seen = tuple["Consumption", per_worker.PerWorker]


def watch(hooks: Hooks) -> None:
    """Hooks every coordinator until the patches are undone."""
    owner = tf.distribute.coordinator.ClusterCoordinator
    hooks.patches.wrap(owner, "create_per_worker_dataset", functools.partial(_around_creation, hooks))
    hooks.patches.wrap(owner, "schedule", functools.partial(_around_schedule, hooks))
    hooks.patches.wrap(private.PerWorkerDataset, "__iter__", _around_iter)
    if hooks.in_step and workers.own_index(os.environ) == 0:
        hooks.patches.wrap(tf.distribute.Server, "join", _never_serving)


def _never_serving(original: Any, server: Any) -> None:
    raise PipetuneError("The script serves (tf.distribute.Server.join) where it should train.", hint=BY_SERVERS)


def _around_creation(hooks: Hooks, original: Any, coordinator: Any, dataset_fn: Any) -> Any:
    """Notes the dataset that each worker will build: the script may train on it."""
    if hooks.role() or hooks.begun:
        return original(coordinator, dataset_fn)
    with hooks.as_role("a look"):
        found = per_worker.described(coordinator, dataset_fn)
    with capture.counted_before():
        made = original(coordinator, dataset_fn)
    if found is not None:
        use = hooks.note(found.dataset, "preview", f"ClusterCoordinator.{COORDINATOR}")
        use.handed = HandedOver(coordinator.strategy, found.dataset, None, COORDINATOR)
        use.captured = captured.find(made, dataset_fn, file=use.file, line=use.line)
        setattr(made, _SEEN, (use, found))
    return made


def _around_iter(original: Any, dataset: Any) -> Any:
    iterator = original(dataset)
    seen: _Seen | None = getattr(dataset, _SEEN, None)
    if seen is not None:
        setattr(iterator, _SEEN, seen)
    return iterator


def _around_schedule(
    hooks: Hooks, original: Any, coordinator: Any, fn: Any, args: Any = None, kwargs: Any = None
) -> Any:
    """Begins training at the first call that is given an iterator of a per-worker dataset."""
    if hooks.begun and not inside_workflow():
        hooks.stop()
    found = [value for value in tf.nest.flatten((args, kwargs)) if hasattr(value, _SEEN)]
    if hooks.role() or hooks.begun or not found:
        return original(coordinator, fn, args, kwargs)
    iterator = found[0]
    use, described = getattr(iterator, _SEEN)
    if hooks.wanted is not None and use.name != hooks.wanted:
        return original(coordinator, fn, args, kwargs)
    by_fit = called_by_library()
    use.role, use.how = "training", FIT if by_fit else "ClusterCoordinator.schedule"
    frame, _ = capture.user_frame(sys._getframe(1))
    file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else (use.file, use.line)
    schedule = functools.partial(original, coordinator)
    scheduled = Scheduled(fn, args, kwargs, iterator, schedule, file=file, line=line, by_fit=by_fit)
    consumer = CoordinatorConsumer(scheduled, described, workers=use.handed.facts().workers)
    with hooks.as_role("a look"):
        try:
            consumer.ready()
        except RunFailed as failure:
            hooks.begin(use, consumers.NoConsumer(f"{_WHY} {failure}"))
            hooks.stop()
    hooks.begin(use, consumer)
    hooks.stop()
