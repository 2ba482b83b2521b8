"""Observes how a script passes its datasets to a distribution strategy, and who consumes the distributed datasets."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from pipetune.core.handover import DATASET, FIT, FUNCTION
from pipetune.tf import private
from pipetune.tf.script import handing_over, workers
from pipetune.tf.script.consumption import Stopwatch
from pipetune.tf.script.handing_over import HandedOver
from pipetune.tf.script.observed import ObservedDistributedIterator

if TYPE_CHECKING:
    from pipetune.tf.script.hooks import Hooks

_VALUES = "experimental_distribute_values_from_function"


def watch(hooks: Hooks) -> None:
    """Hooks every strategy until the patches are undone."""
    patches = hooks.patches
    patches.wrap(private.Strategy, DATASET, functools.partial(_around_dataset, hooks))
    patches.wrap(private.Strategy, FUNCTION, functools.partial(_around_function, hooks))
    patches.wrap(tf.distribute.Strategy, _VALUES, functools.partial(_around_values, hooks))
    for owner in (private.DistributedDataset, private.DistributedFromFunction):
        patches.wrap(owner, "__iter__", functools.partial(_around_iter, hooks))


def taken_by_fit(strategy: Any, dataset: Any) -> HandedOver | None:
    """Distributes `dataset` as Keras does under a strategy; None if there is none, or if it distributes nothing."""
    if strategy is None or private.is_default(strategy):
        return None
    made = strategy.experimental_distribute_dataset(dataset)
    return HandedOver(strategy, dataset, made, FIT) if isinstance(made, private.DistributedDataset) else None


def why_not_switched(handed: HandedOver | None, *, in_step: bool = False) -> str:
    """Returns why no other dataset can be distributed in the same way; '' if one can.

    Args:
        handed: how a strategy distributed the script's dataset; None if none did.
        in_step: the other processes that train with this one do what it does.
    """
    if handed is None:
        ranks = 1 if in_step else workers.ranks()
        return _one_of_many(ranks, "Horovod") if ranks > 1 else ""
    facts = handed.facts()
    if facts.workers > 1 and not in_step:
        return _one_of_many(facts.workers, facts.strategy)
    if len(private.host_pipelines(handed.distributed)) > 1:
        return "The script's dataset function is called for each replica: one dataset cannot take the place of several."
    return ""


def _one_of_many(count: int, strategy: str) -> str:
    return f"{count} processes train in step under {strategy}: no other input can be served by one of them alone."


def _around_dataset(hooks: Hooks, original: Any, strategy: Any, dataset: Any, options: Any = None) -> Any:
    made = original(strategy, dataset, options)
    if not isinstance(made, private.DistributedDataset):
        return made  # the default strategy returns its argument
    if hooks.handed is not None:  # Keras, called with a variant: its steps must do what the script's own do
        if hooks.handed.distributed is not None:
            private.handle_partial_batches_like(made, hooks.handed.distributed)
    elif _script_at_work(hooks) and _live(dataset):
        _hand_over(hooks, HandedOver(strategy, dataset, made, DATASET, options))
    return made


def _around_function(hooks: Hooks, original: Any, strategy: Any, dataset_fn: Any, options: Any = None) -> Any:
    """Notes the pipeline that the script's dataset function builds; of several datasets, the last represents all."""
    if not _script_at_work(hooks):
        return original(strategy, dataset_fn, options)
    given: list[Any] = []

    def seen(context: Any) -> Any:
        given.append(dataset_fn(context))
        return given[-1]

    made = original(strategy, tf.autograph.experimental.do_not_convert(seen), options)
    if isinstance(made, private.DistributedFromFunction) and given and _live(given[-1]):
        _hand_over(hooks, HandedOver(strategy, given[-1], made, FUNCTION, options))
    return made


def _around_values(hooks: Hooks, original: Any, strategy: Any, value_fn: Any) -> Any:
    note = (
        f"{type(strategy).__name__}.{_VALUES} was given a Python function that makes the value of each replica, "
        "which is no tf.data.Dataset"
    )
    if _script_at_work(hooks) and note not in hooks.notes:
        hooks.notes.append(note)
    return original(strategy, value_fn)


def _around_iter(hooks: Hooks, original: Any, distributed: Any) -> Any:
    with hooks.as_role("a strategy"), Stopwatch() as making:  # it iterates its own dataset on every device
        iterator = original(distributed)
    handed = handing_over.of(distributed)
    if handed is None:
        return iterator
    if not tf.executing_eagerly():
        hooks.in_function(handed.dataset, handed)
        return iterator
    if type(iterator) is not private.DistributedIterator:
        return iterator
    return hooks.observe(handed.dataset, iterator, making, ObservedDistributedIterator, handed)


def _hand_over(hooks: Hooks, handed: HandedOver) -> None:
    handing_over.remember(handed)
    use = hooks.note(handed.dataset, "preview", f"{type(handed.strategy).__name__}.{handed.how}")
    use.handed = handed
    use.across_workers = handed.how == DATASET and workers.across(handed.strategy)


def _script_at_work(hooks: Hooks) -> bool:
    """Whether the call is the script's own: neither Keras's nor pipetune's."""
    return not hooks.role() and not hooks.begun and tf.executing_eagerly()


def _live(dataset: Any) -> bool:
    """Whether it is a dataset of eager execution, not one of a function that is being traced."""
    return isinstance(dataset, private.DatasetV2) and hasattr(dataset._variant_tensor, "numpy")
