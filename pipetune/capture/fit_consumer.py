"""Training by `Model.fit`, or inference by `Model.predict` and `evaluate`: measures windows inside calls of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any

from pipetune import tensorflow_private
from pipetune.capture.distributed_input import DistributedInput, endless
from pipetune.core.measurement import RunFailed, StepSeries, Window
from pipetune.pipelines.errors import step_failed
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators
from pipetune.timing.steps import NO_CLOCK, InputRelay, StepRecorder

_FUNCTIONS = ("train_function", "train_tf_function", "test_function", "predict_function")
"""Attributes of a model for its compiled steps, None before the first one."""


def steps_per_call(model: Any) -> int:
    """Returns `steps_per_execution`: a number in Keras 3, a variable in tf_keras (one per device under a strategy)."""
    value: Any = getattr(model, "steps_per_execution", None)
    return int(value.numpy() if hasattr(value, "numpy") else value or 1)


class FitConsumer:
    """`fit` of Keras 3 or tf_keras, called with each variant, without the user's callbacks and validation."""

    kind = "keras-fit"
    _flag_that_ends = "stop_training"  # attribute of the model

    def __init__(
        self,
        model: Any,
        original_fit: Callable[..., Any],
        kept: Mapping[str, Any],
        *,
        handed: DistributedInput | None = None,
    ) -> None:
        """Stores the model and what affects its training step.

        Args:
            model: the Keras model.
            original_fit: the unpatched `fit`, to be called with the model.
            kept: arguments of the user's call that affect the step (class_weight, ...).
            handed: how a strategy distributed the dataset passed to `fit`; None if `fit` was given a plain dataset.
        """
        self.description = "Model.fit"
        self._distributed_input = handed
        self._elements_per_step = handed.handover.elements_per_step if handed is not None else 1
        self._model, self._fit, self._kept_arguments = model, original_fit, dict(kept)
        self._steps_per_call = steps_per_call(model)
        self._whole_epochs_seen: set[str] = set()  # element specs whose shapes were all compiled in a warm-up
        self._multi_step_functions: dict[int, Any] = {}  # cached training functions with several steps per call
        self._functions = {name: getattr(model, name) for name in _FUNCTIONS if hasattr(model, name)}

    def put_functions_back(self) -> None:
        """Gives the model the functions that it had: those traced while saving was switched off save no summaries."""
        for name, function in self._functions.items():
            setattr(self._model, name, function)

    @property
    def accepts_multi_step_calls(self) -> bool:
        """Whether calls can temporarily take several steps: the step is compiled, and a call takes one so far.

        Not with a cluster coordinator, which schedules the calls itself.
        """
        model = self._model
        keras_3 = any(base.__module__.startswith("keras.") for base in type(model).__mro__)
        alone = keras_3 or (is_tf_keras(model) and getattr(model, "_cluster_coordinator", None) is None)
        return alone and self._steps_per_call == 1 and not model.run_eagerly

    @contextlib.contextmanager
    def multi_step_calls(self, number: int) -> Iterator[None]:
        """Context manager: windows take `number` steps in each call of the training function while it is open.

        On exit the model's own function is restored, and that with several steps is cached: it is traced only once.
        """
        model, own = self._model, self._model.train_function
        model.steps_per_execution = self._steps_per_call = number
        model.train_function = self._multi_step_functions.get(number)
        try:
            yield
        finally:
            self._multi_step_functions[number] = model.train_function
            model.steps_per_execution, model.train_function, self._steps_per_call = 1, own, 1

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Implements `Consumer.window`; a window that includes compilation is repeated once."""
        measured, skipped = self.window_counts(dataset, steps=steps, warmup=warmup)
        window = self.exact_window(dataset, steps=measured, warmup=skipped)
        # Everything is compiled now: repeating the same window measures no compilation.
        return self.exact_window(dataset, steps=measured, warmup=skipped) if window.compile_seconds else window

    def window_counts(self, dataset: Any, *, steps: int, warmup: int) -> tuple[int, int]:
        """Returns steps and warm-up of a window in the unit of `exact_window`: calls of the training function."""
        measured = -(-steps // (self._steps_per_call * self._elements_per_step))
        skipped = -(-warmup // self._steps_per_call)
        return measured, max(skipped, self._calls_until_all_shapes(dataset, measured + skipped))

    def _calls_until_all_shapes(self, dataset: Any, calls: int) -> int:
        """Returns the number of warm-up calls in which every batch shape occurs; 0 if no warm-up is needed for that.

        If the first window reaches the end of the data, the warm-up covers all of it: the last batch may be smaller.
        """
        elements, spec = int(dataset.cardinality()), str(dataset.element_spec)
        elements //= self._elements_per_step
        if not 0 < elements <= calls * self._steps_per_call or spec in self._whole_epochs_seen:
            return 0
        self._whole_epochs_seen.add(spec)
        return -(-elements // self._steps_per_call) if self._compiles_shapes_of(dataset) else 0

    def _compiles_shapes_of(self, dataset: Any) -> bool:
        """Whether XLA compiles the step once for each of several element shapes."""
        return getattr(self._model, "jit_compile", False) is True and windows.shapes_vary(dataset.element_spec)

    def exact_window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Returns a window of exactly `steps` calls of the training function, even if it includes compilation.

        Args:
            dataset: a `tf.data.Dataset`, repeated indefinitely.
            steps: calls to measure, each of one or more training steps.
            warmup: calls before them, which are not counted.

        Raises:
            RunFailed: `fit` raised, or the data ran out.
        """
        with self._keeping_history():
            clock = _fit_clock(self._model, steps, warmup)
            free_iterators()
            started = time.perf_counter()
            self._run_fit(endless(dataset, self._distributed_input), calls=clock.calls_wanted, callbacks=clock)
        if not clock.closed:
            raise RunFailed("The data ran out before the window was full.")
        return Window(
            steps=steps * self._steps_per_call * self._elements_per_step,
            examples=steps * self._steps_per_call * self._elements_per_step,
            wall_seconds=clock.timer.wall_seconds,
            cpu_seconds=clock.timer.cpu_seconds,
            first_seconds=clock.first - started,
            compile_seconds=clock.timer.compile_seconds(
                [end - start for start, end in pairwise(clock.calls)], new_shapes=self._compiles_shapes_of(dataset)
            ),
            others_seconds=clock.timer.others_seconds,
            cores=clock.timer.cores,
        )

    def record_steps(self, dataset: Any, *, steps: int, seconds: float) -> StepSeries:
        """Implements `Consumer.record_steps`; what happens between Keras's epochs is left out.

        The training function takes its elements itself, so a relay tells how long it waits for them. Where there can be
        none, no wait is known, and no end of an epoch.
        """
        obstacle = self._relay_obstacle(dataset)
        relay = None if obstacle else InputRelay(dataset)
        recorder = StepRecorder(steps=steps, seconds=seconds)
        free_iterators()
        flag = self._flag_that_ends
        before = getattr(self._model, flag, False)
        try:
            with self._keeping_history():
                self._run_fit(
                    endless(dataset, self._distributed_input) if relay is None else relay.dataset,
                    calls=-(-steps // self._steps_per_call),
                    callbacks=_recording_calls(self._model, recorder, relay, self._steps_per_call, flag=flag),
                )
        finally:
            setattr(self._model, flag, before)
            if relay is not None:
                relay.close()
        return replace(recorder.series(), why=obstacle)

    def _relay_obstacle(self, dataset: Any) -> str:
        """Returns why the elements of `dataset` cannot be relayed, or ''; a relay would copy them back to the host."""
        if self._distributed_input is not None or windows.host_part(dataset) is not dataset:
            return _TAKEN_AHEAD
        return NO_CLOCK if tensorflow_private.op_determinism_enabled() else ""

    @contextlib.contextmanager
    def _keeping_history(self) -> Iterator[None]:
        """Context manager: on exit `history` of the model is that of the user's own training, for a notebook."""
        history = getattr(self._model, "history", None)
        try:
            yield
        finally:
            self._model.history = history

    def _run_fit(self, data: Any, *, calls: int, callbacks: Any) -> None:
        try:
            self._call(data, steps=calls * self._steps_per_call, callbacks=callbacks)
        except Exception as error:  # whatever the user's own step raises ends this window, not pipetune
            raise step_failed(self.description, error) from error
        finally:
            free_iterators()

    def _call(self, data: Any, *, steps: int, callbacks: Any) -> None:
        self._fit(
            self._model, x=data, epochs=1, steps_per_epoch=steps, callbacks=callbacks, verbose=0, **self._kept_arguments
        )


class InferenceConsumer(FitConsumer):
    """`predict` or `evaluate` of Keras 3 or tf_keras, called with each variant, without the user's callbacks.

    `kind` is that of `fit`: nothing else is different.
    """

    def __init__(self, model: Any, method: str, original: Callable[..., Any]) -> None:
        """Stores the model and its method.

        Args:
            model: the Keras model.
            method: "predict" or "evaluate".
            original: the unpatched method, to be called with the model.
        """
        super().__init__(model, original, {})
        self.description = f"Model.{method}"
        self._flag_that_ends = {"predict": "stop_predicting", "evaluate": "stop_evaluating"}[method]

    @property
    def accepts_multi_step_calls(self) -> bool:
        """False: what several steps per call gain is measured of training alone."""
        return False

    def _call(self, data: Any, *, steps: int, callbacks: Any) -> None:
        self._fit(self._model, x=data, steps=steps, callbacks=callbacks, verbose=0)


_TAKEN_AHEAD = "Batches are copied to the devices before the steps need them, so it is unknown how long a step waits."


def _recording_calls(model: Any, recorder: StepRecorder, relay: InputRelay | None, per_call: int, *, flag: str) -> Any:
    """Returns a Keras CallbackList that records each call of the training function, and ends `fit` after enough.

    It replaces the list for the reason given in `_fit_clock`. `flag` is the attribute of the model that ends `fit`.
    """

    class Recording(callbacks_of(model).CallbackList):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(add_history=True, model=model, epochs=1, verbose=0)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_begin(batch, logs)
            if batch == 0:
                if relay is not None:
                    relay.read()  # Keras takes a first look at the elements if a layer is not built
                recorder.begin()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)
            recorder.keep_pace(logs)
            enough = not recorder.end(relay.read if relay is not None else _unknown, steps=per_call)
            setattr(model, flag, enough)
            recorder.begin()

        on_predict_batch_begin = on_test_batch_begin = on_train_batch_begin
        on_predict_batch_end = on_test_batch_end = on_train_batch_end

    return Recording()


def _unknown() -> tuple[None, bool]:
    return None, False


def _fit_clock(model: Any, measured: int, skipped: int) -> Any:
    """Returns a Keras CallbackList that reads the clocks after call number `skipped` and `measured` calls later.

    It replaces the list instead of adding a callback to it: a callback with batch methods makes tf_keras, and a Keras
    that runs callbacks in threads, read every step's values before the next step. Steps would then no longer overlap
    with fetching the next input, as they do for the user. (Keras 3.15 on TensorFlow always reads the values.)
    """

    class Clock(callbacks_of(model).CallbackList):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(add_history=True, model=model, epochs=1, steps=measured + skipped + 1, verbose=0)
            self.ended = 0
            # The window opens and closes one call late, by reading the value of the previous call once the next one
            # is queued: otherwise it would begin with an idle device.
            self.opens, self.closes = (skipped + 1, skipped + measured + 1) if skipped else (0, measured)
            self.calls_wanted = self.closes
            self.before: Any = None  # what the previous call returned
            self.calls: list[float] = []  # start of the window, then when each call returned
            self.first = 0.0
            self.closed = False
            self.close = windows.DeviceSynchronizer()
            self.timer = windows.WindowTimer()

        def on_train_begin(self, logs: Any = None) -> None:
            super().on_train_begin(logs)
            if skipped == 0:
                self.open(None)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ended += 1
            now = time.perf_counter()
            self.first = self.first or now
            super().on_train_batch_end(batch, logs)
            value, self.before = (self.before if self.opens else logs), logs
            self.calls.append(now)
            if self.ended == self.opens:
                self.open(value)
            elif self.ended == self.closes:
                self.close(value)
                self.timer.stop()
                self.closed = True

        on_predict_begin = on_test_begin = on_train_begin
        on_predict_batch_end = on_test_batch_end = on_train_batch_end

        def open(self, logs: Any) -> None:
            self.close(logs)
            self.timer = windows.WindowTimer()
            self.calls = [self.timer.start]

    return Clock()


def callbacks_of(model: Any) -> ModuleType:
    """Returns the module of callbacks of the Keras version that the model was created with."""
    if is_tf_keras(model):
        import tf_keras

        return tf_keras.callbacks  # type: ignore[no-any-return]
    import keras

    return keras.callbacks  # type: ignore[no-any-return]


def is_tf_keras(model: Any) -> bool:
    """Whether the model was created with tf_keras (Keras 2) rather than Keras 3."""
    return any(base.__module__.partition(".")[0] == "tf_keras" for base in type(model).__mro__)


def build_optimizer(model: Any) -> None:
    """Creates the optimizer's variables now: those created during the first window could not be restored."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not getattr(model, "built", False) or getattr(optimizer, "built", True):
        return
    strategy = getattr(model, "distribute_strategy", None)  # places them like the model's variables
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        optimizer.build(model.trainable_variables)
