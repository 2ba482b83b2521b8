"""Windows of the input alone: what they count, when they end, and that they leave no iterator running."""

from __future__ import annotations

import gc
import time
from array import array
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune import tensorflow_private
from pipetune.core.measurement import Pause, RunFailed, Window
from pipetune.timing import windows

Dataset = tf.data.Dataset


def window(dataset: Any, **more: Any) -> Window:
    return windows.input_window(dataset, **{"seconds": 0.02, "warmup_seconds": 0.0, "settle_seconds": 0.2, **more})


def with_autotune(dataset: Any, enabled: bool) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = enabled
    return dataset.with_options(options)


@pytest.mark.one_core
def test_window_counts_elements_after_the_warm_up() -> None:
    taken = tf.Variable(0)
    dataset = Dataset.range(7).map(lambda x: taken.assign_add(1))
    found = window(dataset, examples_per_element=3.0)
    assert found.steps >= 1 and found.examples == found.steps * 3
    assert int(taken) >= 1 + 2 + found.steps  # the first, the warm-up, the window; the seven repeat
    assert found.wall_seconds > 0 and found.first_seconds > 0 and found.cpu_seconds >= 0


def test_window_covers_whole_epochs_where_they_are_short() -> None:
    short = window(Dataset.range(7), seconds=0.2, epoch_elements=7)
    assert short.steps % 7 == 0
    waited = Dataset.range(10_000).map(lambda x: tf.py_function(_wait, [x], tf.int64))
    long = window(waited, seconds=0.02, epoch_elements=10_000)  # a whole epoch would take 50 s
    assert long.steps < 10_000


@pytest.mark.parametrize(("gaps", "steps"), [
    ([*[0.003] * 6, 0.2, *[0.003] * 23], 24),  # it begins with the last elements of an epoch; then a buffer is filled
    ([0.03] * 24, 7),  # a whole epoch takes too long
    ([*[0.003] * 6, 0.2, *[0.1] * 23], 10),  # and so it does here, as is seen later
])  # fmt: skip
def test_window_goes_on_to_the_end_of_an_epoch_whose_start_takes_most_of_it(gaps: list[float], steps: int) -> None:
    arrivals, times = array("d"), accumulate(gaps)
    began = list[float]()

    def take() -> None:
        began.append(time.perf_counter())
        arrivals.append(began[0] + next(times))

    assert windows._measure(take, arrivals, 0.2, 1.0, 0.0, 24).steps == steps


@pytest.mark.one_core
def test_elements_buffered_before_the_window_are_not_counted() -> None:
    def reading(iterator: Any) -> None:
        time.sleep(0.5)  # the buffer fills during the poll

    waited = Dataset.range(1000).map(lambda x: tf.py_function(_wait, [x], tf.int64), synchronous=True).prefetch(60)
    found = window(waited, seconds=0.2, on_poll=reading)
    assert found.steps <= 0.2 / 0.005 + 10  # the function waits 5 ms per element on any machine


def _wait(x: Any) -> Any:
    time.sleep(0.005)
    return x


@pytest.mark.parametrize(("seconds", "expected"), [
    ([0.001] * 100, None),
    ([*[0.001] * 29, 1.0] * 3, Pause(30, 1.0)),  # the first element is not in a list of what follows it
    ([*[0.001] * 29, 1.0], Pause(30, 1.0)),
    ([*[0.001] * 29, 0.03] * 3, None),  # a processor was busy
    ([*[0.001] * 29, 0.2], None),  # so it was once
    ([*[0.001] * 29, 0.2] * 2, Pause(30, 0.2)),
    ([*[0.001] * 9, 0.2, *[0.001] * 29, 0.2], Pause(30, 0.2)),  # a shuffle buffer was filled first
    ([*[0.2] * 29, 1.0] * 3, None),  # one element takes longer than another
    ([0.001] * 10, None),
])  # fmt: skip
def test_pauses_of_an_input_stand_out(seconds: list[float], expected: Pause | None) -> None:
    near = expected and replace(expected, seconds=pytest.approx(expected.seconds))
    assert windows.find_pause(list(accumulate(seconds, initial=100.0))) == near


def test_window_of_an_input_in_bursts_knows_its_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(time, "perf_counter", clock.read)
    files = Dataset.range(20).map(lambda x: tf.py_function(clock.load, [x], tf.int64), synchronous=True)
    rows = files.interleave(lambda x: Dataset.range(200), cycle_length=1)
    found = window(windows.without_optimizations(rows), seconds=3.0)
    assert found.pause == Pause(200, pytest.approx(1.0, abs=0.01))


class _Clock:
    """A clock that other processes cannot delay: loading a file takes a second, and reading the clock a microsecond."""

    now = 100.0

    def read(self) -> float:
        self.now += 1e-6
        return self.now

    def load(self, x: Any) -> Any:
        self.now += 1.0
        return x


def test_window_of_an_empty_or_exhausted_dataset_fails() -> None:
    with pytest.raises(RunFailed, match="empty"):
        window(Dataset.range(0))
    once = iter(range(10))
    spent = Dataset.from_generator(lambda: once, output_signature=tf.TensorSpec([], tf.int32))
    with pytest.raises(RunFailed, match="the dataset is empty when it is iterated a second time"):
        window(spent)


def test_error_of_the_user_s_pipeline_is_the_cause() -> None:
    bad = Dataset.range(9).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(3 - x, tf.float32), "theirs"))
    with pytest.raises(RunFailed, match="theirs") as raised:
        window(bad)
    assert isinstance(raised.value.__cause__, tf.errors.InvalidArgumentError)


@pytest.mark.one_core
def test_windows_free_their_iterators() -> None:
    def alive() -> int:
        gc.collect()
        return sum(type(one) is tensorflow_private.OwnedIterator for one in gc.get_objects())

    before = alive()
    window(Dataset.range(9).prefetch(4))
    with pytest.raises(RunFailed):
        window(Dataset.range(0))
    assert alive() == before


def test_model_can_be_read_before_the_iterator_is_freed() -> None:
    seen: list[Any] = []
    read = tf.data.experimental.get_model_proto
    window(with_autotune(Dataset.range(9).map(lambda x: x + 1), True), on_end=lambda it: seen.append(read(it)))
    assert len(seen) == 1 and len(seen[0].nodes) >= 2


@pytest.mark.one_core
def test_fixed_parameters_are_converged_and_changing_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Dataset.range(99).map(lambda x: x + 1, num_parallel_calls=2)
    assert window(data).converged and window(with_autotune(data, False)).converged
    reading = iter(range(1000))
    monkeypatch.setattr(windows, "tuned_parameters", lambda iterator: (("map", float(next(reading))),))
    assert not window(Dataset.range(99)).converged
    monkeypatch.setattr(windows, "tuned_parameters", lambda iterator: (("map", 3.0),))
    assert window(Dataset.range(99)).converged


def test_tuned_parameters_exclude_buffer_sizes() -> None:
    dataset = Dataset.range(99).map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    iterator = iter(dataset)
    next(iterator)
    found = windows.tuned_parameters(iterator)
    assert found is not None
    assert [name.split("/")[1] for name, _ in found] == ["parallelism"]
    assert windows.tuned_parameters(iter(with_autotune(dataset, False))) is None


def test_dataset_is_repeated_for_ever() -> None:
    assert int(windows.repeat_forever(Dataset.range(3)).cardinality()) == tf.data.INFINITE_CARDINALITY
    assert int(windows.repeat_forever(Dataset.range(3).filter(lambda x: x > 0)).cardinality()) != 3


@pytest.mark.parametrize(("element", "rows"), [
    (lambda: tf.zeros([4, 2]), 4),
    (lambda: (tf.zeros([3]), tf.zeros([5])), 3),
    (lambda: {"b": tf.zeros([5]), "a": tf.zeros([2])}, 2),
    (lambda: tf.constant(1.0), 1),
    (lambda: tf.ragged.constant([[1], [2, 3], []]), 3),
    (lambda: tf.sparse.from_dense([[1, 0], [0, 2]]), 2),
    (lambda: (), 1),
    (lambda: (tf.constant(7), tf.zeros([4, 2])), 4),  # with a number from `enumerate`
])  # fmt: skip
def test_row_count_of_an_element(element: Any, rows: int) -> None:
    assert windows.row_count(element()) == rows


def test_examples_per_element_of_a_dataset() -> None:
    numbers = Dataset.range(10)
    assert windows.examples_per_element(numbers.batch(4, drop_remainder=True), True) == 4.0
    assert windows.examples_per_element(numbers.batch(4), True) == 4.0
    assert windows.examples_per_element(numbers.batch(4).enumerate(), True) == 4.0
    assert windows.examples_per_element(numbers.batch(4).map(lambda x: tf.reduce_sum(x)), False) == 1.0
    assert windows.examples_per_element(numbers.map(lambda x: tf.zeros([7])), False) == 1.0
    assert windows.examples_per_element(numbers.take(0).batch(4), True) == 1.0
    ragged = numbers.map(lambda x: tf.fill([x], x)).ragged_batch(3)
    assert windows.examples_per_element(ragged, True) == 3.0
