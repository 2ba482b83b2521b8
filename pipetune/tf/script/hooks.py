"""Observes how the user's script consumes datasets, and passes the first consumer that trains to pipetune.

Patches `iter`, `reduce` and `tf.function` calls on datasets while the script runs; `keras_hooks` patches Keras,
`strategies` the distribution strategies. The script behaves as without the patches until training begins.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from pipetune.core.resuming import Resuming
from pipetune.tf import private
from pipetune.tf.script import (
    capture,
    consumers,
    coordinators,
    handing_over,
    keras_hooks,
    loop_consumer,
    strategies,
)
from pipetune.tf.script.consumption import Consumption, Stopwatch, name_in, whole_call
from pipetune.tf.script.observed import TRAINS_AFTER, Consumed, Observed, ObservedIterator
from pipetune.tf.script.patches import Patches
from pipetune.tf.script.resuming import ResumeWatch
from pipetune.tf.script.turns import called_by_library, inside_workflow

_USE = "_pipetune_use"  # the attribute of a dataset that holds its Consumption
_KEPT = 50  # most datasets remembered

Handler = Callable[[Consumption, consumers.Consumer], None]
"""Called once, when training begins. When it returns, a loop continues; any other script is stopped."""


def stopped() -> NoReturn:
    """Ends the script at its current position by raising `ScriptStopped`."""
    raise consumers.ScriptStopped


class Hooks:
    """Context manager: while active, calls `on_training` for the first consumer that trains."""

    def __init__(
        self,
        on_training: Handler,
        *,
        wanted: str | None = None,
        in_step: bool = False,
        on_loop: Callable[[Any], None] = lambda _dataset: None,
        stop: Callable[[], NoReturn] = stopped,
    ) -> None:
        """Creates the hooks; entering the context installs them.

        Args:
            on_training: called when training begins.
            wanted: name of the dataset to treat as training data, whatever consumes it; None: decide by use.
            in_step: every process that trains with this one runs under pipetune, and takes the same steps.
            on_loop: called with a dataset before the script iterates it in Python, which may be training.
            stop: called where a thread of the script must not continue; does not return.
        """
        self._on_training = on_training
        self.on_loop, self.stop = on_loop, stop
        self._context = threading.local()
        self.wanted = wanted
        self.in_step = in_step
        self.patches = Patches()
        self.seen: list[Consumption] = []
        self.loop: loop_consumer.LoopConsumer | None = None
        self.begun = False
        self.handed: handing_over.HandedOver | None = None  # how the training dataset is distributed, if it is
        self.notes: list[str] = []
        self.resuming: list[Resuming] = []

    # -- opening and closing

    def __enter__(self) -> Hooks:
        self.patches.wrap(private.DatasetV2, "__iter__", self._around_iter)
        self.patches.wrap(private.DatasetV2, "reduce", self._around_reduce)
        strategies.watch(self)
        coordinators.watch(self)
        self._watch_functions()
        keras_hooks.watch(self)
        self.patches.at_the_end(ResumeWatch(self.resumes).__enter__().__exit__)
        return self

    def __exit__(self, *_error: object) -> None:
        self.patches.put_back()

    def resumes(self, found: Resuming) -> None:
        """Records that the script saves its position in the data, to resume there in another run."""
        if not self.begun and found not in self.resuming:
            self.resuming.append(found)

    def _watch_functions(self) -> None:
        """Inspects the arguments of all `tf.function` calls; runs in every training step, so it is kept minimal."""
        original = polymorphic_function.Function.__call__
        before = self._before_function
        consumed = Consumed()

        @functools.wraps(original)
        def called(function: Any, *args: Any, **kwargs: Any) -> Any:
            for value in args:
                if consumed[value.__class__]:
                    before(value)
            if kwargs:
                for value in kwargs.values():
                    if consumed[value.__class__]:
                        before(value)
            return original(function, *args, **kwargs)

        self.patches.replace(polymorphic_function.Function, "__call__", private.never_converted(called))

    # -- what is intercepted

    def _around_iter(self, original: Any, dataset: Any) -> Any:
        if not tf.executing_eagerly():
            iterator = original(dataset)
            self.in_function(dataset)
            return iterator
        if not self.role() and not inside_workflow():
            self.on_loop(dataset)
        with Stopwatch() as making:
            iterator = original(dataset)
        if type(iterator) is not private.OwnedIterator:
            return iterator
        return self.observe(dataset, iterator, making, ObservedIterator)

    def _around_reduce(self, original: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            self.in_function(dataset)
        elif not self.role() and not called_by_library():
            with whole_call([self.note(dataset, "other", "Dataset.reduce")]):
                return original(dataset, *args, **kwargs)
        return original(dataset, *args, **kwargs)

    def _before_function(self, value: Any) -> None:
        """Called with each dataset or iterator that is about to be passed to a `tf.function`."""
        if not tf.executing_eagerly():
            return
        if isinstance(value, Observed):
            self.in_function(value._pipetune_dataset, value._pipetune_handed)
            return
        handed = handing_over.of(value)
        self.in_function(value if handed is None else handed.dataset, handed)

    def in_function(self, dataset: Any, handed: handing_over.HandedOver | None = None) -> None:
        """Handles a dataset that is consumed inside a `tf.function`, where no other can take its place."""
        if self.role() or self.begun or capture.location(dataset) is None:
            return
        if not hasattr(getattr(dataset, "_variant_tensor", None), "numpy"):
            return  # created inside the function: there is no live dataset to tune
        with tf.init_scope():
            use = self.note(dataset, "training", "a tf.function")
            use.handed = handed
            if self.wanted is None or use.name == self.wanted:
                why = "The dataset is consumed inside a tf.function, where no other input can be served."
                self.begin(use, consumers.NoConsumer(why))
                self.stop()

    # -- iterators of Python loops

    def observe(
        self,
        dataset: Any,
        iterator: Any,
        making: Stopwatch,
        kind: type[Any],
        handed: handing_over.HandedOver | None = None,
    ) -> Any:
        """Turns the script's iterator into one of class `kind`; unchanged if the script does not consume it itself.

        Args:
            dataset: the dataset that is iterated.
            iterator: its new iterator.
            making: the stopwatch around the creation of the iterator.
            kind: `ObservedIterator` or `ObservedDistributedIterator`.
            handed: how a strategy distributed the dataset; None if none did.
        """
        if self.role() or inside_workflow():
            return iterator
        use = self.note(dataset, "preview", "iter")
        making.charge(use)
        iterator.__class__ = kind
        iterator._pipetune_hooks, iterator._pipetune_use, iterator._pipetune_dataset = self, use, dataset
        iterator._pipetune_handed = handed
        iterator._pipetune_trains_after = TRAINS_AFTER if self.wanted in (None, use.name) else math.inf
        return iterator

    def took(self, use: Consumption, handed: handing_over.HandedOver | None) -> None:
        """Begins training: a Python loop has taken enough elements (`TRAINS_AFTER`) to count as training."""
        if self.begun:
            return
        use.role, use.how, use.handed = "training", "a Python loop", handed
        why = strategies.why_not_switched(handed, in_step=self.in_step)
        if why:
            self.begin(use, consumers.NoConsumer(why))
            self.stop()
        self.loop = loop_consumer.LoopConsumer(handed, taken=use.elements)
        self.begin(use, self.loop)

    # -- recorded uses

    def begin(self, use: Consumption, consumer: consumers.Consumer) -> None:
        """Marks the start of training and calls the handler."""
        self.begun, self.handed = True, use.handed
        self._on_training(use, consumer)

    def note(self, dataset: Any, role: str, how: str) -> Consumption:
        """Returns the record of a dataset's use, updated with its role and the current location in the script."""
        use: Consumption | None = getattr(dataset, _USE, None)
        if use is None:
            use = Consumption(dataset=dataset, variable="", role=role, how=how)
            object.__setattr__(dataset, _USE, use)
        elif role != "training" and use.role != "preview":
            return self._remember(use)  # its role is known already
        elif role != "preview":
            use.role, use.how = role, how
        frame, _ = capture.user_frame(sys._getframe(1))  # location of the last use: a preview comes before training
        if frame is not None:
            use.variable = name_in(frame, dataset) or use.variable
            use.file, use.line = frame.f_code.co_filename, frame.f_lineno
            use.path = capture.path_from(frame)
        return self._remember(use)

    def _remember(self, use: Consumption) -> Consumption:
        """Keeps the uses that the session may need: of other previews only the most consumed; the rest can be freed."""
        if not any(seen is use for seen in self.seen):
            self.seen.append(use)
        previews = [seen for seen in self.seen if seen.role == "preview" and seen is not use]
        most = max(previews, key=lambda seen: seen.elements, default=None)
        self.seen = [seen for seen in self.seen if seen.role != "preview" or seen is use or seen is most][-_KEPT:]
        return use

    def role(self) -> str:
        """Returns on whose behalf this thread consumes now, such as Keras's evaluation; '' for the script itself."""
        return getattr(self._context, "role", "") or ("a worker" if private.at_work_for_coordinator() else "")

    @contextlib.contextmanager
    def as_role(self, role: str) -> Iterator[None]:
        """Context manager: what is consumed on this thread counts as consumed for `role`; the outermost role wins."""
        before = self.role()
        self._context.role = before or role
        try:
            yield
        finally:
            self._context.role = before
