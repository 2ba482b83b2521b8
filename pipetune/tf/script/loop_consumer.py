"""Training by a Python loop: its iterator hands out windows of whatever the workflow asks for."""

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
    """The user's own Python loop: its iterator hands out windows of whatever the workflow asks for."""

    kind = "loop"

    def __init__(self, handed: HandedOver | None = None, *, taken: int = 1) -> None:
        """Takes what is known of the loop, on its thread.

        Args:
            handed: how a strategy took the dataset that the loop was written for; every other goes the same way.
            taken: elements that it has taken so far.
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
        self.thread = threading.get_ident()  # that took the last one
        self._asking = threading.Lock()  # a request is either served or dropped by `abandon`, never forgotten

    def wait_until_ready(self) -> None:
        """Returns when the script's thread stands in `next`, between two runs of its loop body."""
        self._arrived.wait()

    def counts(self, dataset: Any, *, steps: int, warmup: int) -> tuple[int, int]:
        """Steps and warm-up of a window, as `exactly` takes them."""
        return steps, warmup

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        return self._serve(dataset, steps=steps, warmup=warmup, again=True)

    def exactly(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """A window of just so many steps, whatever is compiled inside it."""
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
        """Called on the script's thread, from `next` of its iterator."""
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
        """The workflow is done: the next `next` of the script ends it."""
        self._stopping = True
        self._requests.put(None)

    def abandon(self, why: str) -> None:
        """The script has left its loop: no window will ever be served again."""
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
    """One window in a loop: pulled forward by the loop's own calls of `next`.

    Where a new shape was compiled inside it, it begins once more, on the same iterator, if it may.
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
        self._handed = handed
        self._each = handed.facts().elements_per_step if handed is not None else 1  # elements of the dataset in a step
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
        self._behind = 0  # 1: the window is opened and closed one step late, by the value of the one before
        self._returned = 0.0  # when the last element was handed out
        self._step_seconds: list[float] = []
        self._shapes_vary = compiling.shapes_vary(dataset.element_spec)
        self._shapes: set[tuple[object, ...]] = set()
        self._new_shapes = False

    def advance(self, produced: Any = None) -> tuple[bool, Any]:
        """(True, the next element), or (False, None) once the window is full.

        Args:
            produced: what the step made of the last element returned; None where that cannot be seen.
        """
        try:
            return self._advance(produced)
        except StopIteration:
            self.failure = RunFailed("The dataset is empty.")
        except Exception as error:  # on the script's thread: it is the window's to report, not the script's
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
        """Closes the window; False where it has to begin once more."""
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
