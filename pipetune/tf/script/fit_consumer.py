"""Training by Keras: the user's own `fit`, called for each variant."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from pipetune.core.measurement import RunFailed, Window
from pipetune.tf.error_text import first_line
from pipetune.tf.measure import closing, compiling, windows
from pipetune.tf.script.handing_over import HandedOver


def steps_per_call(model: Any) -> int:
    """Returns `steps_per_execution`: a number in Keras 3, a variable in tf_keras (one per device under a strategy)."""
    value: Any = getattr(model, "steps_per_execution", None)
    return int(value.numpy() if hasattr(value, "numpy") else value or 1)


class FitConsumer:
    """`fit` of Keras 3 or tf_keras, called with each variant, without the user's callbacks and validation."""

    kind = "keras-fit"

    def __init__(
        self,
        model: Any,
        original_fit: Callable[..., Any],
        kept: Mapping[str, Any],
        callback_list: type,
        *,
        handed: HandedOver | None = None,
    ) -> None:
        """Stores the model and what affects its training step.

        Args:
            model: the Keras model.
            original_fit: the unpatched `fit`, to be called with the model.
            kept: arguments of the user's call that affect the step (class_weight, ...).
            callback_list: the class that `callback_list` returns.
            handed: how a strategy distributed the dataset passed to `fit`; None if `fit` was given a plain dataset.
        """
        self.sentence = "Model.fit"
        self._handed = handed
        self._each = handed.facts().elements_per_step if handed is not None else 1  # elements of the dataset per step
        self._model, self._fit, self._kept, self._callback_list = model, original_fit, dict(kept), callback_list
        self._per_call = steps_per_call(model)
        self._whole_epochs_seen: set[str] = set()  # element specs whose shapes were all compiled in a warm-up
        self._several: dict[int, Any] = {}  # cached training functions with several steps per call

    @property
    def takes_one_step_a_call(self) -> bool:
        """Whether calls can temporarily take several steps: the step is compiled, and a call takes one so far.

        Not with a cluster coordinator, which schedules the calls itself.
        """
        model = self._model
        keras_3 = any(base.__module__.startswith("keras.") for base in type(model).__mro__)
        alone = keras_3 or (of_tf_keras(model) and getattr(model, "_cluster_coordinator", None) is None)
        return alone and self._per_call == 1 and not model.run_eagerly

    @contextlib.contextmanager
    def several_steps(self, number: int) -> Iterator[None]:
        """Context manager: windows take `number` steps in each call of the training function.

        On exit the model's own function is restored, and the other one is cached, so that it is traced only once.
        """
        model, own = self._model, self._model.train_function
        model.steps_per_execution, model.train_function, self._per_call = number, self._several.get(number), number
        try:
            yield
        finally:
            self._several[number] = model.train_function
            model.steps_per_execution, model.train_function, self._per_call = 1, own, 1

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        wanted, skipped = self.counts(dataset, steps=steps, warmup=warmup)
        window = self.exactly(dataset, steps=wanted, warmup=skipped)
        # Everything is compiled now: repeating the same window measures no compilation.
        return self.exactly(dataset, steps=wanted, warmup=skipped) if window.compile_seconds else window

    def counts(self, dataset: Any, *, steps: int, warmup: int) -> tuple[int, int]:
        """Returns steps and warm-up of a window in the unit of `exactly`: calls of the training function."""
        wanted, skipped = -(-steps // (self._per_call * self._each)), -(-warmup // self._per_call)
        return wanted, max(skipped, self._calls_to_see_every_shape(dataset, wanted + skipped))

    def _calls_to_see_every_shape(self, dataset: Any, calls: int) -> int:
        """Returns the warm-up calls in which every batch shape occurs; 0 where no warm-up is needed for that.

        A first window that reaches the end of the data warms up on all of it: the last batch may be smaller.
        """
        elements, spec = int(dataset.cardinality()), str(dataset.element_spec)
        elements //= self._each
        if not 0 < elements <= calls * self._per_call or spec in self._whole_epochs_seen:
            return 0
        self._whole_epochs_seen.add(spec)
        return -(-elements // self._per_call) if self._compiles_shapes_of(dataset) else 0

    def _compiles_shapes_of(self, dataset: Any) -> bool:
        """Whether XLA compiles the step once for each of several element shapes."""
        return getattr(self._model, "jit_compile", False) is True and compiling.shapes_vary(dataset.element_spec)

    def exactly(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Measures a window of exactly `steps` calls of the training function, even if it includes compilation."""
        wanted, skipped = steps, warmup
        clock = _fit_clock(self._callback_list, self._model, wanted, skipped)
        windows.settle()
        started = time.perf_counter()
        try:
            self._fit(
                self._model,
                x=windows.endless(dataset) if self._handed is None else self._handed.endless(dataset),
                epochs=1,
                steps_per_epoch=clock.calls_wanted * self._per_call,
                callbacks=clock,
                verbose=0,
                **self._kept,
            )
        except Exception as error:  # whatever the user's own step raises ends this window, not pipetune
            raise RunFailed(f"fit raised {type(error).__name__}: {first_line(error)}") from error
        finally:
            windows.settle()
        if clock.stop is None:
            raise RunFailed("The data ran out before the window was full.")
        return Window(
            steps=wanted * self._per_call * self._each,
            examples=wanted * self._per_call * self._each,
            wall_seconds=clock.stop - clock.start,
            cpu_seconds=clock.cpu_stop - clock.cpu_start,
            first_seconds=clock.first - started,
            compile_seconds=clock.watch.compile_seconds(
                [end - start for start, end in pairwise(clock.calls)],
                new_shapes=self._compiles_shapes_of(dataset),
            ),
        )


def _fit_clock(callback_list: type, model: Any, wanted: int, skipped: int) -> Any:
    """Returns a Keras CallbackList that reads the clocks after call number `skipped` and `wanted` calls later.

    It replaces the list instead of adding a callback to it: a callback with batch methods makes tf_keras, and a Keras
    that runs callbacks in threads, read every step's values before the next step. Steps would then no longer overlap
    with fetching the next input, as they do for the user. (Keras 3.15 on TensorFlow reads the values in any case.)
    """

    class Clock(callback_list):
        def __init__(self) -> None:
            super().__init__(add_history=True, model=model, epochs=1, steps=wanted + skipped + 1, verbose=0)
            self.ended = 0
            # The window opens and closes one call late, by reading the value of the call before; see `closing`.
            self.opens, self.closes = (skipped + 1, skipped + wanted + 1) if skipped else (0, wanted)
            self.calls_wanted = self.closes
            self.before: Any = None  # what the previous call returned
            self.calls: list[float] = []  # start of the window, then when each call returned
            self.first = self.start = self.cpu_start = self.cpu_stop = 0.0
            self.stop: float | None = None
            self.close = closing.Closer()
            self.watch = compiling.Watch()

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
                self.stop, self.cpu_stop = time.perf_counter(), time.process_time()

        def open(self, logs: Any) -> None:
            self.close(logs)
            self.watch = compiling.Watch()
            self.start, self.cpu_start = time.perf_counter(), time.process_time()
            self.calls = [self.start]

    return Clock()


def callback_list(model: Any) -> type:
    """Returns the `CallbackList` class of the Keras version that the model was created with."""
    if of_tf_keras(model):
        import tf_keras

        return tf_keras.callbacks.CallbackList  # type: ignore[no-any-return]
    import keras

    return keras.callbacks.CallbackList  # type: ignore[no-any-return]


def of_tf_keras(model: Any) -> bool:
    """Whether the model was created with tf_keras (Keras 2) rather than Keras 3."""
    return any(base.__module__.startswith("tf_keras") for base in type(model).__mro__)


def build_optimizer(model: Any) -> None:
    """Creates the optimizer's variables now: those created during the first window could not be restored."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not getattr(model, "built", False) or getattr(optimizer, "built", True):
        return
    strategy = getattr(model, "distribute_strategy", None)  # places them like the model's variables
    with strategy.scope() if strategy is not None else contextlib.nullcontext():
        optimizer.build(model.trainable_variables)
