"""The hooks in TensorFlow and Keras by which a script is observed: iterators, strategies, functions, checkpoints."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import coordinators, distributed_input, job_processes, keras
from pipetune.capture.consumption import Stopwatch, whole_call_stopwatch
from pipetune.capture.distributed_input import DistributedInput
from pipetune.capture.function_consumer import FunctionCall
from pipetune.capture.observed_iterators import ObservedDistributedIterator, ObservedIterator, observe
from pipetune.capture.observed_script import ObservedScript
from pipetune.core.distribution import DATASET, FUNCTION
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import called_by_library, inside_workflow
from pipetune.tensorflow_private import RUN_FUNCTION

_executing_eagerly = tf.executing_eagerly
_HANDLES = (tf.variant, tf.resource)  # types of the tensors that datasets and iterators consist of


@contextlib.contextmanager
def installed(script: ObservedScript) -> Iterator[ObservedScript]:
    """Context manager: while open, all that the script does with its datasets is observed; yields `script`."""
    script.wrap(tensorflow_private.DatasetV2, "__iter__", _around_iter)
    script.wrap(tensorflow_private.DatasetV2, "reduce", _around_reduce)
    _watch_strategies(script)
    coordinators.watch(script)
    _watch_functions(script)
    keras.watch(script)
    _watch_resuming(script)
    try:
        yield script
    finally:
        script.close()


def _watch_functions(script: ObservedScript) -> None:
    """Watches for functions that take elements themselves; runs in every training step, so it is kept minimal."""
    run, seen = getattr(tensorflow_private.ConcreteFunction, RUN_FUNCTION), weakref.WeakSet[Any]()

    @functools.wraps(run)
    def running(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        if not script.training_begun and _executing_eagerly():
            given = any(one.dtype in _HANDLES for one in tensor_inputs)
            if given or function not in seen:  # what a function captures stays the same
                seen.add(function)
                script.on_function_call(FunctionCall(function, run, tensor_inputs, captured_inputs))
        return run(function, tensor_inputs, captured_inputs)

    script.patches.replace(tensorflow_private.ConcreteFunction, RUN_FUNCTION, running)


def _around_iter(script: ObservedScript, original: Any, dataset: Any) -> Any:
    if not tf.executing_eagerly():
        return original(dataset)
    if not script.role() and not inside_workflow():
        script.on_iteration(dataset)
    with Stopwatch() as making:
        iterator = original(dataset)
    if type(iterator) is not tensorflow_private.OwnedIterator:
        return iterator
    return observe(script, dataset, iterator, making, ObservedIterator)


def _around_reduce(script: ObservedScript, original: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
    if tf.executing_eagerly() and not script.role() and not called_by_library():
        with whole_call_stopwatch([script.record_use(dataset, "other", "Dataset.reduce")]):
            return original(dataset, *args, **kwargs)
    return original(dataset, *args, **kwargs)


_VALUES = "experimental_distribute_values_from_function"


def _watch_strategies(script: ObservedScript) -> None:
    """Sees how the script passes its datasets to a distribution strategy, and who consumes the distributed ones."""
    script.wrap(tensorflow_private.Strategy, DATASET, _around_distribution)
    script.wrap(tensorflow_private.Strategy, FUNCTION, _around_dataset_function)
    script.wrap(tf.distribute.Strategy, _VALUES, _around_values)
    for owner in (tensorflow_private.DistributedDataset, tensorflow_private.DistributedDatasetFromFunction):
        script.wrap(owner, "__iter__", _around_distributed_iter)


def _around_distribution(
    script: ObservedScript, original: Any, strategy: Any, dataset: Any, options: Any = None
) -> Any:
    made = original(strategy, dataset, options)
    if not isinstance(made, tensorflow_private.DistributedDataset):
        return made  # the default strategy returns its argument
    if script.distributed_input is not None:  # Keras, called with a variant: its steps must equal the script's own
        if script.distributed_input.distributed is not None:
            tensorflow_private.copy_partial_batch_handling(made, script.distributed_input.distributed)
    elif _called_by_script(script) and _is_eager_dataset(dataset):
        _record_distribution(script, DistributedInput(strategy, dataset, made, DATASET, options))
    return made


def _around_dataset_function(
    script: ObservedScript, original: Any, strategy: Any, dataset_fn: Any, options: Any = None
) -> Any:
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


def _around_distributed_iter(script: ObservedScript, original: Any, distributed: Any) -> Any:
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


_ITERATORS = (tf.data.Iterator, tensorflow_private.NumpyIterator, tf.distribute.DistributedIterator)


def _watch_resuming(script: ObservedScript) -> None:
    """Sees how the script resumes where an earlier run stopped: checkpoints with an iterator, and saved iterators.

    What the pipeline itself shows (`skip`, ids) is found in `pipelines/resume_points.py`.
    """
    for name in ("__init__", "save", "write", "read", "restore"):
        script.wrap(tf.train.Checkpoint, name, _around_checkpoint)
    for name in ("save", "restore"):
        script.wrap(tensorflow_private.NumpyIterator, name, _around_saved_iterator)


def _around_checkpoint(script: ObservedScript, original: Any, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(checkpoint, *args, **kwargs)
    for name, value in _saved_objects(checkpoint):
        if isinstance(value, _ITERATORS):
            _record_resuming(script, f"tf.train.Checkpoint({name}=...)")
    return result


def _around_saved_iterator(script: ObservedScript, original: Any, iterator: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(iterator, *args, **kwargs)
    _record_resuming(script, f"iterator.{original.__name__}()")
    return result


def _record_resuming(script: ObservedScript, what: str) -> None:
    frame, _ = call_sites.user_frame(sys._getframe(1))
    file, line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
    script.record_resuming(ResumePoint(ResumeMethod.ITERATOR_STATE, what, file, line))


def _saved_objects(checkpoint: Any) -> Iterator[tuple[str, Any]]:
    """Yields what a checkpoint saves, with its name there; two levels deep."""
    for name, value in _attributes(checkpoint):
        yield name, value
        yield from _attributes(value)


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, _ITERATORS):
        return ()
    if isinstance(value, Mapping):
        return [(str(name), one) for name, one in value.items()]
    if isinstance(value, tuple | list):
        return [(str(position), one) for position, one in enumerate(value)]
    return [(name, one) for name, one in getattr(value, "__dict__", {}).items() if not name.startswith("_")]
