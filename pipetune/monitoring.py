"""The input wait of training as it runs, light enough for production: the loop's own times, and the line at the end.

`pipetune.keras` does the same inside `Model.fit`. Neither imports what analyses a script.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from pipetune.core.input_wait import InputWait

if TYPE_CHECKING:
    from pipetune.timing.gap_times import InputClock

Element = TypeVar("Element")


class LoopMonitor(Generic[Element]):
    """Yields the elements of a dataset, and measures how long the loop over them waits for each."""

    def __init__(self, dataset: Iterable[Element], *, quiet: bool = False) -> None:
        """Stores what is iterated; see `monitor`."""
        self._dataset = dataset
        self._silent = quiet
        self._compiled = False  # the first step is over
        self._steps = 0
        self._seconds = self._wait_seconds = 0.0  # the wait: inside `next`
        self._runtime: InputClock | None = None  # where the runtime measures it
        self._earlier = InputWait()  # of earlier loops, by the runtime

    def __iter__(self) -> Iterator[Element]:
        iterator, clock = iter(self._dataset), time.perf_counter
        runtime = self._runtime = self._runtime or _runtime_clock(iterator)
        requested, finished = clock(), True
        if runtime is not None:
            runtime.begin_step(iterator)
        try:
            for element in iterator:
                received, finished = clock(), False
                yield element
                now, finished = clock(), True
                if self._compiled:
                    self._steps += 1
                    self._seconds += now - requested
                    self._wait_seconds += received - requested
                self._compiled, requested = True, now
                if runtime is not None:
                    runtime.end_step()
                    runtime.begin_step(iterator)
        finally:
            if runtime is not None:
                if not finished:
                    runtime.end_step()  # the last step of a loop is not counted
                self._earlier += runtime.end_epoch()
            if self.steps and not self._silent:
                self._silent = True
                print(self._wait.summary())

    @property
    def _wait(self) -> InputWait:
        if self._runtime is None or self._runtime.unavailable:
            return InputWait(self._steps, self._seconds, self._wait_seconds)
        return self._earlier + self._runtime.epoch

    @property
    def input_wait(self) -> float | None:
        """The share of the steps' time spent waiting for input so far, 0 to 1; None if nothing was measured."""
        return self._wait.share

    @property
    def steps(self) -> int:
        """The number of steps measured so far."""
        return self._wait.steps

    @property
    def seconds(self) -> float:
        """The seconds that these steps took, waiting included."""
        return self._wait.seconds

    @property
    def wait_seconds(self) -> float:
        """The seconds that these steps waited for input."""
        return self._wait.wait_seconds


def _runtime_clock(iterator: object) -> InputClock | None:
    """Returns a clock that reads what the runtime of tf.data measures; None if it does not provide the elements."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not isinstance(iterator, tensorflow.data.Iterator):
        return None
    from pipetune.timing.gap_times import InputClock

    return InputClock()


def monitor(dataset: Iterable[Element], *, quiet: bool = False) -> LoopMonitor[Element]:
    """Measures how much of a training loop is spent waiting for its input: `for batch in pipetune.monitor(dataset)`.

    The wait is the time from the request for an element to its delivery, against the whole of a step, from one request
    to the following. The runtime of tf.data measures it; for other iterables, and where the runtime's model is switched
    off, it is the time inside `next`, which is some 0.1 to 0.6 ms longer. The first step of all is not counted, because
    it compiles; nor is one that `break` or an exception leaves unfinished. Where steps run on an accelerator, the loop
    has to read a result of each step (a loss): otherwise steps are only queued, and the time is no wait.

    Args:
        dataset: a `tf.data.Dataset`, its `as_numpy_iterator()`, or anything else that can be iterated. Its elements are
            passed on as they are.
        quiet: whether nothing is printed. Otherwise one line is, when the first loop ends.

    Returns:
        An iterable, for one loop or several. Its properties `input_wait` (a share), `steps`, `seconds` and
        `wait_seconds` sum up all loops so far, also while one runs.
    """
    return LoopMonitor(dataset, quiet=quiet)
