"""Training by a coordinator of parameter servers: measures windows of the steps that it schedules."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import protection
from pipetune.capture.worker_dataset import WorkerDataset
from pipetune.core.cluster import task_from_environment
from pipetune.core.results import RunFailed, StepSeries, Window
from pipetune.pipelines.errors import first_line
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators

_MOST_ELEMENTS = 128  # elements that one call may take from its iterator
_RECOVERY_SECONDS = 60.0  # longest wait for a lost worker to come back
_POLL_SECONDS = 0.5  # between two checks whether it has come back


@dataclass(frozen=True, eq=False)
class ScheduledCall:
    """One call of `schedule` as the script makes it."""

    function: Any
    args: Any
    kwargs: Any
    iterator: Any  # the per-worker iterator among the arguments
    schedule: Any  # the coordinator's own method
    file: str = ""
    line: int = 0
    by_fit: bool = False  # Keras makes the call

    def with_iterator(self, iterator: Any) -> tuple[Any, Any]:
        """Returns the positional and keyword arguments with `iterator` in place of the script's."""
        given = (self.args or (), self.kwargs or {})
        args, kwargs = tf.nest.map_structure(lambda value: iterator if value is self.iterator else value, given)
        return args, kwargs

    def multi_step_function(self, number: int) -> Any:
        """Returns a `tf.function` that runs the scheduled function `number` times."""
        step = self.function

        def many(*args: Any, **kwargs: Any) -> Any:
            def one(done: Any) -> Any:
                step(*args, **kwargs)
                return done + 1

            tf.while_loop(lambda done: done < number - 1, one, [tf.constant(0)])
            return step(*args, **kwargs)

        return tf.function(many, autograph=False)


class CoordinatorConsumer:
    """Repeats the script's `schedule` call as often as a window needs, and joins.

    A step of a window is one step per worker: as many calls as there are workers, whichever of them executes each call.
    """

    kind = "coordinator"

    def __init__(self, scheduled: ScheduledCall, per_worker: WorkerDataset, *, workers: int) -> None:
        """Stores the scheduled call; `prepare` checks whether it can run on another dataset."""
        self.scheduled, self.workers = scheduled, workers
        among = f"{workers} workers" if workers > 1 else "one worker"
        self.description = f"{'Model.fit' if scheduled.by_fit else 'ClusterCoordinator.schedule'}, on {among}"
        self._per_worker, self._coordinator = per_worker, per_worker.coordinator
        self._workers_local = task_from_environment(os.environ) is None  # CPU time on other machines is unknown
        self._elements_per_call = 1  # elements that one call takes from its iterator
        self._steps_per_call, self._function = 1, scheduled.function
        self._known_losses = tensorflow_private.worker_failures()  # when all workers were last available
        self._multi_step_functions: dict[int, Any] = {}  # functions of several steps, cached: each is traced once

    def prepare(self) -> None:
        """Runs steps on every worker with the script's dataset, sent like any other, and counts elements per call.

        Restores the script's variables. Frees its own iterators, which would keep filling their buffers.

        Raises:
            RunFailed: no other dataset can be served; the message is the reason.
        """
        kept = protection.Snapshot()
        try:
            with _quiet():
                self._elements_per_call = self._elements_of_a_call()
        finally:
            kept.restore()
        tensorflow_private.free_on_workers(self.scheduled.iterator)

    def _elements_of_a_call(self) -> int:
        most = 1
        while not self._suffices(most):
            most *= 2
            if most > _MOST_ELEMENTS:
                raise RunFailed(f"One scheduled call takes more than {_MOST_ELEMENTS} elements.")
        if self._suffices(most, calls=2):
            raise RunFailed(
                "The scheduled function reads its iterator to the end, so a measuring window would never finish."
            )
        too_few = most // 2
        while most - too_few > 1:
            middle = (most + too_few) // 2
            most, too_few = (middle, too_few) if self._suffices(middle) else (most, middle)
        return most

    def _suffices(self, elements: int, *, calls: int = 1) -> bool:
        """Whether `elements` elements suffice for `calls` calls on each worker."""
        try:
            iterator = self._per_worker.finite_iterator(elements, self.scheduled.iterator)
            for _ in range(calls):
                self._step_on_workers(iterator)
        except tf.errors.OutOfRangeError:
            return False
        except RunFailed:
            raise
        except Exception as error:  # whatever the user's own step, or building the dataset on a worker, raises
            raise _failed(error) from error
        return True

    def _step_on_workers(self, iterator: Any) -> None:
        args, kwargs = self.scheduled.with_iterator(iterator)
        tensorflow_private.run_step_on_workers(self._coordinator, self._function, args, kwargs)

    @property
    def accepts_multi_step_calls(self) -> bool:
        """Whether several steps can be put into one call: not if the script already does so."""
        return self._elements_per_call == 1 and self._steps_per_call == 1

    @contextlib.contextmanager
    def multi_step_calls(self, number: int) -> Iterator[None]:
        """Context manager: every call that a window schedules takes `number` steps while it is open."""
        if number not in self._multi_step_functions:
            self._multi_step_functions[number] = self.scheduled.multi_step_function(number)
        self._steps_per_call, self._function = number, self._multi_step_functions[number]
        try:
            yield
        finally:
            self._steps_per_call, self._function = 1, self.scheduled.function

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Returns a window in which no worker was lost; if one was, the window is repeated once after it is back.

        The coordinator reassigns the steps of a lost worker and raises no error: the time would be that of fewer
        workers, or would include waiting for the lost one.

        Raises:
            RunFailed: a step failed, a worker did not come back, or a worker was lost again.
        """
        for _ in range(2):
            self._wait_for_lost_workers()
            try:
                taken = self._window(dataset, steps=steps, warmup=warmup)
            except RunFailed:
                if tensorflow_private.worker_failures() == self._known_losses:
                    raise
            else:
                if tensorflow_private.worker_failures() == self._known_losses:
                    return taken
        raise RunFailed("A worker was lost during a measuring window, and again when the window was repeated.")

    def record_steps(self, dataset: Any, *, steps: int, seconds: float) -> StepSeries:
        """Raises RunFailed: the coordinator does not show when a worker begins a step."""
        raise RunFailed("The coordinator's workers take steps at the same time, and do not show when each begins.")

    def _wait_for_lost_workers(self) -> None:
        end = time.monotonic() + _RECOVERY_SECONDS
        while self._known_losses != tensorflow_private.worker_failures():
            lost = tensorflow_private.worker_failures()
            if tensorflow_private.workers_available(self._coordinator) and lost == tensorflow_private.worker_failures():
                self._known_losses = lost
            elif time.monotonic() > end:
                raise RunFailed(f"A worker was lost, and did not come back within {_RECOVERY_SECONDS:.0f} s.")
            else:
                time.sleep(_POLL_SECONDS)

    def _window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        each = self._steps_per_call * self._elements_per_call  # elements that one call takes
        calls = -(-steps // each)  # per worker
        free_iterators()
        started = time.perf_counter()
        try:
            iterator = self._per_worker.iterator(dataset, self.scheduled.iterator)
            self._step_on_workers(iterator)  # tracing happens here
            first = time.perf_counter()
            for _ in range(1, -(-warmup // each)):
                self._step_on_workers(iterator)
            timer = windows.WindowTimer()
            args, kwargs = self.scheduled.with_iterator(iterator)
            for _ in range(calls * self.workers):
                self.scheduled.schedule(self._function, args=args, kwargs=kwargs)
            self._coordinator.join()
            timer.stop()
        except RunFailed:
            raise
        except Exception as error:  # whatever the user's own step raises ends this window, not pipetune
            raise _failed(error) from error
        finally:
            iterator = args = kwargs = None
            free_iterators()
        return Window(
            steps=calls * each,
            examples=calls * each,
            wall_seconds=timer.wall_seconds,
            cpu_seconds=timer.cpu_seconds if self._workers_local else 0.0,
            first_seconds=first - started,
            compile_seconds=timer.compile_seconds([timer.wall_seconds], new_shapes=False),
        )


def _failed(error: BaseException) -> RunFailed:
    raised = tensorflow_private.unwrap_worker_error(error)
    return RunFailed(f"On a worker, {type(raised).__name__} was raised: {first_line(raised)}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context manager: keeps TensorFlow from logging the end of the data as a worker error."""
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
