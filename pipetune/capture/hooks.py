"""The hooks in TensorFlow and Keras by which a script is observed: iterators, strategies, functions, checkpoints."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import coordinators, distributed_input, job_processes, keras, written_files
from pipetune.capture.consumption import FIRST_ELEMENTS, Consumption, Reading, Stopwatch, whole_call_stopwatch
from pipetune.capture.distributed_input import DistributedInput
from pipetune.capture.early_ends import way_out
from pipetune.capture.function_consumer import FunctionCall
from pipetune.capture.observed_script import ObservedScript
from pipetune.capture.rebuilding import is_read_once
from pipetune.core.distribution import DATASET, FUNCTION
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import called_by_library, inside_workflow, running_workflow
from pipetune.tensorflow_private import RUN_FUNCTION
from pipetune.timing.iterators import release

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
    _observed.add(script)
    try:
        yield script
    finally:
        _observed.discard(script)
        script.close()


_observed: weakref.WeakSet[ObservedScript] = weakref.WeakSet()  # while their hooks are installed


def _leave_child_alone() -> None:
    """Removes the hooks in a child process that the script has forked: it has no thread that would measure in it."""
    for script in list(_observed):
        script.loop = None
        script.close()


os.register_at_fork(after_in_child=_leave_child_alone)


def _watch_functions(script: ObservedScript) -> None:
    """Watches for functions that take elements themselves; runs in every training step, so it is kept minimal."""
    run, seen = getattr(tensorflow_private.ConcreteFunction, RUN_FUNCTION), weakref.WeakSet[Any]()
    takes_datasets = weakref.WeakKeyDictionary[Any, bool]()

    @functools.wraps(run)
    def running(function: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        new = function not in takes_datasets
        if new:
            takes_datasets[function] = any(one.dtype == tf.variant for one in (*tensor_inputs, *captured_inputs))
        if takes_datasets[function] and _executing_eagerly():
            _report_caches_of((*tensor_inputs, *captured_inputs), searching=new)
        if not script.training_begun and _executing_eagerly():
            given = any(one.dtype in _HANDLES for one in tensor_inputs)
            if given or function not in seen:  # what a function captures stays the same
                seen.add(function)
                script.on_function_call(FunctionCall(function, run, tensor_inputs, captured_inputs))
        return run(function, tensor_inputs, captured_inputs)

    script.patches.replace(tensorflow_private.ConcreteFunction, RUN_FUNCTION, running)


def _report_caches_of(tensors: Iterable[Any], *, searching: bool) -> None:
    """Reports the caches in files that a function may fill, of the datasets among what it is given.

    Those that were built before any were recorded, in other cells, are found by searching all objects.
    """
    given = (one for one in tensors if one.dtype == tf.variant)
    for dataset in call_sites.datasets_of(given, recorded=not searching):
        if dataset is not None:
            written_files.report_caches(dataset)


def _around_iter(script: ObservedScript, original: Any, dataset: Any) -> Any:
    if not tf.executing_eagerly():
        return original(dataset)
    if not script.role() and not inside_workflow():
        script.on_iteration(dataset)
    written_files.report_caches(dataset)
    with Stopwatch() as making:
        iterator = original(dataset)
    if type(iterator) is not tensorflow_private.OwnedIterator:
        return iterator
    return observe(script, dataset, iterator, making, ObservedIterator)


def _around_reduce(script: ObservedScript, original: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
    if tf.executing_eagerly():
        written_files.report_caches(dataset)
    seen = tf.executing_eagerly() and not script.role() and not called_by_library()
    with whole_call_stopwatch([script.record_use(dataset, "other", "Dataset.reduce")] if seen else []):
        return original(dataset, *args, **kwargs)


class ObservedIterator(tensorflow_private.OwnedIterator):
    _pipetune_script: ObservedScript
    _pipetune_use: Consumption
    _pipetune_dataset: Any
    _pipetune_reading: Reading
    _pipetune_distributed_input: DistributedInput | None  # how a strategy distributed the dataset
    _pipetune_trains_after: float
    _base = tensorflow_private.OwnedIterator
    _take = tensorflow_private.OwnedIterator.__next__

    # Existing iterators get this class through `__class__`: no other base is allowed (CPython compares layouts).

    def __next__(self) -> Any:  # runs before every training step: kept minimal
        script = self._pipetune_script
        if script.training_begun or not _executing_eagerly():
            return self._next_special(script)
        use = self._pipetune_use
        if use.elements < FIRST_ELEMENTS:
            if use.elements == 0:
                script.on_iteration(use.dataset)
            with Stopwatch(use):
                element = self._take()
        else:
            element = self._take()
        use.elements += 1
        self._pipetune_reading.elements += 1
        if self._pipetune_reading.elements == 2:  # more than a look at the first element
            use.passes += 1
        if use.elements >= self._pipetune_trains_after:
            taken, handed = self._pipetune_reading.elements, self._pipetune_distributed_input
            self._pipetune_trains_after = script.on_loop_elements(use, taken, handed)
        return element

    def _next_special(self, script: ObservedScript) -> Any:
        """Handles `next` while a function is traced, or once training has begun."""
        if not tf.executing_eagerly():
            return self._base.__next__(self)
        if not inside_workflow():
            if script.loop is None:
                script.stop()
            own = script.training_use is self._pipetune_use
            alike = own or _made_by_the_same_call(script, self)
            if own or (alike and script.is_built_for_later_epoch(self._pipetune_use, self._pipetune_dataset)):
                release(self)  # it would keep filling buffers during trials
                with running_workflow():  # the window's own iterator is not the script's
                    element = script.loop.next_element()
                if script.training_use is not None:
                    script.training_use.readings.add(self._pipetune_reading)
                return element
            if alike and self._pipetune_use.role != "validation":  # a loop may read several of one call
                script.reads_streams_alike = True
        element = self._take()
        self._pipetune_use.elements += 1
        return element

    def get_next(self, *name: str) -> Any:
        """Returns the next element; in a traced function, as an op called `name`.

        Raises:
            tf.errors.OutOfRangeError: there is no further element.
        """
        if not tf.executing_eagerly():
            return self._base.get_next(self, *name)
        try:
            return self.__next__()
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self) -> Any:
        """Returns the next element as a `tf.experimental.Optional`, empty if there is no further element."""
        if not tf.executing_eagerly():
            return self._base.get_next_as_optional(self)
        try:
            return tf.experimental.Optional.from_value(self.__next__())
        except StopIteration:
            return tf.experimental.Optional.empty(self.element_spec)


class ObservedDistributedIterator(tensorflow_private.DistributedIterator):
    """Iterator of a dataset that a strategy distributed: each element holds one part per replica."""

    _base = tensorflow_private.DistributedIterator

    __next__ = ObservedIterator.__next__
    _next_special = ObservedIterator._next_special
    get_next = ObservedIterator.get_next
    get_next_as_optional = ObservedIterator.get_next_as_optional

    def _take(self) -> Any:
        try:
            return self._base.get_next(self)
        except tf.errors.OutOfRangeError:
            raise StopIteration from None


_READ_BY = frozenset({"_around_iter", "_around_distributed_iter", "as_numpy_iterator"})
"""What a script's own frame calls to make an iterator, here and in TensorFlow."""


def observe(
    script: ObservedScript,
    dataset: Any,
    iterator: Any,
    making: Stopwatch,
    kind: type[Any],
    handed: DistributedInput | None = None,
) -> Any:
    """Returns the iterator, made one of class `kind`; unchanged if the script does not consume it itself.

    Args:
        dataset: the dataset that is iterated.
        iterator: its new iterator.
        making: stopwatch that measured the creation of the iterator.
        kind: `ObservedIterator` or `ObservedDistributedIterator`.
        handed: how a strategy distributed the dataset; None if none did.
    """
    if script.role() or inside_workflow():
        return iterator
    use = script.record_use(dataset, "preview", "iter")
    making.charge(use)
    caller, called = call_sites.user_frame(sys._getframe())
    if not script.training_begun:  # else in a step that may be measured
        if caller is not None and called in _READ_BY:  # by the script, not by a library, which may do it again
            use.epochs_certain = is_read_once(caller, dataset=dataset)
            use.epochs = 1 if use.epochs_certain else None
        use.readings.way_out, use.readings.surely = way_out(use.call_path, caller)
    use.loop = next(script.loop_numbers)
    iterator.__class__ = kind
    script.iterators.add(iterator)
    iterator._pipetune_reading = Reading()
    iterator._pipetune_script, iterator._pipetune_use, iterator._pipetune_dataset = script, use, dataset
    iterator._pipetune_distributed_input = handed
    iterator._pipetune_trains_after = FIRST_ELEMENTS if script.target_dataset in (None, use.name) else math.inf
    return iterator


def _made_by_the_same_call(script: ObservedScript, iterator: ObservedIterator) -> bool:
    """Whether the call that made the training data has made the dataset of an iterator, too."""
    built, training = call_sites.location(iterator._pipetune_use.dataset), script.training_use
    return training is not None and built is not None and built == call_sites.location(training.dataset)


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
    handed = distributed_input.find_distributed_input(distributed)
    if handed is not None and tf.executing_eagerly():
        written_files.report_caches(handed.dataset)
    with script.as_role("a strategy"), Stopwatch() as making:  # it iterates its own dataset on every device
        iterator = original(distributed)
    if handed is None or not tf.executing_eagerly() or type(iterator) is not tensorflow_private.DistributedIterator:
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
