"""Single training steps: how long each takes, how much of it is a wait for its element, and where epochs end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.measurement import StepSeries
from pipetune.timing import windows
from pipetune.timing.iterators import release_captured

NO_CLOCK = "With op determinism enabled no function can read a clock, so it is unknown how long a step waits."
"""Why there can be no `InputRelay`."""


class StepRecorder:
    """Records steps, each from a call of `begin` to the next one of `end`. What happens in between is not counted.

    It wants so many steps, and none once so many seconds have passed since the first one began.
    """

    def __init__(self, *, steps: int, seconds: float) -> None:
        self._most, self._seconds = steps, seconds
        self._steps: list[float] = []
        self._waits: list[float] = []
        self._epoch_ends: list[int] = []
        self._timer: windows.WindowTimer | None = None
        self._begun = 0.0
        self._previous: Any = None  # what the step before the last one returned
        self._synchronize = windows.DeviceSynchronizer()
        kinds = {tf.DeviceSpec.from_string(name).device_type for name in tensorflow_private.own_devices()}
        self._runs_ahead = kinds != {"CPU"} or bool(windows.waits_for_other_libraries())  # the host, of the devices

    def begin(self) -> None:
        """A step begins; the next thing is its element."""
        self._timer = self._timer or windows.WindowTimer()
        self._begun = time.perf_counter()

    def keep_pace(self, produced: Any = None) -> None:
        """Waits until a device is no more than one step behind: a step would else take as long as it takes to queue it.

        To be called in every step, where the device has the last one queued. The value of the one before it is read, so
        that the device is never idle. Where no value is seen, all that is queued is waited for: then it is idle for as
        long as a step takes to be queued.

        Args:
            produced: what the last step returned; None if it cannot be seen.
        """
        if produced is not None:
            windows.read_values(self._previous)
            self._previous = produced
        elif self._runs_ahead:
            self._synchronize()

    def end(self, taken: Callable[[], tuple[float | None, bool]], *, steps: int = 1) -> bool:
        """The step has ended; returns whether another one is wanted.

        Args:
            taken: returns the seconds that the step has waited for its element, or None if that cannot be told, and
                whether it was the first of an epoch.
            steps: number of steps, if several were taken in one call: each is recorded with the mean.
        """
        now = time.perf_counter()
        passed, (waited, new_epoch) = now - self._begun, taken()
        if new_epoch and self._steps:
            self._epoch_ends.append(len(self._steps))
        self._steps += [passed / steps] * steps
        if waited is not None:
            self._waits += [waited / steps] * steps
        assert self._timer is not None
        return len(self._steps) < self._most and now - self._timer.start < self._seconds

    def series(self) -> StepSeries:
        """Returns the steps recorded so far."""
        compiled = self._timer.compile_seconds(self._steps, new_shapes=False) if self._timer is not None else 0.0
        return StepSeries(
            step_seconds=_rounded(self._steps),
            wait_seconds=_rounded(self._waits) if self._waits else None,
            epoch_ends=tuple(self._epoch_ends),
            compile_seconds=compiled,
        )


def _rounded(seconds: list[float]) -> tuple[float, ...]:
    return tuple(round(one, 6) for one in seconds)


class InputRelay:
    """Passes on the elements of a dataset to code that takes them inside a graph, and adds up the waits for them.

    `dataset` has the same spec, so that nothing is traced again, and does not end with an epoch: the next one begins as
    with a new iterator. The function of its only `map` has an iterator of the original, which TensorFlow therefore
    optimizes as it does without a relay: an operator appended to the original could keep it from prefetching, or be
    prefetched itself. Relaying an element takes some 0.3 ms.

    Args:
        original: the dataset.
        on_request: called by a thread of the runtime with `elements` and the seconds of waiting so far, whenever one of
            `requests` is made.
        requests: requests for an element, each as the number of elements that are passed on before.
        limit: elements after which `dataset` ends; to iterate it once more is then an error. None: it does not end.
    """

    def __init__(
        self,
        original: Any,
        *,
        on_request: Callable[[int, float], None] | None = None,
        requests: Collection[int] = (),
        limit: int | None = None,
    ) -> None:
        with tf.device("CPU:0"):  # seconds of waiting, epochs begun, elements
            self._totals = tf.Variable([0.0, 0.0, 0.0], dtype=tf.float64, trainable=False)
            self._ends = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._read = [0.0, 0.0]
        self._original = original
        # At its end already: the first epoch is begun like the others.
        self._iterator = iterator = iter(original.take(0))

        def below_limit(_: Any) -> Any:
            below = self._totals.read_value()[2] < (limit or 0)
            ends = tf.cond(below, lambda: tf.constant(0, tf.int64), lambda: self._ends.assign_add(1))
            with tf.control_dependencies([tf.debugging.Assert(ends < 2, ["The data was at its end before."])]):
                return tf.identity(below)

        def report(totals: Any) -> Any:
            assert on_request is not None
            on_request(int(totals[2]), float(totals[0]))
            return np.float64(0.0)

        def request() -> Any:
            if on_request is None:
                return tf.timestamp()
            totals, numbers = self._totals.read_value(), tf.constant(sorted(requests), tf.float64)
            reporting = tf.cond(
                tf.reduce_any(numbers == totals[2]),
                lambda: tf.numpy_function(report, [totals], tf.float64),
                lambda: tf.constant(0.0, tf.float64),
            )
            with tf.control_dependencies([reporting]):
                return tf.timestamp()

        def begin_epoch() -> Any:
            with tf.control_dependencies([tensorflow_private.restart_iterator(iterator, original)]):
                return iterator.get_next(), tf.constant(1.0, tf.float64)

        def take(_: Any) -> Any:
            requested = request()
            with tf.control_dependencies([requested]):
                found = iterator.get_next_as_optional()
            element, begun = tf.cond(
                found.has_value(), lambda: (found.get_value(), tf.constant(0.0, tf.float64)), begin_epoch
            )
            with tf.control_dependencies(tf.nest.flatten(element, expand_composites=True)):
                self._totals.assign_add(tf.stack([tf.timestamp() - requested, begun, 1.0]))
            return element

        requested = tf.data.Dataset.from_tensors(0).repeat()
        if limit is not None:
            requested = requested.take_while(tf.autograph.experimental.do_not_convert(below_limit))
        passing_on = requested.map(tf.autograph.experimental.do_not_convert(take), synchronous=True)
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and each iterator would have a thread for that
        # Of a dataset that is not optimized at all, the iterator of a strategy frees what its thread still reads, and
        # the process crashes (TensorFlow 2.21, `~MultiDeviceIterator` in multi_device_iterator_ops.cc).
        options.experimental_optimization.noop_elimination = True
        self.dataset = windows.without_optimizations(passing_on).with_options(options)

    def close(self) -> None:
        """Frees the iterator of the original, in the background where iterators are freed there."""
        release_captured(self._iterator, self._original)

    @property
    def elements(self) -> int:
        """The number of elements passed on so far."""
        return int(self._totals.numpy()[2])

    def read(self) -> tuple[float, bool]:
        """Returns the seconds of waiting since the last call, and whether an epoch was begun since then."""
        before, self._read = self._read, self._totals.numpy().tolist()[:2]
        return self._read[0] - before[0], self._read[1] > before[1]
