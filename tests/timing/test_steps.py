"""Single training steps: what counts to which, where epochs end, what the runtime keeps of gaps, and the wait."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.input_wait import InputWait
from pipetune.timing import gap_times, windows
from pipetune.timing.gap_times import GapTimes, InputClock
from pipetune.timing.steps import InputRelay, StepRecorder
from tests.timing.asynchronous import InventedClock, Pending

Dataset = tf.data.Dataset


@pytest.mark.parametrize(("calls", "limits", "steps", "waits", "ends"), [
    # a step is its wait and what follows until it ends; the start of the series is no end of an epoch
    ([(0.5, 0.25, True, 1), (0.1234567, 0.25, False, 1), (1.0, 0.25, True, 1), (0.0, 0.25, False, 1)], {},
     (0.75, 0.373457, 1.25, 0.25), (0.5, 0.123457, 1.0, 0.0), (2,)),
    # steps of one call have its mean
    ([(0.5, 0.5, False, 2), (1.0, 2.0, True, 2)], {}, (0.5, 0.5, 1.5, 1.5), (0.25, 0.25, 0.5, 0.5), (2,)),
    # none is wanted after the time
    ([(1.0, 0.5, False, 1)] * 2, {"steps": 100, "seconds": 7.0}, (1.5, 1.5), (1.0, 1.0), ()),
    ([(None, 0.5, False, 1)], {"steps": 1}, (0.5,), None, ()),  # waits that cannot be told
], ids=["steps", "calls", "time", "waits unknown"])  # fmt: skip
def test_series_of_steps(monkeypatch, calls, limits, steps, waits, ends) -> None:
    """After each step 5 s pass until the next, which count to neither."""
    clock, more = InventedClock(monkeypatch), []
    recorder = StepRecorder(**{"steps": 4, "seconds": 60.0, **limits})
    for wait, rest, new_epoch, number in calls:
        recorder.begin()
        clock.spend((wait or 0.0) + rest)
        more.append(recorder.end(lambda told=(wait, new_epoch): told, steps=number))
        clock.spend(5.0)
    assert more == [True] * (len(calls) - 1) + [False]
    found = recorder.series()
    assert found.step_seconds == pytest.approx(steps, abs=1e-9)
    assert (found.wait_seconds, found.epoch_ends, found.compile_seconds) == (waits, ends, 0.0)


def test_tracing_within_a_step_is_told() -> None:
    recorder = StepRecorder(steps=2, seconds=60.0)
    step = tf.function(lambda x: x + 1)
    for value in (tf.zeros([2]), tf.zeros([3])):
        recorder.begin()
        step(value)
        recorder.end(lambda: (0.0, False))
    found = recorder.series()
    assert 0 < found.compile_seconds <= sum(found.step_seconds)


def test_the_host_waits_for_the_step_before_the_last() -> None:
    first, second = Pending(), Pending()
    first.ready.set()
    recorder = StepRecorder(steps=9, seconds=60.0)
    recorder.keep_pace(first)
    recorder.keep_pace(second)  # blocks on `first` alone: the device still has the second
    read: list[Pending] = []
    second.numpy = lambda: read.append(second) or 0.0
    recorder.keep_pace(Pending())
    assert read == [second]


def test_the_host_waits_for_what_another_library_has_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors too: JAX queues there."""
    waited: list[bool] = []
    monkeypatch.setattr(windows, "waits_for_other_libraries", lambda: [lambda: waited.append(True)])
    StepRecorder(steps=9, seconds=60.0).keep_pace()
    assert waited


# -- elements passed on


def test_relay_passes_on_every_epoch_and_tells_waits_and_beginnings() -> None:
    def generate() -> Any:
        for number in range(10):
            if number == 5:
                time.sleep(0.2)
            yield number

    relay = InputRelay(Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64)))
    numbers, waits, begun, away = [], [], [], []
    left = time.perf_counter()
    for element in relay.dataset.take(25):
        away.append(time.perf_counter() - left)
        numbers.append(int(element))
        waited, new_epoch = relay.read()
        waits.append(waited)
        begun.append(new_epoch)
        left = time.perf_counter()
    assert numbers == [*range(10), *range(10), *range(5)]
    assert [index for index, new in enumerate(begun) if new] == [0, 10, 20]
    # Not 0.2 s: TensorFlow reads ahead, and a reader that takes its time waits for the rest alone.
    assert waits[5] > 0.95 * away[5] and waits[15] > 0.95 * away[15]
    assert np.median(waits) < 0.5 * min(waits[5], waits[15])


def test_relay_keeps_the_spec_of_any_element() -> None:
    def element(number: Any) -> Any:
        return {
            "ragged": tf.RaggedTensor.from_row_lengths(tf.range(3), [1, 2]),
            "sparse": tf.sparse.from_dense([[0, 1], [2, 0]]),
            "pair": (tf.strings.as_string(number), tf.fill([number], 1.5)),
        }

    original = Dataset.range(3).map(element)
    relay = InputRelay(original)
    assert relay.dataset.element_spec == original.element_spec
    for ours, theirs in zip(relay.dataset, original.repeat(2), strict=False):
        flat = [tf.nest.flatten(one, expand_composites=True) for one in (ours, theirs)]
        assert all(np.array_equal(one, other) for one, other in zip(*flat, strict=True))
        if int(theirs["pair"][0]) == 2:
            break


def test_relay_of_an_empty_dataset_ends() -> None:
    with pytest.raises((tf.errors.OutOfRangeError, tf.errors.InvalidArgumentError), match="End of sequence"):
        next(iter(InputRelay(Dataset.range(0)).dataset))


# -- gap times


RANGE = tf.data.Dataset.range


def take(iterator: Any, count: int, *, pause: float = 0.0) -> None:
    for _ in range(count):
        next(iterator)
        time.sleep(pause)


def read(gaps: GapTimes, elements: int) -> list[float]:
    """The gaps before each of so many elements."""
    count, found = gaps.read()
    assert count == elements and found is not None
    return found


def test_each_gap_is_read_once() -> None:
    iterator = iter(RANGE(1000))
    gaps = GapTimes(iterator)
    take(iterator, 3, pause=0.02)
    found = read(gaps, 3)
    assert len(found) == 2 and min(found) >= 0.02
    assert gaps.read() == (0, [])
    take(iterator, 2, pause=0.001)  # one gap of 0.02 s lies before the first of these
    first, second = read(gaps, 2)
    assert first >= 0.02 > second >= 0.001
    for count in (90, 90):  # the runtime keeps 100
        take(iterator, count)
        assert len(read(gaps, count)) == count
    take(iterator, 120)
    assert gaps.read() == (120, None)


@pytest.mark.parametrize(("kept", "known", "count", "newer"), [
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
])  # fmt: skip
def test_gaps_after_the_known_one(kept: list[int], known: int | None, count: int, newer: list[int] | None) -> None:
    assert gap_times._newer(kept, known, count) == newer


def test_iterator_ends_where_it_did_without_a_reader() -> None:
    iterator = iter(RANGE(5))
    gaps = GapTimes(iterator)
    take(iterator, 2)
    del iterator
    assert gaps.read() == (0, None)


# -- the clock


class Waiting:
    """A dataset that takes so long for each element, without a prefetch, and measures that."""

    def __init__(self, count: int, seconds: float) -> None:
        self.seconds: list[float] = []

        def wait(x: Any) -> Any:
            began = time.perf_counter()
            time.sleep(seconds)
            self.seconds.append(time.perf_counter() - began)
            return x

        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        self.dataset = RANGE(count).map(lambda x: tf.numpy_function(wait, [x], tf.int64)).with_options(options)

    def __iter__(self) -> Any:
        return iter(self.dataset)


class Seen(NamedTuple):
    """What Python sees of all steps but the last. All in seconds."""

    steps: int
    least: float  # from the first start to the last, which lie within `begin_step`
    most: float
    wait: float  # in `begin_step` and `next`
    last_wait: float  # that of the last step


def run(clock: InputClock, iterator: Any, *bodies: float) -> Seen:
    """Takes a step for each body."""
    waits: list[float] = []
    starts: list[tuple[float, float]] = []
    for seconds in bodies:
        before = time.perf_counter()
        clock.begin_step(iterator)
        starts.append((before, time.perf_counter()))
        next(iterator)
        waits.append(time.perf_counter() - before)
        time.sleep(seconds)
        clock.end_step()
    least, most = starts[-1][0] - starts[0][1], starts[-1][1] - starts[0][0]
    return Seen(len(bodies) - 1, least, most, sum(waits[:-1]), waits[-1])


def check(found: InputWait, source: Waiting, *seen: Seen) -> None:
    """The wait lies between the time in the dataset's function and that in `begin_step` and `next`.

    Less, by what the last step of each stretch needs from its start to its request.
    """
    clocks = 0.001  # two of them, and gaps are whole microseconds
    assert found.steps == sum(one.steps for one in seen)
    assert sum(one.least for one in seen) - clocks <= found.seconds <= sum(one.most for one in seen) + clocks
    asleep = -sum(one.last_wait for one in seen)
    until = len(source.seconds)
    for one in reversed(seen):
        asleep += sum(source.seconds[until - one.steps - 1 : until])
        until -= one.steps + 1
    assert asleep - clocks <= found.wait_seconds <= sum(one.wait for one in seen) + clocks


@pytest.mark.parametrize(
    ("interval", "slow", "body"),
    [(0.0, 0.02, 0.005), (0.1, 0.001, 0.04)],
    ids=["read after each step", "now and then"],
)
def test_wait_is_what_is_no_gap(monkeypatch: pytest.MonkeyPatch, interval: float, slow: float, body: float) -> None:
    monkeypatch.setattr(gap_times, "_INTERVAL_SECONDS", interval)
    clock, source = InputClock(), Waiting(15, slow)
    run(clock, iter(source), 0.1)  # the very first is not counted
    for _ in range(2):
        iterator = iter(source)
        seen = run(clock, iterator, *[body] * 10)
        time.sleep(0.1)  # validation
        check(clock.end_epoch(), source, seen)


def test_step_that_finds_the_end_is_none() -> None:
    clock, source = InputClock(), Waiting(10, 0.001)
    run(clock, iter(source), 0.0)
    iterator = iter(source)
    seen = run(clock, iterator, *[0.03] * 10)  # read when they have ended
    clock.begin_step(iterator)
    assert next(iterator, None) is None
    check(clock.end_epoch(), source, seen)


def test_time_between_epochs_on_one_iterator_is_not_counted() -> None:
    clock, source = InputClock(), Waiting(100, 0.02)
    iterator = iter(source)
    run(clock, iterator, 0.0)
    for _ in range(2):
        seen = run(clock, iterator, *[0.04] * 10)
        time.sleep(0.1)
        check(clock.end_epoch(), source, seen)


def test_steps_whose_gap_is_missing_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_times, "_INTERVAL_SECONDS", 0.0)
    clock, source = InputClock(), Waiting(100, 0.02)
    iterator = iter(source)
    run(clock, iterator, 0.0)
    before, measured = run(clock, iterator, *[0.04] * 10), len(source.seconds)
    with monkeypatch.context() as patched:
        patched.setattr(gap_times, "_newer", lambda *args: None)
        run(clock, iterator, 0.2)
    del source.seconds[measured:]
    after = run(clock, iterator, *[0.04] * 10)
    check(clock.end_epoch(), source, before, after)


def test_running_wait_is_that_of_the_epoch_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_times, "_INTERVAL_SECONDS", 0.0)
    clock, iterator = InputClock(), iter(RANGE(100))
    run(clock, iterator, 0.0, 0.01)
    assert clock.epoch.share is None
    run(clock, iterator, 0.01, 0.01)
    assert clock.epoch.steps == 2 and clock.epoch.share is not None
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
