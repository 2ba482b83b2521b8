"""Between two windows: iterators are freed, and nothing but a sleeping thread is not waited for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import tensorflow_private
from pipetune.timing.iterators import free_iterators, release, released_in_background, shortened_pauses

SCRIPT = """
    import gc, weakref
    from pipetune.timing.iterators import shortened_pauses

    class Held:
        def __init__(self):
            self.itself = self  # a cycle, which only the collector frees

    # Objects that the script froze stay frozen, and no others.
    gc.freeze()
    count = gc.get_freeze_count()
    later = Held()
    with shortened_pauses():
        assert gc.get_freeze_count() == count
        gone = weakref.ref(later)
        del later
        gc.collect()
        assert gone() is None
    assert gc.get_freeze_count() == count
    gc.unfreeze()

    # New objects are collected; objects from before are kept until the end.
    before = Held()
    earlier = weakref.ref(before)
    with shortened_pauses():
        del before
        later = weakref.ref(Held())
        gc.collect()
        assert later() is None and earlier() is not None
    gc.collect()
    assert earlier() is None

    # Nothing stays frozen after an error.
    try:
        with shortened_pauses():
            raise ValueError("within")
    except ValueError:
        pass
    assert gc.get_freeze_count() == 0
"""


def test_shortened_pauses_restore_state_of_collector() -> None:
    """In its own process: freezing affects all objects of a process."""
    script = textwrap.dedent(SCRIPT)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


class Resource:
    """In place of what the runtime holds for an iterator: calls a function when the last reference is dropped."""

    def __init__(self, on_free: Any) -> None:
        self.on_free = on_free

    def __del__(self) -> None:
        self.on_free()


def drop(resource: Resource) -> None:
    """Makes an iterator that holds `resource`, and drops it."""
    iterator = iter(tf.data.Dataset.range(3))
    iterator._iterator_resource = resource


def test_sleeping_release_is_not_waited_for() -> None:
    awake, slept = threading.Event(), threading.Event()

    def sleep() -> None:
        if awake.wait(60):
            slept.set()

    with released_in_background():
        drop(Resource(sleep))
        free_iterators()
        assert not slept.is_set()
        awake.set()
    assert slept.wait(60)


def test_working_release_is_waited_for() -> None:
    done = []

    def work() -> None:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        done.append(True)

    with released_in_background():
        drop(Resource(work))
        free_iterators()
        assert done


def test_buffers_are_no_longer_filled_after_release() -> None:
    calls = []

    def count(number: Any) -> Any:
        calls.append(number)
        return number

    def mapped(number: Any) -> Any:
        return tf.py_function(count, [number], tf.int64)

    with released_in_background():
        iterator = iter(tf.data.Dataset.range(10**9).map(mapped).prefetch(10**6))
        next(iterator)
        release(iterator)
        free_iterators()
        before = len(calls)
        time.sleep(0.2)
        assert len(calls) == before > 0
        with pytest.raises((TypeError, ValueError, AttributeError, tf.errors.OpError)):
            next(iterator)


def test_releasing_ends_with_the_context_even_after_an_error() -> None:
    kind = tensorflow_private.OwnedIterator
    before = threading.active_count()
    with pytest.raises(ValueError, match="within"), released_in_background(), shortened_pauses():
        raise ValueError("within")
    assert not hasattr(kind, "__del__")
    for thread in threading.enumerate():
        if thread.name == "pipetune-release":
            thread.join(60)
    assert threading.active_count() <= before


FREED_BY_STRATEGY = """
    import time
    import tensorflow as tf
    from pipetune.timing.iterators import free_iterators, shortened_pauses
    from pipetune.timing.steps import InputRelay

    def slow(number):
        time.sleep(0.05)
        return number

    strategy, memory = tf.distribute.MirroredStrategy(), []
    data = tf.data.Dataset.range(100).map(lambda number: tf.numpy_function(slow, [number], tf.int64))
    data = data.map(lambda number: tf.ensure_shape(number, [])).batch(1)
    with shortened_pauses():
        for _ in range(20):
            relay = InputRelay(data)
            iterator = iter(strategy.experimental_distribute_dataset(relay.dataset))
            next(iterator)
            next(iterator)
            del iterator  # while a thread of its own waits for an element
            memory += [tf.data.Dataset.range(5).batch(2) for _ in range(60)]
            time.sleep(0.1)
            relay.close()
            free_iterators()
"""


@pytest.mark.exhaustive
def test_strategy_reads_relay_while_it_is_freed() -> None:
    """Of a dataset without any optimization it reads what is freed by then: every second such process crashed."""
    script = textwrap.dedent(FREED_BY_STRATEGY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
