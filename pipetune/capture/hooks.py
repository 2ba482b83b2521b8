"""Observes how the user's script consumes datasets, and reports the first consumer that trains."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from pipetune import tensorflow_private
from pipetune.capture import (
    consumption,
    coordinators,
    distributed_input,
    keras,
    loop_consumer,
    resume_detection,
    strategies,
)
from pipetune.capture.consumption import Consumption, Stopwatch, variable_name, whole_call_stopwatch
from pipetune.capture.observed_iterators import AnyObservedIterator, ConsumableTypes, ObservedIterator
from pipetune.capture.training_signs import FIRST_ELEMENTS, TrainingSigns
from pipetune.core.results import ResumePoint
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import called_by_library, inside_workflow

Wrapper = Callable[..., Any]
"""Called in place of a method, with the original method and then the arguments of the call."""


class Patches:
    """The patches applied so far, and how to undo them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Replaces an attribute by `new`."""
        self.add_undo(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def wrap(self, owner: Any, name: str, around: Wrapper) -> None:
        """Replaces a method by a call of `around`."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        # Without the mark, AutoGraph would convert pipetune's own code while it traces the user's.
        self.replace(owner, name, tf.autograph.experimental.do_not_convert(wrapped))

    def add_undo(self, undo: Callable[[], None]) -> None:
        """Registers a callback for `undo_all`; the last one registered is called first."""
        self._undo.append(undo)

    def undo_all(self) -> None:
        """Undoes all patches."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()


_USE = "_pipetune_use"  # the attribute of a dataset that holds its Consumption
_MAX_USES = 50  # datasets remembered, at most

PREVIEW_ELEMENTS = 1
"""Elements taken by `next(iter(dataset))` or `take(1)`, only to look at them."""

TrainingHandler = Callable[[Consumption, consumption.Consumer], None]
"""Called once, when training begins. When it returns, a loop continues; any other script is stopped."""


def raise_script_stopped() -> NoReturn:
    """Ends the script at its current position.

    Raises:
        ScriptStopped: always.
    """
    raise consumption.ScriptStopped


class Hooks:
    """Context manager: while active, calls `on_training` for the first consumer that trains."""

    def __init__(
        self,
        on_training: TrainingHandler,
        *,
        target_dataset: str | None = None,
        lockstep: bool = False,
        training_loop: int | None = None,
        on_iteration: Callable[[Any], None] = lambda _dataset: None,
        stop: Callable[[], NoReturn] = raise_script_stopped,
    ) -> None:
        """Creates the hooks; entering the context installs them.

        Args:
            on_training: called when training begins.
            target_dataset: name of the dataset to treat as training data for any consumer; None: decide by use.
            lockstep: every process that trains with this one runs under pipetune, and takes the same steps.
            training_loop: which of the script's loops was found to train when it ran before, as `Consumption.loop`.
            on_iteration: called with a dataset before the script iterates it in Python, which may be training.
            stop: called when a thread of the script must not continue; does not return.
        """
        self._on_training = on_training
        self.on_iteration, self.stop = on_iteration, stop
        self._context = threading.local()
        self.target_dataset = target_dataset
        self.lockstep = lockstep
        self._training_loop, self._loops = training_loop, 0
        self.patches = Patches()
        self.uses: list[Consumption] = []
        self.loop: loop_consumer.LoopConsumer | None = None
        self.training_begun = False
        self.distributed_input: distributed_input.DistributedInput | None = None  # of the training dataset
        self.notes: list[str] = []
        self.resuming: list[ResumePoint] = []
        self._used_datasets: weakref.WeakSet[Any] = weakref.WeakSet()  # those with a record of their use
        self._observed: weakref.WeakSet[Any] = weakref.WeakSet()  # the script's iterators

    # -- opening and closing

    def __enter__(self) -> Hooks:
        self.patches.wrap(tensorflow_private.DatasetV2, "__iter__", self._around_iter)
        self.patches.wrap(tensorflow_private.DatasetV2, "reduce", self._around_reduce)
        strategies.watch(self)
        coordinators.watch(self)
        self._watch_functions()
        keras.watch(self)
        resume_detection.watch(self)
        return self

    def __exit__(self, *_error: object) -> None:
        """Removes all that was installed: a notebook goes on, with the iterators and datasets that it has."""
        self.patches.undo_all()
        for iterator in list(self._observed):
            iterator.__class__ = iterator._base
        for dataset in list(self._used_datasets):
            object.__delattr__(dataset, _USE)

    def record_resuming(self, found: ResumePoint) -> None:
        """Records that the script saves its position in the data, to resume there in another run."""
        if not self.training_begun and found not in self.resuming:
            self.resuming.append(found)

    def _watch_functions(self) -> None:
        """Inspects the arguments of all `tf.function` calls; runs in every training step, so it is kept minimal."""
        original = polymorphic_function.Function.__call__
        before = self._before_function
        consumed = ConsumableTypes()

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

        self.patches.replace(polymorphic_function.Function, "__call__", tensorflow_private.without_autograph(called))

    # -- what is intercepted

    def _around_iter(self, original: Any, dataset: Any) -> Any:
        if not tf.executing_eagerly():
            iterator = original(dataset)
            self.on_function_use(dataset)
            return iterator
        if not self.role() and not inside_workflow():
            self.on_iteration(dataset)
        with Stopwatch() as making:
            iterator = original(dataset)
        if type(iterator) is not tensorflow_private.OwnedIterator:
            return iterator
        return self.observe(dataset, iterator, making, ObservedIterator)

    def _around_reduce(self, original: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            self.on_function_use(dataset)
        elif not self.role() and not called_by_library():
            with whole_call_stopwatch([self.record_use(dataset, "other", "Dataset.reduce")]):
                return original(dataset, *args, **kwargs)
        return original(dataset, *args, **kwargs)

    def _before_function(self, value: Any) -> None:
        """Called with each dataset or iterator that is about to be passed to a `tf.function`."""
        if not tf.executing_eagerly():
            return
        if isinstance(value, AnyObservedIterator):
            self.on_function_use(value._pipetune_dataset, value._pipetune_distributed_input)
            return
        handed = distributed_input.find_distributed_input(value)
        self.on_function_use(value if handed is None else handed.dataset, handed)

    def on_function_use(self, dataset: Any, handed: distributed_input.DistributedInput | None = None) -> None:
        """Handles a dataset that is consumed inside a `tf.function`, where it cannot be replaced by another one."""
        if self.role() or self.training_begun or call_sites.location(dataset) is None:
            return
        if not hasattr(getattr(dataset, "_variant_tensor", None), "numpy"):
            return  # created inside the function: there is no live dataset to tune
        with tf.init_scope():
            use = self.record_use(dataset, "training", "a tf.function")
            use.distributed_input = handed
            if self.target_dataset is None or use.name == self.target_dataset:
                why = "The dataset is consumed inside a tf.function, where it cannot be replaced by another dataset."
                self.begin_training(use, consumption.NoConsumer(why))
                self.stop()

    # -- iterators of Python loops

    def observe(
        self,
        dataset: Any,
        iterator: Any,
        making: Stopwatch,
        kind: type[Any],
        handed: distributed_input.DistributedInput | None = None,
    ) -> Any:
        """Returns the iterator, made one of class `kind`; unchanged if the script does not consume it itself.

        Args:
            dataset: the dataset that is iterated.
            iterator: its new iterator.
            making: stopwatch that measured the creation of the iterator.
            kind: `ObservedIterator` or `ObservedDistributedIterator`.
            handed: how a strategy distributed the dataset; None if none did.
        """
        if self.role() or inside_workflow():
            return iterator
        use = self.record_use(dataset, "preview", "iter")
        making.charge(use)
        use.loop, self._loops = self._loops, self._loops + 1
        iterator.__class__ = kind
        self._observed.add(iterator)
        iterator._pipetune_hooks, iterator._pipetune_use, iterator._pipetune_dataset = self, use, dataset
        iterator._pipetune_distributed_input = handed
        iterator._pipetune_trains_after = FIRST_ELEMENTS if self.target_dataset in (None, use.name) else math.inf
        return iterator

    def on_loop_elements(self, use: Consumption, handed: distributed_input.DistributedInput | None) -> float:
        """Looks whether a Python loop trains, and begins training if it does.

        A loop over the dataset that the user has asked for counts as training without being looked at. So does one of
        several processes in lockstep, as all must decide at the same element, and one that was found to train before.

        Returns:
            How many elements the loop shall have taken when this is called again.
        """
        if self.training_begun:
            return math.inf
        known = self._training_loop is not None and use.loop == self._training_loop
        if self.target_dataset is None and not self.lockstep and not known:
            frame, _ = call_sites.user_frame(sys._getframe(1))
            if use.signs is None:
                use.signs = TrainingSigns(frame)
            else:
                use.training_sign = use.signs.describe(frame)
            if not use.training_sign and not use.signs.waited_enough(use.elements):
                return use.signs.next_look(use.elements)
        self._on_loop_training(use, handed)
        return math.inf

    def _on_loop_training(self, use: Consumption, handed: distributed_input.DistributedInput | None) -> None:
        use.role, use.consumer_call, use.distributed_input = "training", "a Python loop", handed
        why = strategies.switching_obstacle(handed, in_step=self.lockstep)
        if why:
            self.begin_training(use, consumption.NoConsumer(why))
            self.stop()
        self.loop = loop_consumer.LoopConsumer(handed, taken=use.elements)
        self.begin_training(use, self.loop)

    # -- recorded uses

    def begin_training(self, use: Consumption, consumer: consumption.Consumer) -> None:
        """Marks the start of training and calls the handler."""
        self.training_begun, self.distributed_input = True, use.distributed_input
        for seen in self.uses:
            if seen.signs is not None:
                seen.signs.close()
        self._on_training(use, consumer)

    def record_use(self, dataset: Any, role: str, how: str) -> Consumption:
        """Returns the record of a dataset's use, updated with its role and the current location in the script."""
        use: Consumption | None = getattr(dataset, _USE, None)
        if use is None:
            use = Consumption(dataset=dataset, variable="", role=role, consumer_call=how)
            object.__setattr__(dataset, _USE, use)
            self._used_datasets.add(dataset)
        elif role != "training" and use.role != "preview":
            return self._keep_use(use)  # its role is known already
        elif role != "preview":
            use.role, use.consumer_call = role, how
        frame, _ = call_sites.user_frame(sys._getframe(1))  # location of the last use: a preview comes before training
        if frame is not None:
            use.variable = variable_name(frame, dataset) or use.variable
            use.file, use.line = frame.f_code.co_filename, frame.f_lineno
            use.call_path = call_sites.path_from(frame)
        return self._keep_use(use)

    def _keep_use(self, use: Consumption) -> Consumption:
        """Keeps the uses that the session may need, of other previews only the most consumed; returns `use`."""
        if not any(seen is use for seen in self.uses):
            self.uses.append(use)
        previews = [seen for seen in self.uses if seen.role == "preview" and seen is not use]
        most = max(previews, key=lambda seen: seen.elements, default=None)
        self.uses = [seen for seen in self.uses if seen.role != "preview" or seen is use or seen is most][-_MAX_USES:]
        return use

    def describe_other_uses(self) -> str:
        """Returns what was seen in place of training, as clauses: fits on other data, and glances; "" if nothing."""
        glances = [
            f"it took only one element of {use.name} ({os.path.basename(use.file)}:{use.line})"
            for use in self.uses
            if use.role == "preview" and use.elements == PREVIEW_ELEMENTS
        ]
        return "; ".join(dict.fromkeys([*self.notes, *glances]))

    def role(self) -> str:
        """Returns what this thread consumes for at the moment, such as Keras's evaluation; '' for the script itself."""
        own: str = getattr(self._context, "role", "")
        return own or ("a worker" if tensorflow_private.in_coordinator_dispatch() else "")

    @contextlib.contextmanager
    def as_role(self, role: str) -> Iterator[None]:
        """Context manager: consumption on this thread is attributed to `role`; the outermost role takes precedence."""
        before = self.role()
        self._context.role = before or role
        try:
            yield
        finally:
            self._context.role = before
