"""The input wait of training as it runs, light enough for production: the loop's own times, and the line at the end.

`pipetune.keras` does the same inside `Model.fit`. Neither imports what analyses a script.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipetune.core.profile import NOT_BOUND_BELOW

Element = TypeVar("Element")


@dataclass(frozen=True)
class InputWait:
    """How long training steps took, and how much of that they waited for their input."""

    steps: int = 0
    seconds: float = 0.0  # that the steps took, waiting included
    wait_seconds: float = 0.0

    @property
    def share(self) -> float | None:
        """The share of the steps' time spent waiting for input, 0 to 1; None if nothing was measured."""
        return min(1.0, max(0.0, self.wait_seconds / self.seconds)) if self.steps and self.seconds else None

    def __add__(self, other: InputWait) -> InputWait:
        return InputWait(self.steps + other.steps, self.seconds + other.seconds, self.wait_seconds + other.wait_seconds)

    def summary(self, unavailable: str = "") -> str:
        """Returns one line about the wait, which names the next command if a faster input can gain something.

        Args:
            unavailable: why nothing could be measured; '' if there were too few steps.
        """
        if self.share is None:
            return f"Input wait not available: {unavailable or 'fewer than two steps in a row took less than 10 s'}."
        sentence = f"Input wait {100 * self.share:.0f} % of {self.steps:,} steps"
        return f"{sentence}: {_next_step()} may help." if self.share >= NOT_BOUND_BELOW else f"{sentence}."


def _next_step() -> str:
    """Returns what analyses this training: a command for a script or a module, a function in a notebook."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return f"`pipetune analyze -m {spec.name.removesuffix('.__main__')}`"
    return f"`pipetune analyze {os.path.relpath(file)}`" if file else "`pipetune.tune(dataset)`"


class LoopMonitor(Generic[Element]):
    """Yields the elements of a dataset, and measures how long the loop over them waits for each."""

    def __init__(self, dataset: Iterable[Element], *, quiet: bool = False) -> None:
        """Stores what is iterated; see `monitor`."""
        self._dataset = dataset
        self._compiled = False  # the first step is over
        self._silent = quiet
        self._steps = 0
        self._seconds = self._wait_seconds = 0.0

    def __iter__(self) -> Iterator[Element]:
        clock = time.perf_counter
        requested = clock()
        try:
            for element in self._dataset:
                received = clock()
                yield element
                finished = clock()
                if self._compiled:
                    self._steps += 1
                    self._seconds += finished - requested
                    self._wait_seconds += received - requested
                self._compiled, requested = True, finished
        finally:
            if self._steps and not self._silent:
                self._silent = True
                print(self._wait.summary())

    @property
    def _wait(self) -> InputWait:
        return InputWait(self._steps, self._seconds, self._wait_seconds)

    @property
    def input_wait(self) -> float | None:
        """The share of the steps' time spent waiting for input so far, 0 to 1; None if nothing was measured."""
        return self._wait.share

    @property
    def steps(self) -> int:
        """The number of steps measured so far."""
        return self._steps

    @property
    def seconds(self) -> float:
        """The seconds that these steps took, waiting included."""
        return self._seconds

    @property
    def wait_seconds(self) -> float:
        """The seconds that these steps waited for input."""
        return self._wait_seconds


def monitor(dataset: Iterable[Element], *, quiet: bool = False) -> LoopMonitor[Element]:
    """Measures how much of a training loop is spent waiting for its input: `for batch in pipetune.monitor(dataset)`.

    The wait is the time inside `next`, against the whole of a step, from one `next` to the following. The first step
    of all is not counted, because it compiles; nor is one that `break` or an exception leaves unfinished. Where steps
    run on an accelerator, the loop has to read a result of each step (a loss): otherwise steps are only queued, and
    the time in `next` is no wait.

    Args:
        dataset: a `tf.data.Dataset`, its `as_numpy_iterator()`, or anything else that can be iterated. Its elements are
            passed on as they are.
        quiet: whether nothing is printed. Otherwise one line is, when the first loop ends.

    Returns:
        An iterable, for one loop or several. Its properties `input_wait` (a share), `steps`, `seconds` and
        `wait_seconds` sum up all loops so far, also while one runs.
    """
    return LoopMonitor(dataset, quiet=quiet)
