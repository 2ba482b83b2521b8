"""Functions and pipelines of known cost, to check the attribution of costs to operators."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from pipetune.measure.epochs import sorting

Function = Callable[[Any], Any]

_WINDOW_SECONDS = 0.05  # by judgement: shorter windows give a less exact cost


def with_sleep(dataset: Any, microseconds: int) -> Any:
    """Returns the dataset with a sleep before each element, by the C++ op that TensorFlow's own tests use."""
    return testing._SleepDataset(dataset, microseconds)


@dataclass(frozen=True)
class KnownFunction:
    """A function from an int64 scalar to an int64 scalar, whose cost `IsolatedCalls` measures."""

    name: str  # "works", "waits", "python"
    function: Function


@dataclass(frozen=True)
class TrueCost:
    """Seconds of one call, measured by calling the function alone, repeatedly, inside one graph."""

    cpu_seconds: float
    wall_seconds: float

    @property
    def waiting_seconds(self) -> float:
        """Wall seconds of one call without CPU use."""
        return max(0.0, self.wall_seconds - self.cpu_seconds)


def sorting_function(sorts: int) -> KnownFunction:
    """Returns a function that sorts 4000 numbers `sorts` times, all in TensorFlow and in one thread."""
    return KnownFunction("works", sorting(sorts))


def sleeping_function(seconds: float) -> KnownFunction:
    """Returns a Python function that sleeps for `seconds`."""

    def sleep(number: Any) -> Any:
        time.sleep(seconds)
        return number

    return KnownFunction("waits", _python(sleep))


def python_function(loops: int) -> KnownFunction:
    """Returns a Python function that computes in `loops` iterations."""

    def compute(number: Any) -> Any:
        total = 0
        for index in range(loops):
            total += index & 3
        return number + min(0, total)

    return KnownFunction("python", _python(compute))


class IsolatedCalls:
    """Calls a known function alone, repeatedly, inside one graph, and measures the cost of one call per window.

    The loop around it takes some microseconds itself.
    """

    def __init__(self, known: KnownFunction) -> None:
        def calls(count: Any) -> Any:
            def once(index: Any, total: Any) -> tuple[Any, Any]:  # each call has another argument, so none is hoisted
                return index + 1, total + tf.ensure_shape(known.function(index), [])

            start = (tf.constant(0, tf.int64), tf.constant(0, tf.int64))
            return tf.while_loop(lambda index, _: index < count, once, start, parallel_iterations=1)[1]

        self._graph = tf.function(calls).get_concrete_function(tf.TensorSpec([], tf.int64))
        self._window(1)
        self._calls = max(1, round(_WINDOW_SECONDS / self._window(5)[1]))
        self._windows: list[tuple[float, float]] = []

    def measure_window(self) -> None:
        """Measures one more window of about 50 ms."""
        self._windows.append(self._window(self._calls))

    @property
    def true_cost(self) -> TrueCost:
        """The median of the windows taken so far; there must be at least one.

        The functions run in one thread: CPU time beyond wall time comes from idle threads that look for work.
        """
        cpu, wall = (statistics.median(column) for column in zip(*self._windows, strict=True))
        return TrueCost(min(cpu, wall), wall)

    def _window(self, count: int) -> tuple[float, float]:
        cpu, wall = time.process_time(), time.perf_counter()
        self._graph(tf.constant(count, tf.int64)).numpy()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return cpu / count, wall / count


def _python(function: Function) -> Function:
    def call(number: Any) -> Any:
        found = tf.py_function(function, [number], tf.int64)
        found.set_shape([])
        return found

    return call


@dataclass(frozen=True)
class CostCase:
    """A pipeline, and by operator position (sources first) the function that runs per output element."""

    name: str
    dataset: Any
    expected: Mapping[int, str]


def cases(known: Mapping[str, KnownFunction], *, wait_seconds: float) -> list[CostCase]:
    """Returns pipelines of `known` functions: parallel, interleaved, in branches, after a slow source or a filter.

    Args:
        known: functions by name: "works", "python", and others.
        wait_seconds: seconds per element of the slow source.
    """
    numbers = tf.data.Dataset.range(2000)
    found = []
    for calls in (None, 2, 4):
        at = f"parallelism {calls or 1}"
        for name, one in known.items():
            dataset = numbers.map(one.function, num_parallel_calls=calls).batch(4)
            found.append(CostCase(f"{name}, {at}, batched", dataset, {1: name}))
        row = numbers
        for one in known.values():
            row = row.map(one.function, num_parallel_calls=calls)
        found.append(CostCase(f"one after another, {at}", row, {1 + place: name for place, name in enumerate(known)}))
    works, python = known["works"].function, known["python"].function
    waiting_source = with_sleep(numbers, round(1e6 * wait_seconds))
    found.append(CostCase("slow source", waiting_source.map(works), {1: "", 2: "works"}))
    for calls in (None, 2):
        for name, one in known.items():
            dataset = numbers.interleave(_many(one.function), cycle_length=2, num_parallel_calls=calls)
            found.append(CostCase(f"{name}, inside interleave at {calls or 1}", dataset, {1: name}))
    half = numbers.map(works).filter(lambda number: number % 2 == 0).map(python)
    found.append(CostCase("behind a filter", half, {1: "works", 3: "python"}))
    branches = tf.data.Dataset.zip((numbers.map(works), numbers.map(python)))
    found.append(CostCase("in branches", branches, {1: "works", 2: "python"}))
    return found


def _many(function: Function) -> Function:
    """Returns a function for an interleave that builds a short pipeline, which maps `function`, for each element."""
    return lambda _number: tf.data.Dataset.range(40).map(function)
