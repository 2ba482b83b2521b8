"""Training by a function called with each element, and by an emulated step of a given duration."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pipetune.core.measurement import RunFailed, StepRaised, Window
from pipetune.tf.error_text import first_line
from pipetune.tf.measure import closing, windows
from pipetune.tf.script.loop_consumer import LoopWindow


class StepConsumer:
    """A function called with each element, as passed to `pipetune.tune(dataset, step=...)`."""

    kind = "step"

    def __init__(self, step: Callable[..., Any]) -> None:
        self.sentence = "a step function"
        self._step = step
        self._closer = closing.Closer()

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        window = LoopWindow(dataset, steps=steps, warmup=warmup, closer=self._closer)
        produced = None
        while True:
            more, element = window.advance(produced)
            if not more:
                break
            try:
                produced = call_step(self._step, element)
            except Exception as error:  # whatever the user's own step raises
                window.drop()
                raise StepRaised(f"The step raised {type(error).__name__}: {first_line(error)}") from error
        windows.settle()
        if window.result is None:
            raise RunFailed(f"The step or its input raised: {first_line(window.failure)}") from window.failure
        return window.result


class EmulatedConsumer(StepConsumer):
    """Emulates a step of `seconds` on an accelerator that works while the host fetches the next element."""

    kind = "emulated"

    def __init__(self, seconds: float) -> None:
        super().__init__(EmulatedAccelerator(seconds))
        self.sentence = f"an emulated step of {seconds * 1e3:g} ms"


class EmulatedAccelerator:
    """A step that is queued, runs in parallel to the host, and is waited for when its value is read."""

    QUEUED = 2
    """Most steps in the queue, one running and one waiting; the host blocks while there are as many."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._queue: deque[Queued] = deque()
        self._free_at = 0.0

    def __call__(self, *_element: Any) -> Queued:
        while self._queue and (len(self._queue) >= self.QUEUED or self._queue[0].done):
            self._queue.popleft().block_until_ready()
        self._free_at = max(time.perf_counter(), self._free_at) + self._seconds
        self._queue.append(Queued(self._free_at))
        return self._queue[-1]


class Queued:
    """The value of a queued step, available at a known time."""

    def __init__(self, ready_at: float) -> None:
        self._ready_at = ready_at

    @property
    def done(self) -> bool:
        return time.perf_counter() >= self._ready_at

    def block_until_ready(self) -> None:
        """Blocks until the step is done."""
        while (left := self._ready_at - time.perf_counter()) > 0:
            time.sleep(left)


def call_step(step: Callable[..., Any], element: Any) -> Any:
    """Calls a step as its signature requires: `step(x, y)` for a tuple, or `step(element)`."""
    if isinstance(element, tuple):
        try:
            inspect.signature(step).bind(*element)
        except TypeError:
            return step(element)
        except ValueError:
            pass
        return step(*element)
    return step(element)
