"""Observes how a script passes its datasets to a distribution strategy, and who consumes the distributed datasets."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import distributed_input, job_processes
from pipetune.capture.consumption import Stopwatch
from pipetune.capture.distributed_input import DistributedInput
from pipetune.capture.observed_iterators import ObservedDistributedIterator
from pipetune.core.distribution import DATASET, FIT, FUNCTION

if TYPE_CHECKING:
    from pipetune.capture.hooks import Hooks

_VALUES = "experimental_distribute_values_from_function"


def watch(hooks: Hooks) -> None:
    """Hooks every strategy until the patches are undone."""
    patches = hooks.patches
    patches.wrap(tensorflow_private.Strategy, DATASET, functools.partial(_around_dataset, hooks))
    patches.wrap(tensorflow_private.Strategy, FUNCTION, functools.partial(_around_function, hooks))
    patches.wrap(tf.distribute.Strategy, _VALUES, functools.partial(_around_values, hooks))
    for owner in (tensorflow_private.DistributedDataset, tensorflow_private.DistributedDatasetFromFunction):
        patches.wrap(owner, "__iter__", functools.partial(_around_iter, hooks))


def distribute_like_fit(strategy: Any, dataset: Any) -> DistributedInput | None:
    """Returns `dataset` distributed as by Keras under `strategy`; None if that is None or distributes nothing."""
    if strategy is None or tensorflow_private.is_default_strategy(strategy):
        return None
    made = strategy.experimental_distribute_dataset(dataset)
    return (
        DistributedInput(strategy, dataset, made, FIT)
        if isinstance(made, tensorflow_private.DistributedDataset)
        else None
    )


def switching_obstacle(handed: DistributedInput | None, *, in_step: bool = False) -> str:
    """Returns why no other dataset can be distributed in the same way; '' if one can.

    Args:
        handed: how a strategy distributed the script's dataset; None if none did.
        in_step: whether the other processes that train with this one take the same steps on request.
    """
    if handed is None:
        ranks = 1 if in_step else job_processes.horovod_ranks()
        return _lockstep_message(ranks, "Horovod") if ranks > 1 else ""
    facts = handed.handover()
    if facts.workers > 1 and not in_step:
        return _lockstep_message(facts.workers, facts.strategy)
    if len(tensorflow_private.host_pipelines(handed.distributed)) > 1:
        return "The script's dataset function is called once per replica: one dataset cannot replace several."
    return ""


def _lockstep_message(count: int, strategy: str) -> str:
    return f"{count} processes train in lockstep under {strategy}: one process alone cannot switch to another input."


def _around_dataset(hooks: Hooks, original: Any, strategy: Any, dataset: Any, options: Any = None) -> Any:
    made = original(strategy, dataset, options)
    if not isinstance(made, tensorflow_private.DistributedDataset):
        return made  # the default strategy returns its argument
    if hooks.distributed_input is not None:  # Keras, called with a variant: its steps must equal the script's own
        if hooks.distributed_input.distributed is not None:
            tensorflow_private.copy_partial_batch_handling(made, hooks.distributed_input.distributed)
    elif _called_by_script(hooks) and _is_eager_dataset(dataset):
        _record_distribution(hooks, DistributedInput(strategy, dataset, made, DATASET, options))
    return made


def _around_function(hooks: Hooks, original: Any, strategy: Any, dataset_fn: Any, options: Any = None) -> Any:
    """Records the pipeline that the script's dataset function builds; of several datasets, the last represents all."""
    if not _called_by_script(hooks):
        return original(strategy, dataset_fn, options)
    given: list[Any] = []

    def seen(context: Any) -> Any:
        given.append(dataset_fn(context))
        return given[-1]

    made = original(strategy, tf.autograph.experimental.do_not_convert(seen), options)
    if isinstance(made, tensorflow_private.DistributedDatasetFromFunction) and given and _is_eager_dataset(given[-1]):
        _record_distribution(hooks, DistributedInput(strategy, given[-1], made, FUNCTION, options))
    return made


def _around_values(hooks: Hooks, original: Any, strategy: Any, value_fn: Any) -> Any:
    note = (
        f"{type(strategy).__name__}.{_VALUES} was given a Python function that returns the value for each "
        "replica, not a tf.data.Dataset"
    )
    if _called_by_script(hooks) and note not in hooks.notes:
        hooks.notes.append(note)
    return original(strategy, value_fn)


def _around_iter(hooks: Hooks, original: Any, distributed: Any) -> Any:
    with hooks.as_role("a strategy"), Stopwatch() as making:  # it iterates its own dataset on every device
        iterator = original(distributed)
    handed = distributed_input.find_distributed_input(distributed)
    if handed is None:
        return iterator
    if not tf.executing_eagerly():
        hooks.on_function_use(handed.dataset, handed)
        return iterator
    if type(iterator) is not tensorflow_private.DistributedIterator:
        return iterator
    return hooks.observe(handed.dataset, iterator, making, ObservedDistributedIterator, handed)


def _record_distribution(hooks: Hooks, handed: DistributedInput) -> None:
    distributed_input.attach(handed)
    use = hooks.record_use(handed.dataset, "preview", f"{type(handed.strategy).__name__}.{handed.how}")
    use.distributed_input = handed
    use.sharded_across_workers = handed.how == DATASET and job_processes.is_multi_worker(handed.strategy)


def _called_by_script(hooks: Hooks) -> bool:
    """Whether the call is the script's own: neither Keras's nor pipetune's."""
    return not hooks.role() and not hooks.training_begun and tf.executing_eagerly()


def _is_eager_dataset(dataset: Any) -> bool:
    """Whether it is a dataset of eager execution, not one of a function that is being traced."""
    return isinstance(dataset, tensorflow_private.DatasetV2) and hasattr(dataset._variant_tensor, "numpy")
