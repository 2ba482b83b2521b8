"""The hooks in TensorFlow and Keras by which a script is observed."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import coordinators, keras, resume_detection, strategies
from pipetune.capture.consumption import Stopwatch, whole_call_stopwatch
from pipetune.capture.function_consumer import FunctionCall
from pipetune.capture.observed_iterators import ObservedIterator, observe
from pipetune.capture.observed_script import ObservedScript
from pipetune.pipelines.call_sites import called_by_library, inside_workflow
from pipetune.tensorflow_private import RUN_FUNCTION

_executing_eagerly = tf.executing_eagerly
_HANDLES = (tf.variant, tf.resource)  # types of the tensors that datasets and iterators consist of


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
