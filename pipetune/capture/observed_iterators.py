"""The script's own iterators: they count elements and, once training has begun, serve pipetune's windows."""

from __future__ import annotations

import math
import sys
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.consumption import Consumption, Reading, Stopwatch
from pipetune.capture.distributed_input import DistributedInput
from pipetune.capture.early_ends import way_out
from pipetune.capture.observed_script import ObservedScript
from pipetune.capture.rebuilding import is_read_once
from pipetune.capture.training_signs import FIRST_ELEMENTS
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import inside_workflow, running_workflow
from pipetune.timing.iterators import release

_executing_eagerly = tf.executing_eagerly


class ObservedIterator(tensorflow_private.OwnedIterator):
    """Iterator of a dataset."""

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
        if use.elements >= self._pipetune_trains_after:
            self._pipetune_trains_after = script.on_loop_elements(use, self._pipetune_distributed_input)
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
            if own or (alike and script.is_built_in_training(self._pipetune_dataset)):  # what a later epoch builds
                release(self)  # it would keep filling buffers during trials
                with running_workflow():  # the window's own iterator is not the script's
                    element = script.loop.next_element()
                if script.training_use is not None:
                    script.training_use.readings.add(self._pipetune_reading)
                return element
            if alike:  # a loop may read several datasets of one call in turn
                script.streams_alike.add(id(self._pipetune_dataset))
        element = self._take()
        self._pipetune_use.elements += 1
        return element

    def next(self) -> Any:
        """Returns the next element."""
        return self.__next__()

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
    next = ObservedIterator.next
    get_next = ObservedIterator.get_next
    get_next_as_optional = ObservedIterator.get_next_as_optional

    def _take(self) -> Any:
        try:
            return self._base.get_next(self)
        except tf.errors.OutOfRangeError:
            raise StopIteration from None


_READ_BY = frozenset({"_around_iter", "_around_distributed_iter", "as_numpy_iterator"})
"""What a script's own frame calls to make an iterator, for `hooks` and TensorFlow."""


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
    if caller is not None and called in _READ_BY:  # iterated by the script, not by a library, which may do it again
        use.epochs_certain = is_read_once(caller, data=use.variable)
        use.epochs = 1 if use.epochs_certain else None
    use.loop = next(script.loop_numbers)
    iterator.__class__ = kind
    script.iterators.add(iterator)
    if not script.training_begun:  # else in a step that may be measured
        use.readings.way_out, use.readings.surely = way_out(use.call_path, caller)
    iterator._pipetune_reading = Reading()
    iterator._pipetune_script, iterator._pipetune_use, iterator._pipetune_dataset = script, use, dataset
    iterator._pipetune_distributed_input = handed
    iterator._pipetune_trains_after = FIRST_ELEMENTS if script.target_dataset in (None, use.name) else math.inf
    return iterator


def _made_by_the_same_call(script: ObservedScript, iterator: ObservedIterator) -> bool:
    """Whether the call that made the training data has made the dataset of an iterator, too."""
    built, training = call_sites.location(iterator._pipetune_use.dataset), script.training_use
    return training is not None and built is not None and built == call_sites.location(training.dataset)
