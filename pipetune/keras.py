"""The input wait of `Model.fit` as it runs, light enough for production; `pipetune.monitor` does the same for loops.

Unlike `import pipetune`, this imports TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.input_wait import InputWait
from pipetune.timing.gap_times import InputClock

_KEY = "input_wait"


class _TimedFunction:
    """A model's training function that reports the start of each step to a clock."""

    def __init__(self, function: Callable[..., Any], clock: InputClock) -> None:
        self.function, self._clock = function, clock

    def __call__(self, iterator: Any, *more: Any) -> Any:
        self._clock.begin_step(iterator)
        return self.function(iterator, *more)


# Not `async_safe`: on an accelerator steps are only queued until their logs are read, and waits would look longer.
class InputMonitor(tf.keras.callbacks.Callback):
    """Logs how much of training is spent waiting for its input: `model.fit(..., callbacks=[InputMonitor()])`.

    The wait is the time from the request for a batch to its delivery, as the runtime of `tf.data` measures it; what is
    logged is its share of the steps' time, 0 to 1, from the start of an epoch's first step to the start of its last.
    Validation is not in it, nor is the very first step, which compiles.

    `logs["input_wait"]` of an epoch is the share in this epoch. That of a step is the share since the epoch began, as
    with Keras's own metrics; it is up to 0.5 s old. An epoch of a single step has NaN.

    It is not available under distribution strategies, with `steps_per_execution` above 1, with the runtime's model
    switched off (`options.autotune.enabled = False`), and with other backends of Keras than TensorFlow. There is no
    such key in the logs then.

    Callbacks see what those before them have logged: list this one before `CSVLogger` and `TensorBoard`. It is a
    callback of `tf.keras`: of Keras 2 (tf_keras) if TF_USE_LEGACY_KERAS=1 is set.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        """Creates the callback.

        Args:
            quiet: whether nothing is printed. Otherwise one line is, at the end of training.
        """
        super().__init__()
        self._quiet = quiet
        self._total = InputWait()
        self._clock = InputClock()

    @property
    def input_wait(self) -> float | None:
        """The share of the last training's time spent waiting for input, 0 to 1; None if it is not available."""
        return self._total.share

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begins to time the model's training function."""
        self._total, self._clock = InputWait(), InputClock()
        self._restore_function()  # an interrupted training leaves one
        self.model.train_function = _TimedFunction(self.model.train_function, self._clock)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Logs the wait of the epoch so far."""
        self._clock.end_step()
        share = self._clock.epoch.share
        if logs is not None and share is not None:
            logs[_KEY] = share

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Logs the wait of the epoch."""
        wait = self._clock.end_epoch()
        self._total += wait
        if logs is not None and not self._clock.unavailable:
            logs[_KEY] = math.nan if wait.share is None else wait.share

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Ends timing, and prints the line."""
        self._restore_function()
        if not self._quiet:
            print(self._total.summary(self._clock.unavailable))

    def _restore_function(self) -> None:
        if isinstance(self.model.train_function, _TimedFunction):
            self.model.train_function = self.model.train_function.function
