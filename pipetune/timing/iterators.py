"""Frees the iterator of one window before the next window begins, soon and completely.

A live iterator keeps filling its buffers in the background. Destroying one first ends the threads of its operators, and
then waits for the thread of AUTOTUNE, which often sleeps through the order to end: it wakes at 10 ms, 30 ms, 70 ms, ...
after its start, each pause twice as long as the one before (TensorFlow 2.21, `Model::OptimizeLoop` in model.cc). After
2.6 seconds of use that takes up to 2.5 seconds more, in which nothing runs.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.pipelines.objects import inherits, live_instances
from pipetune.timing.cpu_load import thread_seconds

_THREADS = 8  # that release iterators: windows come one after another, and a few earlier ones may still be asleep
_POLL_SECONDS = 0.02  # by judgement: the kernel accounts for a running thread every 1 to 10 ms
_IDLE = 0.1  # share of a core below which nothing but a sleeping thread is waited for, by judgement


class _Releaser:
    """Frees iterators in threads of its own."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[tuple[object, Callable[[], object]] | None] = queue.SimpleQueue()
        self._pending: set[object] = set()
        self._released = threading.Event()
        # Not daemons: a thread that still frees an iterator while the interpreter exits may crash the process.
        self._threads = [threading.Thread(target=self._release, name="pipetune-release") for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def take(self, free: Callable[[], object]) -> None:
        """Calls `free` soon, which frees an iterator. Safe in a finalizer: acquires no lock."""
        token = object()
        self._pending.add(token)
        self._given.put((token, free))

    def wait(self) -> None:
        """Waits until everything taken over is released, or only sleeping threads are waited for."""
        before = _busy_seconds()
        while self._pending:
            self._released.clear()
            if not self._pending or self._released.wait(_POLL_SECONDS):
                continue
            after = _busy_seconds()
            if before is not None and after is not None and after - before < _IDLE * _POLL_SECONDS:
                return
            before = after

    def close(self) -> None:
        """Lets the threads end, once each has released what it is at."""
        for _ in self._threads:
            self._given.put(None)

    def _release(self) -> None:
        while (given := self._given.get()) is not None:
            token, free = given
            free()
            del given, free
            self._pending.discard(token)
            self._released.set()


_releasers: list[_Releaser] = []  # of the open contexts; the innermost is used


def release(iterator: Any) -> None:
    """Frees what the runtime holds for this iterator: threads, buffers, and the lock of a cache that is being filled.

    The Python object stays, an `OwnedIterator` or a `DistributedIterator`; taking an element from it raises an error.
    """
    if isinstance(iterator, tensorflow_private.DistributedIterator):
        iterator._iterators = None
        return
    held = [getattr(iterator, name, None) for name in ("_iterator_resource", "_dataset")]
    iterator._iterator_resource = iterator._dataset = None
    if _releasers and held[0] is not None and not tf.is_symbolic_tensor(held[0]):
        _releasers[-1].take(held.clear)


def release_captured(iterator: Any, dataset: Any) -> None:
    """Frees what the runtime holds for an iterator of a dataset that a function has captured: its object lives longer.

    The iterator, an `OwnedIterator`, has no further element then.
    """

    def free() -> None:
        with tf.init_scope():
            tensorflow_private.restart_iterator(iterator, dataset.take(0))

    if _releasers:
        _releasers[-1].take(free)
    else:
        free()


def _busy_seconds() -> float | None:
    """Returns what all threads but this one have run and waited for a processor so far; None if the kernel hides it."""
    threads = thread_seconds()
    own = sum(threads.get(str(threading.get_native_id()), ()))
    return sum(map(sum, threads.values())) - own if threads else None


@contextlib.contextmanager
def released_in_background() -> Iterator[None]:
    """Context manager: iterators that are no longer referenced are released by other threads."""
    releaser = _Releaser()
    _releasers.append(releaser)
    kind: Any = tensorflow_private.OwnedIterator
    before = vars(kind).get("__del__")
    kind.__del__ = release
    try:
        yield
    finally:
        if before is None:
            del kind.__del__
        else:
            kind.__del__ = before
        _releasers.remove(releaser)
        releaser.close()


@contextlib.contextmanager
def shortened_pauses() -> Iterator[None]:
    """Context manager: shortens the pause between two windows, in which iterators are freed.

    Iterators are released in the background, and the objects alive on entry (mostly TensorFlow's imports) are excluded
    from garbage collections, which saves about 0.2 s for each, unless the script itself has called `gc.freeze`.
    """
    with released_in_background():
        if gc.get_freeze_count():
            yield
            return
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()


@contextlib.contextmanager
def iterating(dataset: Any) -> Iterator[Any]:
    """Context manager: yields an iterator of a dataset; on exit it is freed, and has stopped working."""
    iterator = iter(dataset)
    try:
        yield iterator
    finally:
        release(iterator)
        free_iterators()


def free_iterators() -> None:
    """Frees unreferenced iterators, and waits until they have stopped working."""
    gc.collect()
    wait_for_released_iterators()


def wait_for_released_iterators() -> None:
    """Waits until every iterator that was released in the background has stopped working."""
    for releaser in _releasers:
        releaser.wait()


def free_all_iterators() -> None:
    """Releases every iterator of the process, and waits until they have stopped working."""
    with released_in_background():
        iterators = (tensorflow_private.OwnedIterator, tensorflow_private.DistributedIterator)
        for iterator in live_instances(lambda kind: inherits(kind, *iterators)):
            release(iterator)
        free_iterators()
