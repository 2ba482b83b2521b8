"""Observes how a script passes its datasets to a distribution strategy, and who consumes the distributed datasets."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import distributed_input, job_processes
from pipetune.capture.consumption import Stopwatch
from pipetune.capture.distributed_input import DistributedInput
from pipetune.capture.observed_iterators import ObservedDistributedIterator, observe
from pipetune.capture.observed_script import ObservedScript
from pipetune.core.distribution import DATASET, FUNCTION

_VALUES = "experimental_distribute_values_from_function"


def watch(script: ObservedScript) -> None:
    """Hooks every strategy until the patches are undone."""
    patches = script.patches
    patches.wrap(tensorflow_private.Strategy, DATASET, functools.partial(_around_dataset, script))
    patches.wrap(tensorflow_private.Strategy, FUNCTION, functools.partial(_around_function, script))
    patches.wrap(tf.distribute.Strategy, _VALUES, functools.partial(_around_values, script))
    for owner in (tensorflow_private.DistributedDataset, tensorflow_private.DistributedDatasetFromFunction):
        patches.wrap(owner, "__iter__", functools.partial(_around_iter, script))


def _around_dataset(script: ObservedScript, original: Any, strategy: Any, dataset: Any, options: Any = None) -> Any:
    made = original(strategy, dataset, options)
    if not isinstance(made, tensorflow_private.DistributedDataset):
        return made  # the default strategy returns its argument
    if script.distributed_input is not None:  # Keras, called with a variant: its steps must equal the script's own
        if script.distributed_input.distributed is not None:
            tensorflow_private.copy_partial_batch_handling(made, script.distributed_input.distributed)
    elif _called_by_script(script) and _is_eager_dataset(dataset):
        _record_distribution(script, DistributedInput(strategy, dataset, made, DATASET, options))
    return made


def _around_function(script: ObservedScript, original: Any, strategy: Any, dataset_fn: Any, options: Any = None) -> Any:
    """Records the pipeline that the script's dataset function builds; of several datasets, the last represents all."""
    if not _called_by_script(script):
        return original(strategy, dataset_fn, options)
    given: list[Any] = []

    def seen(context: Any) -> Any:
        given.append(dataset_fn(context))
        return given[-1]

    made = original(strategy, tf.autograph.experimental.do_not_convert(seen), options)
    if isinstance(made, tensorflow_private.DistributedDatasetFromFunction) and given and _is_eager_dataset(given[-1]):
        _record_distribution(script, DistributedInput(strategy, given[-1], made, FUNCTION, options))
    return made


def _around_values(script: ObservedScript, original: Any, strategy: Any, value_fn: Any) -> Any:
    note = (
        f"{type(strategy).__name__}.{_VALUES} was given a Python function that returns the value for each "
        "replica, not a tf.data.Dataset"
    )
    if _called_by_script(script) and note not in script.notes:
        script.notes.append(note)
    return original(strategy, value_fn)


def _around_iter(script: ObservedScript, original: Any, distributed: Any) -> Any:
    with script.as_role("a strategy"), Stopwatch() as making:  # it iterates its own dataset on every device
        iterator = original(distributed)
    handed = distributed_input.find_distributed_input(distributed)
    if handed is None or not tf.executing_eagerly():
        return iterator
    if type(iterator) is not tensorflow_private.DistributedIterator:
        return iterator
    return observe(script, handed.dataset, iterator, making, ObservedDistributedIterator, handed)


def _record_distribution(script: ObservedScript, handed: DistributedInput) -> None:
    distributed_input.attach(handed)
    script.distributed.add(handed.distributed)
    use = script.record_use(handed.dataset, "preview", f"{type(handed.strategy).__name__}.{handed.how}")
    use.distributed_input = handed
    use.sharded_across_workers = handed.how == DATASET and job_processes.is_multi_worker(handed.strategy)


def _called_by_script(script: ObservedScript) -> bool:
    """Whether the call is the script's own: neither Keras's nor pipetune's."""
    return not script.role() and not script.training_begun and tf.executing_eagerly()


def _is_eager_dataset(dataset: Any) -> bool:
    """Whether it is a dataset of eager execution, not one of a function that is being traced."""
    return isinstance(dataset, tensorflow_private.DatasetV2) and hasattr(dataset._variant_tensor, "numpy")
