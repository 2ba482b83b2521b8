"""Runs a training script unchanged and times its steps:
`python timed_script.py WINDOWS (fit | loop) SECONDS SCRIPT [ARGUMENTS...]`.

This is one half of the stopwatch that pipetune's answers are judged by; the other is `stopwatch.py`. It is run by its
path and imports nothing of pipetune: `fit` is timed by a callback, a loop by the calls of its iterator.

The process stops itself (SIGSTOP) at the end of a training step, once SECONDS have passed, and appends a line of JSON
about the window to the file WINDOWS; SIGCONT starts the next window. All threads are frozen between windows, so that
the buffers of the input stay as they are while another script is timed. Training goes on until the process is killed:
epochs are repeated for ever, and validation, callbacks and progress bars are left out.
"""

from __future__ import annotations

import inspect
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

FEWEST_STEPS = 5  # per window; fewer would measure the buffer between input and model


class StepWindows:
    """Times steps and writes a line per window.

    The time until the end of an epoch's first step is kept apart (`starts`): it holds the filling of buffers.

    Args:
        path: where the lines are appended.
        seconds: the least length of a window.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._path = path
        self._seconds = seconds
        self._epoch_steps = 0
        self._began = self._last = 0.0
        self._begin()

    def epoch_begins(self) -> None:
        if self._epoch_steps:
            self._epochs.append(self._epoch_steps)
        self._epoch_steps = 0
        self._last = time.monotonic()
        self._began = self._began or self._last

    def step_ends(self) -> None:
        now = time.monotonic()
        if self._epoch_steps:
            self._steps += 1
            self._in_steps += now - self._last
        else:
            self._starts.append(now - self._last)
        self._epoch_steps += 1
        self._last = now
        if now - self._began >= self._seconds and self._steps >= FEWEST_STEPS:
            self._pause()

    def _pause(self) -> None:
        window = {
            "steps": self._steps,
            "seconds": self._in_steps,
            "starts": self._starts,
            "epochs": self._epochs,
        }
        with open(self._path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(window) + "\n")
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()
        self._began = self._last = time.monotonic()

    def _begin(self) -> None:
        self._began = 0.0
        self._steps, self._in_steps = 0, 0.0
        self._starts: list[float] = []
        self._epochs: list[int] = []  # steps of the epochs that ended in this window


def time_fit(windows: StepWindows) -> None:
    """Replaces `keras.Model.fit` by one that trains for ever and times each step."""
    import keras

    fit = keras.Model.fit

    class Steps(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            windows.epoch_begins()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            windows.step_ends()

    def endless(*args: Any, **kwargs: Any) -> None:
        call = inspect.signature(fit).bind(*args, **kwargs)
        call.arguments.update(callbacks=[Steps()], epochs=1_000_000, validation_data=None, verbose=0)
        while True:
            fit(*call.args, **call.kwargs)

    keras.Model.fit = endless


def time_loops(windows: StepWindows) -> None:
    """Has every loop over a dataset timed: a step ends where the loop takes the next element."""
    import tensorflow as tf

    iterate = tf.data.Dataset.__iter__

    class Iterator:
        def __init__(self, dataset: Any) -> None:
            self._iterator = iterate(dataset)
            self._taken = False
            windows.epoch_begins()

        def __iter__(self) -> Iterator:
            return self

        def __next__(self) -> Any:
            if self._taken:
                windows.step_ends()
            self._taken = True
            return next(self._iterator)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._iterator, name)

    tf.data.Dataset.__iter__ = lambda dataset: Iterator(dataset)  # a function, so that it becomes a method


def main() -> None:
    path, kind, seconds, script, *arguments = sys.argv[1:]
    windows = StepWindows(path, float(seconds))
    {"fit": time_fit, "loop": time_loops}[kind](windows)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
