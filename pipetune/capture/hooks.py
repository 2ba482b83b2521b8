"""The hooks in TensorFlow and Keras by which a script is observed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from pipetune import tensorflow_private
from pipetune.capture import coordinators, distributed_input, keras, resume_detection, strategies
from pipetune.capture.consumption import Stopwatch, whole_call_stopwatch
from pipetune.capture.observed_iterators import AnyObservedIterator, ConsumableTypes, ObservedIterator, observe
from pipetune.capture.observed_script import ObservedScript
from pipetune.pipelines.call_sites import called_by_library, inside_workflow


@contextlib.contextmanager
def installed(script: ObservedScript) -> Iterator[ObservedScript]:
    """Context manager: while open, all that the script does with its datasets is observed; yields `script`."""
    script.patches.wrap(tensorflow_private.DatasetV2, "__iter__", functools.partial(_around_iter, script))
    script.patches.wrap(tensorflow_private.DatasetV2, "reduce", functools.partial(_around_reduce, script))
    strategies.watch(script)
    coordinators.watch(script)
    _watch_functions(script)
    keras.watch(script)
    resume_detection.watch(script)
    try:
        yield script
    finally:
        script.close()


def _watch_functions(script: ObservedScript) -> None:
    """Inspects the arguments of all `tf.function` calls; runs in every training step, so it is kept minimal."""
    original = polymorphic_function.Function.__call__
    consumed = ConsumableTypes()

    @functools.wraps(original)
    def called(function: Any, *args: Any, **kwargs: Any) -> Any:
        for value in args:
            if consumed[value.__class__]:
                _before_function(script, value)
        if kwargs:
            for value in kwargs.values():
                if consumed[value.__class__]:
                    _before_function(script, value)
        return original(function, *args, **kwargs)

    script.patches.replace(polymorphic_function.Function, "__call__", tensorflow_private.without_autograph(called))


def _around_iter(script: ObservedScript, original: Any, dataset: Any) -> Any:
    if not tf.executing_eagerly():
        iterator = original(dataset)
        script.on_function_use(dataset)
        return iterator
    if not script.role() and not inside_workflow():
        script.on_iteration(dataset)
    with Stopwatch() as making:
        iterator = original(dataset)
    if type(iterator) is not tensorflow_private.OwnedIterator:
        return iterator
    return observe(script, dataset, iterator, making, ObservedIterator)


def _around_reduce(script: ObservedScript, original: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
    if not tf.executing_eagerly():
        script.on_function_use(dataset)
    elif not script.role() and not called_by_library():
        with whole_call_stopwatch([script.record_use(dataset, "other", "Dataset.reduce")]):
            return original(dataset, *args, **kwargs)
    return original(dataset, *args, **kwargs)


def _before_function(script: ObservedScript, value: Any) -> None:
    """Called with each dataset or iterator that is about to be passed to a `tf.function`."""
    if not tf.executing_eagerly():
        return
    if isinstance(value, AnyObservedIterator):
        script.on_function_use(value._pipetune_dataset, value._pipetune_distributed_input)
        return
    handed = distributed_input.find_distributed_input(value)
    script.on_function_use(value if handed is None else handed.dataset, handed)
