"""Training by a ClusterCoordinator: repeats what the script schedules on each variant of its dataset.

Source: the "Parameter server training" guide of TensorFlow, on `schedule`, `join` and several steps in a function.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.core.cluster import place_in
from pipetune.core.measurement import RunFailed, Window
from pipetune.tf import private
from pipetune.tf.error_text import first_line
from pipetune.tf.measure import compiling, windows
from pipetune.tf.script import state
from pipetune.tf.script.per_worker import PerWorker

_MOST_ELEMENTS = 128  # that one call may take from its iterator
_AWAY_SECONDS = 60.0  # for a lost worker to come back
_LOOK_SECONDS = 0.5  # between two checks whether it has come back


@dataclass(frozen=True, eq=False)
class Scheduled:
    """One call of `schedule` as the script makes it."""

    function: Any
    args: Any
    kwargs: Any
    iterator: Any  # the per-worker iterator among the arguments
    schedule: Any  # the coordinator's own method
    file: str = ""
    line: int = 0
    by_fit: bool = False  # Keras makes the call

    def taking(self, iterator: Any) -> tuple[Any, Any]:
        """Returns the positional and keyword arguments with `iterator` in place of the script's."""
        given = (self.args or (), self.kwargs or {})
        args, kwargs = tf.nest.map_structure(lambda value: iterator if value is self.iterator else value, given)
        return args, kwargs

    def several(self, number: int) -> Any:
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

    def __init__(self, scheduled: Scheduled, per_worker: PerWorker, *, workers: int) -> None:
        """Stores the scheduled call; `ready` checks whether it can run on another dataset."""
        self.scheduled = scheduled
        self.workers = workers
        among = f"{workers} workers" if workers > 1 else "one worker"
        self.sentence = f"{'Model.fit' if scheduled.by_fit else 'ClusterCoordinator.schedule'}, to {among}"
        self._per_worker, self._coordinator = per_worker, per_worker.coordinator
        self._here = place_in(os.environ) is None  # where the workers run; CPU time elsewhere is unknown
        self._each = 1  # elements that one call takes from its iterator
        self._number, self._function = 1, scheduled.function
        self._lost = private.workers_lost()  # number of losses when all workers were last available
        self._several: dict[int, Any] = {}  # functions of several steps, cached: each is traced once

    def ready(self) -> None:
        """Runs steps on every worker with the script's dataset as it would be sent, and counts the elements per call.

        Restores the script's variables. Frees its own iterators, which would keep filling their buffers.

        Raises:
            RunFailed: no other dataset can be served; the message is the reason.
        """
        kept = state.snapshot()
        try:
            with _quiet():
                self._each = self._elements_of_a_call()
        finally:
            kept.restore()
        private.free_on_workers(self.scheduled.iterator)

    def _elements_of_a_call(self) -> int:
        most = 1
        while not self._enough(most):
            most *= 2
            if most > _MOST_ELEMENTS:
                raise RunFailed(f"A call of what it schedules takes more than {_MOST_ELEMENTS} elements.")
        if self._enough(most, calls=2):
            raise RunFailed("What it schedules takes all that its iterator has: no window of it would end.")
        too_few = most // 2
        while most - too_few > 1:
            middle = (most + too_few) // 2
            most, too_few = (middle, too_few) if self._enough(middle) else (most, middle)
        return most

    def _enough(self, elements: int, *, calls: int = 1) -> bool:
        """Whether `elements` elements suffice for `calls` calls on each worker."""
        try:
            iterator = self._per_worker.ending_iterator(elements, self.scheduled.iterator)
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
        args, kwargs = self.scheduled.taking(iterator)
        private.take_step_on_workers(self._coordinator, self._function, args, kwargs)

    @property
    def takes_one_step_a_call(self) -> bool:
        """Whether several steps can be put into one call: not if the script already does so."""
        return self._each == 1 and self._number == 1

    @contextlib.contextmanager
    def several_steps(self, number: int) -> Iterator[None]:
        """Context manager: every call that a window schedules takes `number` steps."""
        if number not in self._several:
            self._several[number] = self.scheduled.several(number)
        self._number, self._function = number, self._several[number]
        try:
            yield
        finally:
            self._number, self._function = 1, self.scheduled.function

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Measures a window in which no worker was lost; if one was, repeats the window once when it is back.

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
                if private.workers_lost() == self._lost:
                    raise
            else:
                if private.workers_lost() == self._lost:
                    return taken
        raise RunFailed("A worker was lost in the middle of a window, and again when it was taken once more.")

    def _wait_for_lost_workers(self) -> None:
        end = time.monotonic() + _AWAY_SECONDS
        while self._lost != private.workers_lost():
            lost = private.workers_lost()
            if private.workers_answer(self._coordinator) and lost == private.workers_lost():
                self._lost = lost
            elif time.monotonic() > end:
                raise RunFailed(f"A worker was lost, and did not come back within {_AWAY_SECONDS:.0f} s.")
            else:
                time.sleep(_LOOK_SECONDS)

    def _window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        each = self._number * self._each  # elements that one call takes
        calls = -(-steps // each)  # per worker
        windows.settle()
        started = time.perf_counter()
        try:
            iterator = self._per_worker.iterator(dataset, self.scheduled.iterator)
            self._step_on_workers(iterator)  # tracing happens here
            first = time.perf_counter()
            for _ in range(1, -(-warmup // each)):
                self._step_on_workers(iterator)
            watch = compiling.Watch()
            start, cpu_start = time.perf_counter(), time.process_time()
            args, kwargs = self.scheduled.taking(iterator)
            for _ in range(calls * self.workers):
                self.scheduled.schedule(self._function, args=args, kwargs=kwargs)
            self._coordinator.join()
            stop, cpu_stop = time.perf_counter(), time.process_time()
        except RunFailed:
            raise
        except Exception as error:  # whatever the user's own step raises ends this window, not pipetune
            raise _failed(error) from error
        finally:
            iterator = args = kwargs = None
            windows.settle()
        return Window(
            steps=calls * each,
            examples=calls * each,
            wall_seconds=stop - start,
            cpu_seconds=cpu_stop - cpu_start if self._here else 0.0,
            first_seconds=first - started,
            compile_seconds=watch.compile_seconds([stop - start], new_shapes=False),
        )


def _failed(error: BaseException) -> RunFailed:
    raised = private.raised_on_worker(error)
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
