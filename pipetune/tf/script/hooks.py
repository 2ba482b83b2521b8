"""Watches who consumes datasets in the user's script, and hands the first consumer that trains to pipetune.

Replaces `iter`, `reduce` and `tf.function` calls on datasets and Keras's `fit`, `evaluate`, `predict`, `adapt`
while the script runs. Nothing the script sees changes until training begins.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from pipetune.core.resuming import Resuming
from pipetune.tf import private
from pipetune.tf.script import capture, consumers, fit_consumer, loop_consumer, other_data, workers
from pipetune.tf.script.consumption import Consumption, Stopwatch, name_in
from pipetune.tf.script.imports import ImportWatcher
from pipetune.tf.script.once import made_once
from pipetune.tf.script.resuming import ResumeWatch, in_callbacks
from pipetune.tf.script.turns import called_by_library, inside_workflow, workflow_at_work

TRAINS_AFTER = 20
"""Elements a Python loop must have taken before it counts as training."""

_USE = "_pipetune_use"  # the attribute of a dataset that holds its Consumption
_KEPT = 50  # datasets remembered at most

_KERAS_FIT = (
    ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer"),
    ("keras.src.backend.jax.trainer", "JAXTrainer"),
    ("keras.src.backend.torch.trainer", "TorchTrainer"),
    ("tf_keras.src.engine.training", "Model"),
)
_KERAS_LAYERS = ("keras.src.layers", "tf_keras.src.layers")


Handler = Callable[[Consumption, consumers.Consumer], None]
"""Called once, where training begins. May raise ScriptStopped (in `fit`), or return for loops."""


class Hooks:
    """Context manager: while open, `on_training` is called at the first consumer that trains."""

    def __init__(self, on_training: Handler, *, wanted: str | None = None) -> None:
        """`wanted` names the dataset to take for training, whatever consumes it; None: decide by use."""
        self._on_training = on_training
        self._wanted = wanted
        self._context = threading.local()
        self._undo: list[Callable[[], None]] = []
        self.seen: list[Consumption] = []
        self.loop: loop_consumer.LoopConsumer | None = None
        self.begun = False
        self.notes: list[str] = []
        self.resuming: list[Resuming] = []

    # -- opening and closing

    def __enter__(self) -> Hooks:
        original_iter = private.DatasetV2.__iter__
        hooks = self

        def observed_iter(dataset: Any) -> Any:
            if not tf.executing_eagerly():
                iterator = original_iter(dataset)
                hooks._in_function(dataset)
                return iterator
            with Stopwatch() as making:
                iterator = original_iter(dataset)
            return hooks._observe(dataset, iterator, making)

        self._replace(private.DatasetV2, "__iter__", tf.autograph.experimental.do_not_convert(observed_iter))
        self._wrap(private.DatasetV2, "reduce", self._around_reduce)
        self._wrap(private.Strategy, "experimental_distribute_dataset", self._around_distribute)
        self._watch_functions()
        watcher = ImportWatcher([*dict(_KERAS_FIT), *_KERAS_LAYERS], self._patch_keras)
        self._undo.append(watcher.__exit__)
        watcher.__enter__()
        self._undo.append(ResumeWatch(self._resumes).__enter__().__exit__)
        return self

    def _resumes(self, found: Resuming) -> None:
        if not self.begun and found not in self.resuming:
            self.resuming.append(found)

    def __exit__(self, *_error: object) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, new)
        self._undo.append(functools.partial(setattr, owner, name, original))

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        # Without the mark, AutoGraph would convert pipetune's own code while it traces the user's.
        self._replace(owner, name, tf.autograph.experimental.do_not_convert(wrapped))

    def _watch_functions(self) -> None:
        """Watches what `tf.function`s are called with; on the way of every training step, so as short as can be."""
        original = polymorphic_function.Function.__call__
        before = self._before_function
        consumed = _Consumed()

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

        self._replace(polymorphic_function.Function, "__call__", private.never_converted(called))

    def _patch_keras(self, module: ModuleType) -> None:
        """Wraps Keras's training methods, and `adapt` of its layers, in a module just imported."""
        owner = getattr(module, dict(_KERAS_FIT).get(module.__name__, ""), None)
        if owner is not None:
            self._wrap(owner, "fit", self._around_fit)
            for name, role in (("evaluate", "evaluation"), ("predict", "prediction")):
                self._wrap(owner, name, functools.partial(self._around_role, role))
        if module.__name__ in _KERAS_LAYERS:
            for layer in list(vars(module).values()):
                if inspect.isclass(layer) and "adapt" in vars(layer):
                    self._wrap(layer, "adapt", functools.partial(self._around_role, "adapt"))

    # -- what is intercepted

    def _around_role(self, role: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        outermost = not self._role()
        with self._as_role(role):
            uses = [
                self._note(value, role, role)
                for value in (*args[1:2], kwargs.get("x"), kwargs.get("data"))
                if isinstance(value, private.DatasetV2)
            ]
            for use in uses:
                use.steps_per_epoch = kwargs.get("steps", use.steps_per_epoch)
            with _whole_call(uses if outermost else []):
                return original(*args, **kwargs)

    def _around_fit(self, original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if self._role() or self.begun:
            if self.begun and not self._role():
                raise consumers.ScriptStopped
            return original(model, *args, **kwargs)
        call = inspect.signature(original).bind(model, *args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        validation = given.get("validation_data")
        if isinstance(validation, private.DatasetV2):
            checked = self._note(validation, "validation", "validation_data of Model.fit")
            checked.steps_per_epoch = given.get("validation_steps")
        dataset = given.get("x")
        if not isinstance(dataset, private.DatasetV2):
            with self._as_role("fit on other data"):
                self.notes.append(other_data.described(dataset))
                return original(model, *args, **kwargs)
        use = self._note(dataset, "training", "Model.fit")
        use.steps_per_epoch = given.get("steps_per_epoch")
        epochs, begun = given.get("epochs"), given.get("initial_epoch")
        use.epochs = epochs - begun if isinstance(epochs, int) and isinstance(begun, int) else None
        use.starts_again = not fit_consumer.of_tf_keras(model)
        use.across_workers = workers.across(getattr(model, "distribute_strategy", None))
        caller, called = capture.user_frame(sys._getframe())
        if caller is not None and called == "_around_fit":  # no library stands between
            use.certain = made_once(caller, "fit", data=use.variable)
        for found in in_callbacks(given.get("callbacks"), file=use.file, line=use.line):
            self._resumes(found)
        use.extra = {"callbacks": given.get("callbacks"), "validation_steps": given.get("validation_steps")}
        if self._wanted is not None and use.name != self._wanted:
            return original(model, *args, **kwargs)
        kept = {name: given[name] for name in ("class_weight",) if given.get(name) is not None}
        fit_consumer.build_optimizer(model)
        self._begin(use, fit_consumer.FitConsumer(model, original, kept, fit_consumer.callback_list(model)))
        raise consumers.ScriptStopped

    def _around_reduce(self, original: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            self._in_function(dataset)
        elif not self._role() and not called_by_library():
            with _whole_call([self._note(dataset, "other", "Dataset.reduce")]):
                return original(dataset, *args, **kwargs)
        return original(dataset, *args, **kwargs)

    def _around_distribute(self, original: Any, strategy: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """A strategy takes a dataset to its replicas: there no other input can be served."""
        if not self._role() and not self.begun and isinstance(dataset, private.DatasetV2):
            use = self._note(dataset, "training", f"{type(strategy).__name__}.experimental_distribute_dataset")
            use.across_workers = workers.across(strategy)
            if self._wanted is None or use.name == self._wanted:
                why = "The dataset is distributed by a strategy, where no other input can be served yet."
                self._begin(use, consumers.NoConsumer(why))
                raise consumers.ScriptStopped
        return original(strategy, dataset, *args, **kwargs)

    def _before_function(self, value: Any) -> None:
        """A `tf.function` is about to be called with a dataset or an iterator."""
        if tf.executing_eagerly():
            self._in_function(value._pipetune_dataset if isinstance(value, _ObservedIterator) else value)

    def _in_function(self, dataset: Any) -> None:
        """A dataset is consumed inside a `tf.function`: nothing can be switched there."""
        if self._role() or self.begun or capture.location(dataset) is None:
            return
        if not hasattr(getattr(dataset, "_variant_tensor", None), "numpy"):
            return  # made inside the function: there is no live dataset to tune
        with tf.init_scope():
            use = self._note(dataset, "training", "a tf.function")
            if self._wanted is None or use.name == self._wanted:
                why = "The dataset is consumed inside a tf.function, where no other input can be served."
                self._begin(use, consumers.NoConsumer(why))
                raise consumers.ScriptStopped

    # -- iterators of Python loops

    def _observe(self, dataset: Any, iterator: Any, making: Stopwatch) -> Any:
        role = self._role()
        if role == "fit on other data" or inside_workflow():
            return iterator
        if role or type(iterator) is not private.OwnedIterator:
            return iterator
        use = self._note(dataset, "preview", "iter")
        making.charge(use)
        iterator.__class__ = _ObservedIterator
        iterator._pipetune_hooks, iterator._pipetune_use, iterator._pipetune_dataset = self, use, dataset
        iterator._pipetune_trains_after = TRAINS_AFTER if self._wanted in (None, use.name) else math.inf
        return iterator

    def took(self, use: Consumption) -> None:
        """A Python loop has taken as many elements as one that trains."""
        if self.begun:
            return
        use.role, use.how = "training", "a Python loop"
        self.loop = loop_consumer.LoopConsumer()
        self._begin(use, self.loop)

    # -- helpers

    def _begin(self, use: Consumption, consumer: consumers.Consumer) -> None:
        self.begun = True
        self._on_training(use, consumer)

    def _note(self, dataset: Any, role: str, how: str) -> Consumption:
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

    def _role(self) -> str:
        return getattr(self._context, "role", "")

    @contextlib.contextmanager
    def _as_role(self, role: str) -> Iterator[None]:
        before = self._role()
        self._context.role = before or role
        try:
            yield
        finally:
            self._context.role = before


class _Consumed(dict[type, bool]):
    """Whether values of a class are datasets or observed iterators; asked once a class."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, private.DatasetV2 | _ObservedIterator)
        return self[kind]


_take = private.OwnedIterator.__next__
_executing_eagerly = tf.executing_eagerly


class _ObservedIterator(private.OwnedIterator):
    """The script's iterator: counts what is taken and, once training is found, serves what pipetune asks."""

    _pipetune_hooks: Hooks
    _pipetune_use: Consumption
    _pipetune_dataset: Any
    _pipetune_trains_after: float

    def __next__(self) -> Any:  # before every training step: as short as can be
        hooks = self._pipetune_hooks
        if hooks.begun or not _executing_eagerly():
            return self._next_elsewhere(hooks)
        use = self._pipetune_use
        if use.elements < TRAINS_AFTER:
            with Stopwatch(use):
                element = _take(self)
        else:
            element = _take(self)
        use.elements += 1
        if use.elements >= self._pipetune_trains_after:
            hooks.took(use)
        return element

    def _next_elsewhere(self, hooks: Hooks) -> Any:
        """While a function is traced, or once training has begun."""
        if not tf.executing_eagerly():
            hooks._in_function(self._pipetune_dataset)
            return super().__next__()
        if not inside_workflow():
            if hooks.loop is not None and _same_source(hooks, self._pipetune_use):
                self._release()
                with workflow_at_work():  # the window's own iterator is none of the script's
                    return hooks.loop.next_element()
            if hooks.loop is None:
                raise consumers.ScriptStopped
        element = super().__next__()
        self._pipetune_use.elements += 1
        return element

    def get_next(self) -> Any:
        if not tf.executing_eagerly():
            return super().get_next()
        try:
            return self.__next__()
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self) -> Any:
        if not tf.executing_eagerly():
            return super().get_next_as_optional()
        try:
            return tf.experimental.Optional.from_value(self.__next__())
        except StopIteration:
            return tf.experimental.Optional.empty(self.element_spec)

    def _release(self) -> None:
        """Frees the runtime's iterator behind this one: it would go on filling buffers during trials."""
        self._iterator_resource = None
        self._dataset = None


def _whole_call(uses: list[Consumption]) -> Stopwatch:
    for use in uses:
        use.whole_call = True
    return Stopwatch(*uses)


def _same_source(hooks: Hooks, use: Consumption) -> bool:
    training = next((seen for seen in hooks.seen if seen.role == "training"), None)
    return training is use or (
        training is not None
        and capture.location(training.dataset) is not None
        and capture.location(training.dataset) == capture.location(use.dataset)
    )
