"""Applies a plan to live datasets: to one that is given, or to every one that the script consumes, by iteration, in a
function, by a strategy or by a ClusterCoordinator."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import coordinator_consumer
from pipetune.capture.patches import Patches
from pipetune.core.distribution import COORDINATOR, DATASET, FUNCTION
from pipetune.core.edits import apply_edits
from pipetune.core.plan_file import PlanFile
from pipetune.pipelines import call_sites, live
from pipetune.pipelines.replay import replay

_SUBSTITUTE = "_pipetune_substitute"  # attribute of a dataset that was served: what is consumed instead; None: itself


def apply_plan(dataset: Any, plan: PlanFile) -> Any:
    """Returns the dataset with the plan's edits applied; its functions and seeds are reused.

    Raises:
        PlanMismatch: the plan was made for another pipeline.
        CannotReplay: an operator cannot be rebuilt.
    """
    source = live.read(dataset)
    plan.check(source.pipeline)
    return replay(source, apply_edits(source.pipeline, plan.edits))


class Applier:
    """Replaces every dataset that a plan matches with the planned one.

    `applied` counts the matches; `nearest` is the largest pipeline that did not match, with the plan tried on it.
    """

    def __init__(self, plan: PlanFile, on_applied: Callable[[str], None]) -> None:
        self._plans = (plan, *plan.more)
        self._on_applied = on_applied
        self.applied = 0
        self.nearest: tuple[PlanFile, live.LivePipeline] | None = None

    def __call__(self, dataset: Any) -> Any:
        """Returns the dataset to consume instead of `dataset`, or `dataset` itself if no plan matches it."""
        if hasattr(dataset, _SUBSTITUTE):
            known = getattr(dataset, _SUBSTITUTE)
            return dataset if known is None else known
        source = live.read(dataset)
        result = dataset
        for plan in self._plans:
            if plan.fingerprint == source.pipeline.fingerprint:  # the first: another may be of validation data like it
                result = replay(source, apply_edits(source.pipeline, plan.edits))
                self.applied += 1
                self._on_applied(source.pipeline.name)
                break
            if self.nearest is None or len(source.pipeline.nodes) > len(self.nearest[1].pipeline.nodes):
                self.nearest = (plan, source)
        object.__setattr__(result, _SUBSTITUTE, None)
        if result is not dataset:
            object.__setattr__(dataset, _SUBSTITUTE, result)  # kept as long as the script keeps the dataset
        return result


def substitute(choose: Callable[[Any], Any], patches: Patches) -> None:
    """Replaces every dataset that is consumed by the result of `choose`, until `patches` are undone.

    That is the same dataset if it is not replaced. A dataset that a strategy distributes is never iterated itself: its
    substitute is distributed in its place. A dataset that the script's own function builds for a strategy is replaced
    inside that function; for the workers of a coordinator it is built once in this process, and they build its
    substitute.
    """
    serving = _Substitution(choose)
    patches.wrap(tensorflow_private.DatasetV2, "__iter__", serving.around_iter)
    patches.wrap(tensorflow_private.Strategy, DATASET, serving.around_distribute)
    patches.wrap(tensorflow_private.Strategy, FUNCTION, serving.around_dataset_function)
    patches.wrap(tensorflow_private.ConcreteFunction, tensorflow_private.RUN_FUNCTION, serving.around_function)
    patches.wrap(tf.distribute.coordinator.ClusterCoordinator, COORDINATOR, serving.around_per_worker_dataset)


class _Substitution:
    """Replacements of the patched methods."""

    def __init__(self, choose: Callable[[Any], Any]) -> None:
        self._choose = choose
        self._tensors: dict[int, tuple[weakref.ref[Any], Any]] = {}
        """By id: one that a dataset consists of, as long as there is one, and its substitute; None: itself."""
        self._inspecting = False  # whether pipetune runs the script's dataset function, in which nothing is replaced

    def around_iter(self, original: Any, dataset: Any) -> Any:
        return original(self._substitute_of(dataset))

    def around_function(self, original: Any, function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        """Calls a function that iterates datasets which it gets as arguments, or captures, on their substitutes."""
        if not tf.executing_eagerly():
            return original(function, tensor_inputs, captured_inputs)
        return original(function, *(list(map(self._tensor, given)) for given in (tensor_inputs, captured_inputs)))

    def _tensor(self, tensor: Any) -> Any:
        if tensor.dtype != tf.variant:
            return tensor
        key = id(tensor)
        if key not in self._tensors:
            (dataset,) = call_sites.datasets_of([tensor])
            instead = tensor if dataset is None else self._substitute_of(dataset)._variant_tensor
            forget = functools.partial(self._tensors.pop, key)
            self._tensors[key] = weakref.ref(tensor, forget), None if instead is tensor else instead
        instead = self._tensors[key][1]
        return tensor if instead is None else instead

    def around_distribute(self, original: Any, strategy: Any, dataset: Any, options: Any = None) -> Any:
        return original(strategy, self._substitute_of(dataset), options)

    def around_dataset_function(self, original: Any, strategy: Any, dataset_fn: Any, options: Any = None) -> Any:
        def instead(context: Any) -> Any:
            return self._substitute_of(dataset_fn(context))

        return original(strategy, tf.autograph.experimental.do_not_convert(instead), options)

    def around_per_worker_dataset(self, original: Any, coordinator: Any, dataset_fn: Any) -> Any:
        self._inspecting = True
        try:
            found = coordinator_consumer.worker_dataset_of(coordinator, dataset_fn)
        finally:
            self._inspecting = False
        if found is None or coordinator_consumer.sending_obstacle(found.dataset):
            return original(coordinator, dataset_fn)
        chosen = self._substitute_of(found.dataset)
        if chosen is found.dataset:
            return original(coordinator, dataset_fn)
        return original(coordinator, tf.autograph.experimental.do_not_convert(found.dataset_function(chosen)))

    def _substitute_of(self, dataset: Any) -> Any:
        readable = isinstance(dataset, tensorflow_private.DatasetV2) and tf.executing_eagerly()
        return self._choose(dataset) if readable and not self._inspecting else dataset
