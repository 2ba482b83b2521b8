"""The gap times of an iterator: what the runtime keeps of them, and the wait that follows."""

from __future__ import annotations

import time
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.monitoring import InputWait
from pipetune.timing import gap_times
from pipetune.timing.gap_times import GapTimes, InputClock

RANGE = tf.data.Dataset.range


def take(iterator: Any, count: int, *, pause: float = 0.0) -> None:
    for _ in range(count):
        next(iterator)
        time.sleep(pause)


def test_each_gap_is_read_once() -> None:
    iterator = iter(RANGE(1000))
    gaps = GapTimes(iterator)
    take(iterator, 3, pause=0.02)
    elements, found = gaps.read()
    assert elements == 3 and found is not None and len(found) == 2 and min(found) >= 0.02
    assert gaps.read() == (0, [])
    take(iterator, 2, pause=0.001)  # one gap of 0.02 s lies before the first of these
    elements, found = gaps.read()
    assert elements == 2 and found is not None and len(found) == 2 and found[0] >= 0.02 > found[1] >= 0.001
    for count in (90, 90):  # the runtime keeps 100
        take(iterator, count)
        elements, found = gaps.read()
        assert elements == count and found is not None and len(found) == count
    take(iterator, 120)
    assert gaps.read() == (120, None)


def test_request_that_finds_the_end_adds_no_gap() -> None:
    iterator = iter(RANGE(5))
    gaps = GapTimes(iterator)
    take(iterator, 3)
    gaps.read()
    take(iterator, 2, pause=0.02)
    assert next(iterator, None) is None
    elements, found = gaps.read()
    assert elements == 2 and found is not None and len(found) == 2 and found[0] < 0.02 <= found[1]


@pytest.mark.parametrize(
    ("kept", "known", "count", "newer"),
    [
        ([], None, 0, []),
        ([5, 6], None, 2, [5, 6]),
        ([5, 6, 7], None, 2, [5, 6]),
        ([4, 5, 6], 4, 2, [5, 6]),
        ([4, 5, 6, 7], 4, 2, [5, 6]),
        ([4, 4, 4], 4, 2, [4, 4]),
        ([], None, 1, None),  # one of 10 s or longer
        ([3, 4, 6], 4, 2, None),
        ([4], 4, 1, None),
        ([5, 6], 4, 2, None),  # more than are kept
    ],
)
def test_gaps_after_the_known_one(kept: list[int], known: int | None, count: int, newer: list[int] | None) -> None:
    assert gap_times._newer(kept, known, count) == newer


def test_iterator_ends_where_it_did_without_a_reader() -> None:
    iterator = iter(RANGE(5))
    gaps = GapTimes(iterator)
    take(iterator, 2)
    del iterator
    assert gaps.read() == (0, None)


# -- the clock


def waiting(count: int, seconds: float) -> Any:
    def wait(x: Any) -> Any:
        time.sleep(seconds)
        return x

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return RANGE(count).map(lambda x: tf.numpy_function(wait, [x], tf.int64)).with_options(options)


def run(clock: InputClock, iterator: Any, *bodies: float) -> InputWait:
    """Takes a step for each body, and returns what Python sees of their time and wait."""
    began, waited = time.perf_counter(), 0.0
    for seconds in bodies:
        clock.begin_step(iterator)
        before = time.perf_counter()
        next(iterator)
        waited += time.perf_counter() - before
        time.sleep(seconds)
        clock.end_step()
    return InputWait(len(bodies), time.perf_counter() - began, waited)


def agree(found: InputWait, seen: InputWait) -> bool:
    assert found.share is not None and seen.share is not None
    return (found.steps, found.seconds, found.share) == (
        seen.steps,
        pytest.approx(seen.seconds, abs=0.02),
        pytest.approx(seen.share, abs=0.05),  # Python counts the way into the runtime and back as wait, 0.5 ms a step
    )


@pytest.mark.parametrize("interval", [0.0, 0.1, 1e9])  # a reading after each step, now and then, at the end
@pytest.mark.parametrize(("slow", "body"), [(0.02, 0.005), (0.001, 0.03)])
def test_wait_is_what_is_no_gap(monkeypatch: pytest.MonkeyPatch, interval: float, slow: float, body: float) -> None:
    monkeypatch.setattr(gap_times, "_INTERVAL_SECONDS", interval)
    clock, dataset = InputClock(), waiting(30, slow)
    run(clock, iter(dataset), 0.5)  # the very first is not counted
    for _ in range(2):
        iterator = iter(dataset)
        seen = run(clock, iterator, *[body] * 20)
        time.sleep(0.2)  # validation
        assert agree(clock.end_epoch(), seen)


def test_time_between_epochs_on_one_iterator_is_not_counted() -> None:
    clock, iterator = InputClock(), iter(waiting(100, 0.02))
    run(clock, iterator, 0.0)
    for _ in range(3):
        seen = run(clock, iterator, *[0.02] * 10)
        time.sleep(0.5)
        assert agree(clock.end_epoch(), seen)


def test_steps_whose_gap_is_missing_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_times, "_INTERVAL_SECONDS", 0.0)
    clock, iterator = InputClock(), iter(waiting(100, 0.02))
    run(clock, iterator, 0.0)
    seen = run(clock, iterator, *[0.02] * 10)
    with monkeypatch.context() as patched:
        patched.setattr(gap_times, "_newer", lambda *args: None)
        run(clock, iterator, 1.0)
    seen += run(clock, iterator, *[0.02] * 10)
    assert agree(clock.end_epoch(), seen)


def test_running_wait_is_that_of_the_epoch_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_times, "_INTERVAL_SECONDS", 0.0)
    clock, iterator = InputClock(), iter(waiting(100, 0.01))
    run(clock, iterator, 0.0, 0.01)
    assert clock.epoch.share is None  # one step
    run(clock, iterator, 0.01)
    assert clock.epoch.steps == 2
    clock.end_epoch()
    assert clock.epoch.share is None


def test_why_there_is_no_measurement() -> None:
    options = tf.data.Options()
    options.autotune.enabled = False
    unmodelled = InputClock()
    iterator = iter(RANGE(9).with_options(options))
    run(unmodelled, iterator, 0.0, 0.0, 0.0)
    assert "autotune.enabled" in unmodelled.unavailable and unmodelled.end_epoch().share is None

    several, iterator = InputClock(), iter(RANGE(9))
    for _ in range(3):
        several.begin_step(iterator)
        take(iterator, 2)
        several.end_step()
    assert "steps_per_execution" in several.unavailable and several.end_epoch().share is None

    other = InputClock()
    run(other, iter([1, 2, 3]), 0.0, 0.0, 0.0)
    assert "distribution strategy" in other.unavailable and other.end_epoch().share is None
