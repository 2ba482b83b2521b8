"""Training by a Python loop: its iterator serves the measuring windows that the workflow requests."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from pipetune.core.measurement import RunFailed, Window
from pipetune.tf.error_text import first_line
from pipetune.tf.measure import closing, compiling, windows
from pipetune.tf.script.consumers import ScriptStopped
from pipetune.tf.script.handing_over import HandedOver


class LoopConsumer:
    """The user's own Python loop: its iterator serves the measuring windows that the workflow requests."""

    kind = "loop"

    def __init__(self, handed: HandedOver | None = None, *, taken: int = 1) -> None:
        """Creates the consumer; must run on the thread of the loop.

        Args:
            handed: how a strategy distributed the loop's dataset; every other is distributed in the same way.
            taken: elements that the loop has taken so far.
        """
        self.sentence = "a Python loop"
        self._handed = handed
        self._requests: queue.SimpleQueue[LoopWindow | None] = queue.SimpleQueue()
        self._current: LoopWindow | None = None
        self._ended: str = ""
        self._stopping = False
        self._arrived = threading.Event()
        self._closer = closing.Closer()
        self.taken = taken  # elements, before and in all windows
        self.thread = threading.get_ident()  # that took the last element
        self._asking = threading.Lock()  # a request is either served or dropped by `abandon`, never lost

    def wait_until_ready(self) -> None:
        """Blocks until the script's thread is in `next`, between two runs of its loop body, or has left the loop."""
        self._arrived.wait()

    def counts(self, dataset: Any, *, steps: int, warmup: int) -> tuple[int, int]:
        """Returns steps and warm-up of a window in the unit of `exactly`: unchanged."""
        return steps, warmup

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        return self._serve(dataset, steps=steps, warmup=warmup, again=True)

    def exactly(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Measures a window of exactly `steps` steps, even if it includes compilation."""
        return self._serve(dataset, steps=steps, warmup=warmup, again=False)

    def _serve(self, dataset: Any, *, steps: int, warmup: int, again: bool) -> Window:
        wanted = LoopWindow(
            dataset, steps=steps, warmup=warmup, closer=self._closer, handed=self._handed, again=again
        )
        with self._asking:
            if self._ended:
                raise RunFailed(self._ended)
            self._requests.put(wanted)
        wanted.done.wait()
        windows.settle()
        if wanted.failure is not None:
            raise RunFailed(
                f"The step or its input raised: {first_line(wanted.failure)}"
            ) from wanted.failure
        if wanted.result is None:
            raise RunFailed(self._ended or "The loop ended in the middle of a window.")
        return wanted.result

    def next_element(self) -> Any:
        """Returns the next element of the current window; called on the script's thread, from `next` of its iterator.

        Blocks until a window is requested.

        Raises:
            ScriptStopped: the workflow is done.
        """
        self._arrived.set()
        self.thread = threading.get_ident()
        while True:
            if self._current is not None:
                more, element = self._current.advance()
                if more:
                    self.taken += 1
                    return element
                self._current = None
            if self._stopping:
                raise ScriptStopped
            request = self._requests.get()
            if request is None:
                self._stopping = True
                raise ScriptStopped
            self._current = request

    def stop(self) -> None:
        """Has the script's next call of `next` end the script: the workflow is done."""
        self._stopping = True
        self._requests.put(None)

    def abandon(self, why: str) -> None:
        """Fails this and all later windows for the reason `why`: the script has left its loop."""
        with self._asking:
            self._ended = self._ended or why
            self._arrived.set()
            if self._current is not None:
                self._current.drop()
                self._current = None
            while not self._requests.empty():
                request = self._requests.get()
                if request is not None:
                    request.drop()


class LoopWindow:
    """One measuring window in a loop, advanced by the loop's own calls of `next`.

    If something was compiled inside it, it starts over once, on the same iterator, if `again` allows that.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        steps: int,
        warmup: int,
        closer: closing.Closer | None = None,
        handed: HandedOver | None = None,
        again: bool = True,
    ) -> None:
        """Creates the window; it opens after `warmup` calls of `advance`.

        Args:
            dataset: repeated indefinitely.
            steps: elements of the dataset to measure, rounded up to whole training steps.
            warmup: training steps before the window opens.
            closer: waits for queued work of the training steps; None: a new one.
            handed: how a strategy distributed the loop's dataset; `dataset` is distributed in the same way.
            again: whether the window may start over.
        """
        self._handed = handed
        self._each = handed.facts().elements_per_step if handed is not None else 1  # elements of the dataset per step
        steps = -(-steps // self._each)
        self.done = threading.Event()
        self.result: Window | None = None
        self.failure: Exception | None = None
        self._dataset, self._steps, self._begins = dataset, steps, warmup
        self._close = closer or closing.Closer()
        self._iterator: Any = None
        self._taken = -1
        self._examples = 0
        self._wait = 0.0
        self._first = self._start = self._cpu_start = 0.0
        self._may_begin_again = again
        self._before: Any = None  # what the step before the last one returned
        self._behind = 0  # 1: the window opens and closes one step late, by the value of the step before
        self._returned = 0.0  # when the last element was returned to the loop
        self._step_seconds: list[float] = []
        self._shapes_vary = compiling.shapes_vary(dataset.element_spec)
        self._shapes: set[tuple[object, ...]] = set()
        self._new_shapes = False

    def advance(self, produced: Any = None) -> tuple[bool, Any]:
        """Returns (True, the next element), or (False, None) once the window is full or has failed.

        Args:
            produced: the value that the step on the last element returned; None if it cannot be seen.
        """
        try:
            return self._advance(produced)
        except StopIteration:
            self.failure = RunFailed("The dataset is empty.")
        except Exception as error:  # on the script's thread: the window reports it, the script does not see it
            self.failure = error
        self.drop()
        return False, None

    def _advance(self, produced: Any) -> tuple[bool, Any]:
        arrived = time.perf_counter()
        self._taken += 1
        if self._taken > self._begins + self._behind:
            self._step_seconds.append(arrived - self._returned)
        value, self._before = (self._before if self._behind else produced), produced
        if self._taken == self._begins + self._steps + self._behind and self._full(value):
            self.drop()
            return False, None
        if self._taken == self._begins:
            self._behind = int(produced is not None)
        if self._taken == self._begins + self._behind:
            self._close(value)
            self._open()
            arrived = time.perf_counter()
        if self._iterator is None:
            endless = windows.endless if self._handed is None else self._handed.endless
            self._iterator = iter(endless(self._dataset))
        element = next(self._iterator)
        self._returned = time.perf_counter()
        waited = self._returned - arrived
        if self._taken == 0:
            self._first = waited
        self._wait += waited
        self._examples += windows.rows(element)
        if self._shapes_vary:
            shape = compiling.signature(element)
            self._new_shapes = self._new_shapes or shape not in self._shapes
            self._shapes.add(shape)
        return True, element

    def _open(self) -> None:
        self._watch = compiling.Watch()
        self._wait, self._examples, self._step_seconds, self._new_shapes = 0.0, 0, [], False
        self._start, self._cpu_start = time.perf_counter(), time.process_time()

    def _full(self, produced: Any) -> bool:
        """Closes the window; returns False if it starts over instead."""
        self._close(produced)
        now, cpu_now = time.perf_counter(), time.process_time()
        compile_seconds = self._watch.compile_seconds(self._step_seconds, new_shapes=self._new_shapes)
        if compile_seconds and self._may_begin_again:
            self._may_begin_again, self._begins = False, self._taken
            return False
        self.result = Window(
            steps=self._steps * self._each,
            examples=max(1, self._examples),
            wall_seconds=now - self._start,
            cpu_seconds=cpu_now - self._cpu_start,
            first_seconds=self._first,
            wait_seconds=self._wait,
            compile_seconds=compile_seconds,
        )
        return True

    def drop(self) -> None:
        self._iterator = None
        self.done.set()
