"""Training by a coordinator of parameter servers: datasets that its workers build themselves, others sent in their
place, and windows of the steps that it schedules.

A live dataset is sent to the workers as its graph, in a function that rebuilds it there, as TensorFlow itself does for
`create_per_worker_dataset(dataset)`. Objects outside the graph that it refers to (Python functions, tables, variables)
must exist there; on workers in other processes they do not.

Source: `tf.distribute.coordinator.ClusterCoordinator` (TensorFlow 2.21, `coordinator/values.py`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import protection
from pipetune.core.cluster import task_from_environment
from pipetune.core.functions import PYTHON_CALLS
from pipetune.core.measurement import RunFailed, StepSeries, Window
from pipetune.pipelines import live
from pipetune.pipelines.errors import first_line
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators

_SENT = "_pipetune_sent"  # attribute of a dataset: its copies on the workers, and the number of losses before


@dataclass(frozen=True, eq=False)
class WorkerDataset:
    """A dataset that each worker of a coordinator builds for itself, in the way the script specifies."""

    coordinator: Any
    dataset: Any  # what a worker builds, built in this process
    result_type: type  # class of what the script's function returns: a dataset, or a distributed one
    options: Any = None  # `tf.distribute.InputOptions` that the script passed

    def dataset_function(self, dataset: Any) -> Callable[[], Any]:
        """Returns the argument of `create_per_worker_dataset` that builds `dataset`, distributed like the script's."""
        rebuilt = _remote_builder(dataset)
        return lambda: self._distribute(rebuilt())

    def iterator(self, dataset: Any, like: Any) -> Any:
        """Returns a new, endless iterator of `dataset` on each worker, to schedule in place of the script's `like`.

        The workers build the dataset once and keep it while `dataset` is alive here, so a cache stays filled. If a
        worker was lost since, all of them rebuild it, because the lost one would come back with an empty cache.

        Raises:
            RunFailed: the scheduled function cannot take the dataset, or it cannot be sent.
        """
        sent, before = getattr(dataset, _SENT, (None, 0))
        lost = tensorflow_private.worker_failures()
        if sent is None or before != lost:
            endless = windows.repeat_forever(dataset)
            sent = self._send(endless)
            elements = _elements_to_fill_caches(endless)
            if elements:
                tensorflow_private.fetch_from_workers(self.coordinator, _reader(elements), sent)
            object.__setattr__(dataset, _SENT, (sent, lost))
        return self._iterator(sent, like)

    def finite_iterator(self, elements: int, like: Any) -> Any:
        """Returns an iterator of the first `elements` elements of the script's own dataset on each worker.

        Raises:
            RunFailed: the dataset cannot be sent.
        """
        return self._iterator(self._send(self.dataset.take(elements)), like)

    def _iterator(self, sent: Any, like: Any) -> Any:
        made = tensorflow_private.create_on_workers(self.coordinator, _iterate, sent)
        return tensorflow_private.wrap_iterators(made, like)

    def _send(self, dataset: Any) -> Any:
        if dataset.element_spec != self.dataset.element_spec:
            raise RunFailed("Its elements have different shapes or types than the scheduled function expects.")
        why = sending_obstacle(dataset)
        if why:
            raise RunFailed(why)
        rebuilt = _remote_builder(dataset)

        def build() -> tuple[Any, Any]:
            made = rebuilt()
            return made, self._distribute(made)

        function = tf.function(build, autograph=False).get_concrete_function()
        return tensorflow_private.create_on_workers(self.coordinator, function)

    def _distribute(self, dataset: Any) -> Any:
        """Distributes `dataset` as the script's own function does; for use inside a function."""
        strategy = self.coordinator.strategy
        if self.result_type is tensorflow_private.DistributedDatasetFromFunction:
            made = tf.autograph.experimental.do_not_convert(lambda _context: dataset)
            return strategy.distribute_datasets_from_function(made, self.options)
        if self.result_type is tensorflow_private.DistributedDataset:
            return strategy.experimental_distribute_dataset(dataset, self.options)
        return dataset


def worker_dataset_of(coordinator: Any, given: Any) -> WorkerDataset | None:
    """Returns what each worker will build from the argument of `create_per_worker_dataset`; None if unknown.

    The script's function is called one extra time. It has to tolerate that: every worker calls it, and a worker that
    comes back calls it again. Such an argument may also be a dataset or a distributed dataset.
    """
    if callable(given):
        given = getattr(given, "python_function", given)()  # a tf.function would return a dataset of its graph
    options = getattr(given, "_options", None)
    dataset, kind = given, tensorflow_private.DatasetV2
    if isinstance(given, tensorflow_private.DistributedDatasetFromFunction):
        dataset, kind = tensorflow_private.call_dataset_function(given), type(given)
    elif isinstance(given, tensorflow_private.DistributedDataset):
        dataset, kind = tensorflow_private.original_dataset(given), type(given)
    if not isinstance(dataset, tensorflow_private.DatasetV2):
        return None
    return WorkerDataset(coordinator, dataset, kind, options)


def sending_obstacle(dataset: Any) -> str:
    """Returns why the workers cannot build the dataset from its graph; '' if the graph shows no obstacle.

    A Python function is registered in one process only. Workers in that same process could call it, but may deadlock:
    TensorFlow waits for workers while it holds the lock that Python functions need.
    """
    graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
    called = {node.op for nodes in (graph.node, *(one.node_def for one in graph.library.function)) for node in nodes}
    return "It calls a Python function, which cannot be sent to workers." if called & PYTHON_CALLS else ""


def _remote_builder(dataset: Any) -> Callable[[], Any]:
    """Returns a function that builds the dataset from its graph where it runs; call it inside another function."""
    # Captured: a constant in the function would be folded.
    graph = tf.constant(tensorflow_private.serialized_graph(dataset))
    spec = dataset.element_spec
    return lambda: tensorflow_private.dataset_from_graph(graph, spec)


def _iterate(sent: tuple[Any, Any]) -> Any:
    return iter(sent[1])


def _reader(elements: int) -> Callable[[tuple[Any, Any]], Any]:
    """Returns a function that reads `elements` elements of a dataset that was sent."""

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def read(dataset: Any) -> Any:
        return dataset.take(elements).reduce(np.int64(0), lambda count, _: count + 1)

    return lambda sent: read(sent[0])


def _elements_to_fill_caches(dataset: Any) -> int:
    """Returns the number of elements of `dataset` after which every cache in it is filled; 0 without a cache."""
    most = 0
    for cache in _caches(dataset):
        count = int(cache.cardinality())
        if count == tf.data.INFINITE_CARDINALITY or count == 1:
            continue
        if count < 0:
            count = int(cache.reduce(np.int64(0), lambda seen, _: seen + 1))
        above, below = (tensorflow_private.inferred_batch_size(one) or 1 for one in (cache, dataset))
        most = max(most, math.ceil(count / max(1, below // above)) + 1)
    return most


def _caches(dataset: Any) -> list[Any]:
    mine = [dataset] if live.kind_of(dataset).op == "cache" else []
    return mine + [cache for above in tensorflow_private.inputs(dataset) for cache in _caches(above)]


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
