"""Training by a Python loop: its iterator serves the measuring windows that the workflow requests."""

from __future__ import annotations

import abc
import contextlib
import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pipetune.capture.consumption import ScriptStopped
from pipetune.capture.distributed_input import DistributedInput, endless
from pipetune.core.measurement import RunFailed, StepRaised, StepSeries, Window
from pipetune.pipelines.errors import first_line
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators
from pipetune.timing.steps import StepRecorder


class LoopConsumer:
    """The user's own Python loop: its iterator serves the windows and series that the workflow requests."""

    kind = "loop"

    def __init__(self, handed: DistributedInput | None = None, *, taken: int = 1) -> None:
        """Creates the consumer; must run on the thread of the loop.

        Args:
            handed: how a strategy distributed the loop's dataset; other datasets are distributed in the same way.
            taken: elements that the loop has taken so far.
        """
        self.description = "a Python loop"
        self._distributed_input = handed
        self._requests: queue.SimpleQueue[LoopRequest | None] = queue.SimpleQueue()
        self._current: LoopRequest | None = None
        self._waited_for: LoopRequest | None = None
        self._end_reason: str = ""
        self._stopping = False
        self._ready = threading.Event()
        self._closer = windows.DeviceSynchronizer()
        self.elements_taken = taken  # elements, before and in all windows
        self.thread = threading.get_ident()  # the thread that took the last element
        self._request_lock = threading.Lock()  # a request is either served or dropped by `abandon`, never lost

    def wait_until_ready(self) -> None:
        """Blocks until the script's thread is in `next`, between two runs of its loop body, or has left the loop."""
        self._ready.wait()

    def window_counts(self, dataset: Any, *, steps: int, warmup: int) -> tuple[int, int]:
        """Returns steps and warm-up of a window in the unit of `exact_window`: unchanged."""
        return steps, warmup

    def window(self, dataset: Any, *, steps: int, warmup: int, again: bool = True) -> Window:
        """Implements `Consumer.window`; one that includes compilation starts over once, unless `again` is false."""
        request = LoopWindow(
            dataset, steps=steps, warmup=warmup, closer=self._closer, handed=self._distributed_input, may_restart=again
        )
        self._serve(request)
        if request.result is None:
            raise RunFailed(self._end_reason or "The loop ended during a measuring window.")
        return request.result

    def exact_window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Returns a window of exactly `steps` steps, even if it includes compilation."""
        return self.window(dataset, steps=steps, warmup=warmup, again=False)

    def record_steps(self, dataset: Any, *, steps: int, seconds: float) -> StepSeries:
        """Implements `Consumer.record_steps`; what the script does between epochs does not run."""
        recorder = StepRecorder(steps=steps, seconds=seconds)
        self._serve(LoopSteps(dataset, recorder, handed=self._distributed_input))
        return recorder.series()

    def _serve(self, request: LoopRequest) -> None:
        with self._request_lock:
            if self._end_reason:
                raise RunFailed(self._end_reason)
            self._waited_for = request
            self._requests.put(request)
        request.done.wait()
        free_iterators()
        request.raise_failure()

    def next_element(self) -> Any:
        """Returns the next element of the current window; called on the script's thread, from `next` of its iterator.

        Blocks until a window is requested.

        Raises:
            ScriptStopped: the workflow is done.
        """
        self._ready.set()
        self.thread = threading.get_ident()
        while True:
            if self._current is not None:
                more, element = self._current.advance()
                if more:
                    self.elements_taken += 1
                    return element
                self._current = None
            if self._stopping:
                raise ScriptStopped
            request = self._requests.get()
            if request is None:
                self._requests.put(None)  # for another thread that takes elements, too
                raise ScriptStopped
            self._current = request

    def stop(self) -> None:
        """Makes the script's next call of `next` end the script, because the workflow is done."""
        self._stopping = True
        self._requests.put(None)

    def abandon(self, why: str) -> None:
        """Fails this and all later windows for the reason `why`: the script has left its loop.

        What is waited for need not be in the queue, nor be the current request: an interrupt may end the loop's thread
        between the two.
        """
        with self._request_lock:
            self._end_reason = self._end_reason or why
            self._ready.set()
            self._current = None
            while not self._requests.empty():
                self._requests.get()
            if self._waited_for is not None:
                self._waited_for.drop()


class LoopRequest(abc.ABC):
    """Training steps that a loop takes on request: what its own calls of `next` return."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failure: Exception | None = None
        self._iterator: Any = None

    def advance(self, produced: Any = None) -> tuple[bool, Any]:
        """Returns (True, the next element), or (False, None) once there are enough or one has failed.

        Args:
            produced: the value that the step on the last element returned; None if it cannot be seen.
        """
        try:
            more, element = self._advance(produced)
            if more:
                return True, element
        except StopIteration:
            self.failure = RunFailed("The dataset is empty.")
        except Exception as error:  # on the script's thread: the request reports it, the script does not see it
            self.failure = error
        self.drop()
        return False, None

    def drop(self) -> None:
        """Frees the iterator and wakes the thread that waits for the request; what is missing then has failed."""
        self._iterator = None
        self.done.set()

    def raise_failure(self) -> None:
        """Raises RunFailed if anything has failed; its cause is what the step or its input raised."""
        if self.failure is not None:
            raise RunFailed(f"The step or its input raised an error: {first_line(self.failure)}") from self.failure

    @abc.abstractmethod
    def _advance(self, produced: Any) -> tuple[bool, Any]:
        """Implements `advance`; may raise."""


class LoopSteps(LoopRequest):
    """Single training steps of a loop, with a new iterator in each epoch."""

    def __init__(self, dataset: Any, recorder: StepRecorder, *, handed: DistributedInput | None = None) -> None:
        """Takes what records the steps; the dataset is distributed as `handed`, the loop's own, was by a strategy."""
        super().__init__()
        self._dataset, self._recorder, self._distributed_input = dataset, recorder, handed
        self._taken = (0.0, False)  # of the last element: the wait for it, and whether it was the first of an epoch

    def _advance(self, produced: Any) -> tuple[bool, Any]:
        if self._iterator is not None and not self._recorder.end(lambda: self._taken):
            return False, None
        self._recorder.begin()
        requested = time.perf_counter()
        element, new_epoch = self._take()
        self._taken = time.perf_counter() - requested, new_epoch
        self._recorder.keep_pace(produced)
        return True, element

    def _take(self) -> tuple[Any, bool]:
        if self._iterator is not None:
            with contextlib.suppress(StopIteration):
                return next(self._iterator), False
        handed = self._distributed_input
        self._iterator = iter(self._dataset if handed is None else handed.distribute(self._dataset))
        return next(self._iterator), True


class LoopWindow(LoopRequest):
    """One measuring window in a loop, advanced by the loop's own calls of `next`.

    If something was compiled inside it, it starts over once, on the same iterator, if `may_restart` allows that.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        steps: int,
        warmup: int,
        closer: windows.DeviceSynchronizer | None = None,
        handed: DistributedInput | None = None,
        may_restart: bool = True,
    ) -> None:
        """Creates the window; it opens after `warmup` calls of `advance`.

        Args:
            dataset: repeated indefinitely.
            steps: elements of the dataset to measure, rounded up to whole training steps.
            warmup: training steps before the window opens.
            closer: waits for queued work of the training steps; None: a new one.
            handed: how a strategy distributed the loop's dataset; `dataset` is distributed in the same way.
            may_restart: whether the window may start over.
        """
        super().__init__()
        self._distributed_input = handed
        self._elements_per_step = handed.handover.elements_per_step if handed is not None else 1
        steps = -(-steps // self._elements_per_step)
        self.result: Window | None = None
        self._dataset, self._steps, self._opens_after = dataset, steps, warmup
        self._close = closer or windows.DeviceSynchronizer()
        self._steps_taken = -1
        self._examples, self._wait, self._first_seconds = 0, 0.0, 0.0
        self._may_restart = may_restart
        self._previous_value: Any = None  # the value returned by the step before the last one
        self._delay = 0  # 1: the window opens and closes one step late, by reading the value of the previous step
        self._returned = 0.0  # when the last element was returned to the loop
        self._step_seconds: list[float] = []
        self._shapes_vary = windows.shapes_vary(dataset.element_spec)
        self._shapes: set[tuple[object, ...]] = set()
        self._new_shapes = False

    def _advance(self, produced: Any) -> tuple[bool, Any]:
        arrived = time.perf_counter()
        self._steps_taken += 1
        if self._steps_taken > self._opens_after + self._delay:
            self._step_seconds.append(arrived - self._returned)
        value, self._previous_value = (self._previous_value if self._delay else produced), produced
        if self._steps_taken == self._opens_after + self._steps + self._delay and self._try_close(value):
            return False, None
        if self._steps_taken == self._opens_after:
            self._delay = int(produced is not None)
        if self._steps_taken == self._opens_after + self._delay:
            self._close(value)
            self._open()
            arrived = time.perf_counter()
        if self._iterator is None:
            self._iterator = iter(endless(self._dataset, self._distributed_input))
        element = next(self._iterator)
        self._returned = time.perf_counter()
        waited = self._returned - arrived
        if self._steps_taken == 0:
            self._first_seconds = waited
        self._wait += waited
        self._examples += windows.row_count(element)
        if self._shapes_vary:
            shape = windows.signature(element)
            self._new_shapes = self._new_shapes or shape not in self._shapes
            self._shapes.add(shape)
        return True, element

    def _open(self) -> None:
        self._wait, self._examples, self._step_seconds, self._new_shapes = 0.0, 0, [], False
        self._timer = windows.WindowTimer()

    def _try_close(self, produced: Any) -> bool:
        """Closes the window; returns False if it starts over instead."""
        self._close(produced)
        timer = self._timer
        timer.stop()
        compile_seconds = timer.compile_seconds(self._step_seconds, new_shapes=self._new_shapes)
        if compile_seconds and self._may_restart:
            self._may_restart, self._opens_after = False, self._steps_taken
            return False
        self.result = Window(
            steps=self._steps * self._elements_per_step,
            examples=max(1, self._examples),
            wall_seconds=timer.wall_seconds,
            cpu_seconds=timer.cpu_seconds,
            first_seconds=self._first_seconds,
            wait_seconds=self._wait,
            compile_seconds=compile_seconds,
            others_seconds=timer.others_seconds,
            cores=timer.cores,
        )
        return True


class StepConsumer:
    """A function called with each element, as passed to `pipetune.tune(dataset, step=...)`."""

    kind = "step"

    def __init__(self, step: Callable[..., Any]) -> None:
        self.description = "a step function"
        self._step = step
        self._closer = windows.DeviceSynchronizer()

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Implements `Consumer.window`.

        Raises:
            StepRaised: the step raised; the cause is its exception.
            RunFailed: the input raised.
        """
        window = LoopWindow(dataset, steps=steps, warmup=warmup, closer=self._closer)
        self._serve(window)
        assert window.result is not None
        return window.result

    def record_steps(self, dataset: Any, *, steps: int, seconds: float) -> StepSeries:
        """Implements `Consumer.record_steps`; raises as `window` does."""
        recorder = StepRecorder(steps=steps, seconds=seconds)
        self._serve(LoopSteps(dataset, recorder))
        return recorder.series()

    def _serve(self, request: LoopRequest) -> None:
        produced = None
        while True:
            more, element = request.advance(produced)
            if not more:
                break
            try:
                produced = call_step(self._step, element)
            except Exception as error:  # whatever the user's own step raises
                request.drop()
                raise StepRaised(f"The step raised {type(error).__name__}: {first_line(error)}") from error
        free_iterators()
        request.raise_failure()


class EmulatedConsumer(StepConsumer):
    """Emulates a step of `seconds` on an accelerator that works while the host fetches the next element."""

    kind = "emulated"

    def __init__(self, seconds: float) -> None:
        super().__init__(EmulatedAccelerator(seconds))
        self.description = f"an emulated step of {seconds * 1e3:g} ms"


class EmulatedAccelerator:
    """Emulates an accelerator: queues steps, runs them in parallel to the host, and waits when a value is read."""

    QUEUED = 2
    """Maximum number of steps in the queue, one running and one waiting; the host blocks while it is full."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._queue: deque[PendingStep] = deque()
        self._free_at = 0.0

    def __call__(self, *_element: Any) -> PendingStep:
        while self._queue and (len(self._queue) >= self.QUEUED or self._queue[0].done):
            self._queue.popleft().block_until_ready()
        self._free_at = max(time.perf_counter(), self._free_at) + self._seconds
        self._queue.append(PendingStep(self._free_at))
        return self._queue[-1]


class PendingStep:
    """The value of a queued step, available at a known time."""

    def __init__(self, ready_at: float) -> None:
        self._ready_at = ready_at

    @property
    def done(self) -> bool:
        return time.perf_counter() >= self._ready_at

    def block_until_ready(self) -> None:
        while (left := self._ready_at - time.perf_counter()) > 0:
            time.sleep(left)


def call_step(step: Callable[..., Any], element: Any) -> Any:
    """Calls a step as its signature requires, `step(x, y)` for a tuple or `step(element)`, and returns its value."""
    if isinstance(element, tuple):
        try:
            inspect.signature(step).bind(*element)
        except TypeError:
            return step(element)
        except ValueError:
            pass
        return step(*element)
    return step(element)
