"""Watches who consumes datasets in the user's script, and hands the first consumer that trains to pipetune.

Replaces `iter`, `reduce` and `tf.function` calls on datasets while the script runs; `keras_hooks` watches Keras,
`strategies` what distribution strategies are given. Nothing the script sees changes until training begins.
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
_KEPT = 50  # datasets remembered at most

Handler = Callable[[Consumption, consumers.Consumer], None]
"""Called once, where training begins. Returns for a loop, which goes on; else the script is stopped when it returns."""


def stopped() -> NoReturn:
    """Ends the script where it stands by an exception."""
    raise consumers.ScriptStopped


class Hooks:
    """Context manager: while open, `on_training` is called at the first consumer that trains."""

    def __init__(
        self,
        on_training: Handler,
        *,
        wanted: str | None = None,
        in_step: bool = False,
        on_loop: Callable[[Any], None] = lambda _dataset: None,
        stop: Callable[[], NoReturn] = stopped,
    ) -> None:
        """Takes what to do where training begins.

        Args:
            wanted: names the dataset to take for training, whatever consumes it; None: decide by use.
            in_step: every process that trains with this one is pipetune's, and takes the same steps.
            on_loop: called with a dataset before the script iterates it in Python, which may be training.
            stop: called where a thread of the script may not go on.
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
        self.handed: handing_over.HandedOver | None = None  # how the training pipeline is, once training has begun
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
        """The script keeps a place in its data, to go on there another time."""
        if not self.begun and found not in self.resuming:
            self.resuming.append(found)

    def _watch_functions(self) -> None:
        """Watches what `tf.function`s are called with; on the way of every training step, so as short as can be."""
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
        """A `tf.function` is about to be called with a dataset or an iterator."""
        if not tf.executing_eagerly():
            return
        if isinstance(value, Observed):
            self.in_function(value._pipetune_dataset, value._pipetune_handed)
            return
        handed = handing_over.of(value)
        self.in_function(value if handed is None else handed.dataset, handed)

    def in_function(self, dataset: Any, handed: handing_over.HandedOver | None = None) -> None:
        """A dataset is consumed inside a `tf.function`: nothing can be switched there."""
        if self.role() or self.begun or capture.location(dataset) is None:
            return
        if not hasattr(getattr(dataset, "_variant_tensor", None), "numpy"):
            return  # made inside the function: there is no live dataset to tune
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
        """The script's own iterator, from now on one of `kind`; as it is where others than the script consume it."""
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
        """A Python loop has taken as many elements as one that trains."""
        if self.begun:
            return
        use.role, use.how, use.handed = "training", "a Python loop", handed
        why = strategies.why_not_switched(handed, in_step=self.in_step)
        if why:
            self.begin(use, consumers.NoConsumer(why))
            self.stop()
        self.loop = loop_consumer.LoopConsumer(handed, taken=use.elements)
        self.begin(use, self.loop)

    # -- what is known

    def begin(self, use: Consumption, consumer: consumers.Consumer) -> None:
        """Training begins here."""
        self.begun, self.handed = True, use.handed
        self._on_training(use, consumer)

    def note(self, dataset: Any, role: str, how: str) -> Consumption:
        """What is known of the use of a dataset, with the user's place in the script that uses it now."""
        use: Consumption | None = getattr(dataset, _USE, None)
        if use is None:
            use = Consumption(dataset=dataset, variable="", role=role, how=how)
            object.__setattr__(dataset, _USE, use)
        elif role != "training" and use.role != "preview":
            return self._remember(use)  # what it is for is known already
        elif role != "preview":
            use.role, use.how = role, how
        frame, _ = capture.user_frame(sys._getframe(1))  # of the last use: a look comes before training
        if frame is not None:
            use.variable = name_in(frame, dataset) or use.variable
            use.file, use.line = frame.f_code.co_filename, frame.f_lineno
            use.path = capture.path_from(frame)
        return self._remember(use)

    def _remember(self, use: Consumption) -> Consumption:
        """Keeps what the session may need: of mere previews only the most consumed, so that the rest stay free."""
        if not any(seen is use for seen in self.seen):
            self.seen.append(use)
        previews = [seen for seen in self.seen if seen.role == "preview" and seen is not use]
        most = max(previews, key=lambda seen: seen.elements, default=None)
        self.seen = [seen for seen in self.seen if seen.role != "preview" or seen is use or seen is most][-_KEPT:]
        return use

    def role(self) -> str:
        """For whom this thread consumes now: Keras's evaluation, say; '' where the script does so itself."""
        return getattr(self._context, "role", "") or ("a worker" if private.at_work_for_coordinator() else "")

    @contextlib.contextmanager
    def as_role(self, role: str) -> Iterator[None]:
        """While open, whatever is consumed on this thread is consumed for `role`."""
        before = self.role()
        self._context.role = before or role
        try:
            yield
        finally:
            self._context.role = before
