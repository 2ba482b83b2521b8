"""The script's own iterators: they count elements and, once training has begun, serve pipetune's windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.script import capture
from pipetune.tf.script.consumption import Consumption, Stopwatch
from pipetune.tf.script.objects import HELD
from pipetune.tf.script.turns import inside_workflow, workflow_at_work

if TYPE_CHECKING:
    from pipetune.tf.script.handing_over import HandedOver
    from pipetune.tf.script.hooks import Hooks

TRAINS_AFTER = 20
"""Elements a Python loop must have taken before it counts as training."""

_executing_eagerly = tf.executing_eagerly


class ObservedIterator(private.OwnedIterator):
    """Iterator of a dataset."""

    _pipetune_hooks: Hooks
    _pipetune_use: Consumption
    _pipetune_dataset: Any
    _pipetune_handed: HandedOver | None  # how a strategy distributed the dataset
    _pipetune_trains_after: float
    _own = private.OwnedIterator
    _take = private.OwnedIterator.__next__
    _released = HELD[_own]

    # Existing iterators get this class through `__class__`: no other base is allowed (CPython compares layouts).

    def __next__(self) -> Any:  # runs before every training step: kept minimal
        hooks = self._pipetune_hooks
        if hooks.begun or not _executing_eagerly():
            return self._next_elsewhere(hooks)
        use = self._pipetune_use
        if use.elements < TRAINS_AFTER:
            if use.elements == 0:
                hooks.on_loop(use.dataset)
            with Stopwatch(use):
                element = self._take()
        else:
            element = self._take()
        use.elements += 1
        if use.elements >= self._pipetune_trains_after:
            hooks.took(use, self._pipetune_handed)
        return element

    def _next_elsewhere(self, hooks: Hooks) -> Any:
        """Handles `next` while a function is traced, or once training has begun."""
        if not tf.executing_eagerly():
            hooks.in_function(self._pipetune_dataset, self._pipetune_handed)
            return self._own.__next__(self)
        if not inside_workflow():
            if hooks.loop is not None and _same_source(hooks, self._pipetune_use):
                self._release()
                with workflow_at_work():  # the window's own iterator is not the script's
                    return hooks.loop.next_element()
            if hooks.loop is None:
                hooks.stop()
        element = self._take()
        self._pipetune_use.elements += 1
        return element

    def next(self) -> Any:
        return self.__next__()

    def get_next(self, *name: str) -> Any:
        if not tf.executing_eagerly():
            return self._own.get_next(self, *name)
        try:
            return self.__next__()
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self) -> Any:
        if not tf.executing_eagerly():
            return self._own.get_next_as_optional(self)
        try:
            return tf.experimental.Optional.from_value(self.__next__())
        except StopIteration:
            return tf.experimental.Optional.empty(self.element_spec)

    def _release(self) -> None:
        """Frees the runtime's iterator behind this one: it would keep filling buffers during trials."""
        for name in self._released:
            setattr(self, name, None)


class ObservedDistributedIterator(private.DistributedIterator):
    """Iterator of a dataset that a strategy distributed: each element holds one part per replica."""

    _pipetune_hooks: Hooks
    _pipetune_use: Consumption
    _pipetune_dataset: Any
    _pipetune_handed: HandedOver | None
    _pipetune_trains_after: float
    _own = private.DistributedIterator
    _released = HELD[_own]

    __next__ = ObservedIterator.__next__
    _next_elsewhere = ObservedIterator._next_elsewhere
    next = ObservedIterator.next
    get_next = ObservedIterator.get_next
    get_next_as_optional = ObservedIterator.get_next_as_optional
    _release = ObservedIterator._release

    def _take(self) -> Any:
        try:
            return self._own.get_next(self)
        except tf.errors.OutOfRangeError:
            raise StopIteration from None


Observed = ObservedIterator | ObservedDistributedIterator


class Consumed(dict[type, bool]):
    """Maps a class to whether its values are datasets, distributed or not, or observed iterators; a cache."""

    _KINDS = private.DatasetV2 | Observed | private.DistributedDataset | private.DistributedFromFunction

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, self._KINDS)
        return self[kind]


def _same_source(hooks: Hooks, use: Consumption) -> bool:
    training = next((seen for seen in hooks.seen if seen.role == "training"), None)
    return training is use or (
        training is not None
        and capture.location(training.dataset) is not None
        and capture.location(training.dataset) == capture.location(use.dataset)
    )
