"""The input alone: what a window counts, when it ends, and that nothing is left running behind it."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.measurement import RunFailed, Window
from pipetune.tf import private
from pipetune.tf.measure import windows

Dataset = tf.data.Dataset


def window(dataset: Any, **more: Any) -> Window:
    return windows.input_window(dataset, **{"seconds": 0.02, "warmup_seconds": 0.0, "settle_seconds": 0.2, **more})


@pytest.mark.one_core
def test_a_window_counts_what_it_took_after_the_warm_up() -> None:
    taken = tf.Variable(0)
    dataset = Dataset.range(7).map(lambda x: taken.assign_add(1))
    found = window(dataset, warmup_elements=50, examples_per_element=3.0)
    assert found.steps >= 1 and found.examples == found.steps * 3
    assert int(taken) >= 1 + 50 + found.steps  # the first, the warm-up, the window; the seven again and again
    assert found.wall_seconds > 0 and found.first_seconds > 0 and found.cpu_seconds >= 0


@pytest.mark.one_core
def test_a_slow_element_is_a_window_of_its_own() -> None:
    waited = Dataset.range(100).map(lambda x: tf.py_function(_wait, [x], tf.int64))
    found = window(waited, seconds=0.0)
    assert found.steps == 1


def test_a_window_covers_whole_epochs_where_they_are_short() -> None:
    short = window(Dataset.range(7), seconds=0.2, epoch_elements=7)
    assert short.steps % 7 == 0
    waited = Dataset.range(10_000).map(lambda x: tf.py_function(_wait, [x], tf.int64))
    long = window(waited, seconds=0.02, epoch_elements=10_000)  # 50 s would be far more than was asked for
    assert long.steps < 10_000


@pytest.mark.one_core
def test_what_filled_a_buffer_before_the_window_is_not_counted() -> None:
    def reading(iterator: Any) -> None:
        time.sleep(0.5)  # while numbers are read the buffer fills

    waited = Dataset.range(1000).map(lambda x: tf.py_function(_wait, [x], tf.int64), synchronous=True).prefetch(60)
    found = window(waited, seconds=0.2, on_poll=reading)
    assert found.steps <= 0.2 / 0.005 + 10  # the function waits 5 ms for each, however fast the machine is


def _wait(x: Any) -> Any:

    time.sleep(0.005)
    return x


def test_an_empty_dataset_and_one_that_is_spent() -> None:
    with pytest.raises(RunFailed, match="empty"):
        window(Dataset.range(0))
    once = iter(range(10))
    spent = Dataset.from_generator(lambda: once, output_signature=tf.TensorSpec([], tf.int32))
    with pytest.raises(RunFailed, match="read a second time"):
        window(spent, warmup_elements=30)


def test_the_users_error_is_the_cause() -> None:
    bad = Dataset.range(9).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(3 - x, tf.float32), "theirs"))
    with pytest.raises(RunFailed, match="theirs") as raised:
        window(bad, warmup_elements=5)
    assert isinstance(raised.value.__cause__, tf.errors.InvalidArgumentError)

    def generate() -> Any:
        yield 1
        raise KeyError("out of theirs")

    with pytest.raises(RunFailed, match="out of theirs"):
        window(Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int32)), warmup_elements=5)


@pytest.mark.one_core
def test_nothing_is_left_running() -> None:
    def alive() -> int:
        gc.collect()
        return sum(type(one) is private.OwnedIterator for one in gc.get_objects())

    before = alive()
    window(Dataset.range(9).prefetch(4))
    with pytest.raises(RunFailed):
        window(Dataset.range(0))
    assert alive() == before


def test_the_model_can_be_read_before_the_iterator_is_freed() -> None:
    seen: list[Any] = []
    options = tf.data.Options()
    options.autotune.enabled = True
    window(Dataset.range(9).map(lambda x: x + 1).with_options(options), on_end=lambda it: seen.append(
        tf.data.experimental.get_model_proto(it)
    ))  # fmt: skip
    assert len(seen) == 1 and len(seen[0].nodes) >= 2


@pytest.mark.one_core
def test_fixed_numbers_stand_still() -> None:
    assert window(Dataset.range(99).map(lambda x: x + 1, num_parallel_calls=2)).converged
    options = tf.data.Options()
    options.autotune.enabled = False
    assert window(Dataset.range(99).map(lambda x: x + 1, num_parallel_calls=2).with_options(options)).converged


def test_numbers_that_move_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = iter(range(1000))
    monkeypatch.setattr(windows, "parameters", lambda iterator: (("map", float(next(reading))),))
    assert not window(Dataset.range(99)).converged
    monkeypatch.setattr(windows, "parameters", lambda iterator: (("map", 3.0),))
    assert window(Dataset.range(99)).converged


def test_parameters_are_those_that_set_the_rate() -> None:
    dataset = Dataset.range(99).map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    iterator = iter(dataset)
    next(iterator)
    found = windows.parameters(iterator)
    assert found is not None
    assert [name.split("/")[1] for name, _ in found] == ["parallelism"]
    options = tf.data.Options()
    options.autotune.enabled = False
    assert windows.parameters(iter(dataset.with_options(options))) is None


def test_endless() -> None:
    repeated = Dataset.range(3).repeat()
    assert windows.endless(repeated) is repeated
    assert int(windows.endless(Dataset.range(3)).cardinality()) == tf.data.INFINITE_CARDINALITY
    assert int(windows.endless(Dataset.range(3).filter(lambda x: x > 0)).cardinality()) != 3


@pytest.mark.parametrize(
    ("element", "rows"),
    [
        (lambda: tf.zeros([4, 2]), 4),
        (lambda: (tf.zeros([3]), tf.zeros([5])), 3),
        (lambda: {"b": tf.zeros([5]), "a": tf.zeros([2])}, 2),
        (lambda: tf.constant(1.0), 1),
        (lambda: tf.ragged.constant([[1], [2, 3], []]), 3),
        (lambda: tf.sparse.from_dense([[1, 0], [0, 2]]), 2),
        (lambda: (), 1),
        (lambda: tf.constant(["a", "b"]), 2),
    ],
)
def test_rows_of_an_element(element: Any, rows: int) -> None:
    assert windows.rows(element()) == rows


def test_examples_in_an_element() -> None:
    numbers = Dataset.range(10)
    assert windows.examples_per_element(numbers.batch(4, drop_remainder=True), True) == 4.0
    assert windows.examples_per_element(numbers.batch(4), True) == 4.0
    assert windows.examples_per_element(numbers.batch(4).map(lambda x: tf.reduce_sum(x)), False) == 1.0
    assert windows.examples_per_element(numbers.map(lambda x: tf.zeros([7])), False) == 1.0
    assert windows.examples_per_element(numbers.take(0).batch(4), True) == 1.0
    ragged = numbers.map(lambda x: tf.fill([x], x)).ragged_batch(3)
    assert windows.examples_per_element(ragged, True) == 3.0
