"""The input wait of steps that take their elements inside a `tf.function`, where Python sees no `next`.

The runtime's model of an iterator keeps the last 100 gaps: the times between the delivery of an element and the request
for the next one (TensorFlow 2.21, `Model::RecordIteratorGapTime` in model.cc). The rest of the time is wait.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

import tensorflow as tf

from pipetune.core.input_wait import InputWait

_INTERVAL_SECONDS = 0.5  # between readings, which take 0.04 ms in succession, 0.4 ms on a busy machine
_MOST_UNREAD = 90  # steps; the runtime keeps 100 gaps

_NO_ITERATOR = "the batches do not come from one iterator of tf.data, as under a distribution strategy"
_NO_MODEL = "the runtime keeps no model of the iterator, as with options.autotune.enabled = False"
_SEVERAL_STEPS = "with steps_per_execution above 1, a batch is requested while the step before it still runs"


class GapTimes:
    """Reads the gaps of one iterator, each of them once. The iterator ends when it would without this."""

    def __init__(self, iterator: Any) -> None:
        """Stores a weak reference to the iterator, from which no element has been taken yet."""
        self._iterator = weakref.ref(iterator)
        self._elements = 0
        self._newest: int | None = None  # in microseconds; None: no gap yet

    def belong_to(self, iterator: Any) -> bool:
        """Whether these are the gaps of this iterator."""
        return self._iterator() is iterator

    def read(self) -> tuple[int, list[float] | None]:
        """Returns the number of elements taken since the last reading, and the gaps before them, in seconds.

        There is no gap before the very first element. The gaps are None if one is missing: the runtime keeps none of
        10 s or longer, and only the last 100.

        Raises:
            ValueError: the runtime can have no model of such an iterator.
            tf.errors.OpError: it has none.
        """
        iterator = self._iterator()
        if iterator is None:  # it has ended
            return 0, None
        model = tf.data.experimental.get_model_proto(iterator)
        before, self._elements = self._elements, model.nodes[model.output].num_elements
        known, kept = self._newest, list(model.gap_times)
        self._newest = kept[-1] if kept else None
        taken = self._elements - before
        found = _newer(kept, known, taken if before else max(0, taken - 1))
        return taken, None if found is None else [1e-6 * gap for gap in found]


def _newer(kept: list[int], known: int | None, count: int) -> list[int] | None:
    """Returns the `count` gaps that follow the known one; None if there are not so many."""
    history = [None, *kept] if known is None else kept
    for behind in (0, 1):  # a request that finds the end of the data also has a gap before it
        end = len(history) - behind
        if end > count and history[end - count - 1] == known:
            return [gap for gap in history[end - count : end] if gap is not None]
    return None


class _Stretch:
    """Steps in succession, from the start of the first to that of the last."""

    def __init__(self) -> None:
        self._began = self._until = time.perf_counter()
        self._elements = 0
        self._gap_seconds = 0.0

    def add(self, elements: int, gaps: list[float], *, until: float) -> None:
        """Adds steps that took these elements, with the gaps before them; the last began at `until`."""
        within = gaps if self._elements else gaps[len(gaps) + 1 - elements :]
        self._gap_seconds += sum(within)
        self._elements += elements
        self._until = until

    def wait(self) -> InputWait:
        """Returns the wait of all steps but the last.

        A gap ends shortly after the start of a step: what the last one has too much, the first request has too little.
        """
        seconds = self._until - self._began
        return InputWait(max(0, self._elements - 1), seconds, seconds - self._gap_seconds)


class InputClock:
    """Measures the input wait of one training, epoch by epoch.

    The very first step, which compiles, is not counted, nor is the last of an epoch.
    """

    def __init__(self) -> None:
        self.unavailable = ""  # why nothing can be measured; without a final full stop
        self.epoch = InputWait()  # this epoch, up to the last reading
        self._earlier = InputWait()  # its stretches that are closed
        self._stretch: _Stretch | None = None
        self._gaps: GapTimes | None = None
        self._compiled = False  # the first step is over
        self._unread = 0  # steps since the last reading
        # Times of `perf_counter`: starts of the step that runs, which may find the end of the data, and of the last one
        # that ended; the last reading.
        self._running_since = self._began = self._read_at = 0.0

    def begin_step(self, iterator: Any) -> None:
        """Notes the start of a step that takes its element from the iterator."""
        if self._gaps is None or not self._gaps.belong_to(iterator):
            if isinstance(iterator, tf.data.Iterator):
                self._gaps = GapTimes(iterator)
            else:
                self.unavailable = _NO_ITERATOR
        if self._stretch is None:
            self._stretch = _Stretch()
        self._running_since = time.perf_counter()

    def end_step(self) -> None:
        """Notes the end of the step, and now and then reads the gaps."""
        self._unread, self._began = self._unread + 1, self._running_since
        recent = time.perf_counter() - self._read_at < _INTERVAL_SECONDS
        if not recent or self._unread >= _MOST_UNREAD or not self._compiled:
            self._read()

    def end_epoch(self) -> InputWait:
        """Returns the wait of this epoch; the next step begins another."""
        if self._unread:
            self._read()
        self._close_stretch()
        found, self._earlier, self.epoch = self._earlier, InputWait(), InputWait()
        return found

    def _read(self) -> None:
        steps, self._unread, self._read_at = self._unread, 0, time.perf_counter()
        if self.unavailable or self._gaps is None or self._stretch is None:
            return
        try:
            elements, gaps = self._gaps.read()
        except (ValueError, tf.errors.OpError) as error:
            self.unavailable = _NO_ITERATOR if isinstance(error, ValueError) else _NO_MODEL
            return
        if elements > steps:
            self.unavailable = _SEVERAL_STEPS
        elif not self._compiled:
            self._stretch, self._compiled = None, True
        elif gaps is None:
            self._close_stretch()
        else:
            self._stretch.add(elements, gaps, until=self._began)
            self.epoch = self._earlier + self._stretch.wait()

    def _close_stretch(self) -> None:
        if self._stretch is not None:
            self._earlier += self._stretch.wait()
        self._stretch = None
