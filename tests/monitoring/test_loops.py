"""`pipetune.monitor`: what it counts as wait, and what it leaves behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipetune
from tests.starting import search_path
from tests.timing.asynchronous import InventedClock

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> InventedClock:
    return InventedClock(monkeypatch)


class Batches:
    """Three batches by default, each of which takes a second."""

    def __init__(self, clock: InventedClock, *, seconds: float = 1.0, count: int = 3) -> None:
        self.clock, self.seconds, self.count = clock, seconds, count
        self.open = 0

    def __iter__(self) -> Iterator[int]:
        self.open += 1
        try:
            for number in range(self.count):
                self.clock.now += self.seconds
                yield number
        finally:
            self.open -= 1


def test_share_is_that_of_the_steps_after_the_first(clock: InventedClock) -> None:
    monitored = pipetune.monitor(Batches(clock), quiet=True)
    body = iter([100.0, 3.0, 3.0])  # the first step compiles
    assert monitored.input_wait is None
    assert [(number, setattr(clock, "now", clock.now + next(body)))[0] for number in monitored] == [0, 1, 2]
    assert (monitored.steps, monitored.seconds, monitored.wait_seconds, monitored.input_wait) == (2, 8.0, 2.0, 0.25)


def test_loops_add_up_and_only_the_first_step_of_all_is_left_out(clock: InventedClock) -> None:
    monitored = pipetune.monitor(Batches(clock), quiet=True)
    for _ in range(2):
        for _ in monitored:
            clock.now += 1.0
    assert (monitored.steps, monitored.input_wait) == (5, 0.5)


def test_break_and_exceptions_close_the_dataset_and_leave_the_unfinished_step_out(clock: InventedClock) -> None:
    batches = Batches(clock, count=9)
    monitored = pipetune.monitor(batches, quiet=True)
    for number in monitored:
        clock.now += 3.0
        if number == 2:
            break
    assert (batches.open, monitored.steps, monitored.input_wait) == (0, 1, 0.25)
    with pytest.raises(ZeroDivisionError):
        for _ in monitored:
            raise ZeroDivisionError
    gc.collect()  # the traceback holds the loop
    assert (batches.open, monitored.steps) == (0, 1)


def test_iterator_that_is_given_goes_on_after_a_break() -> None:
    numbers = (number for number in range(4))
    for _ in pipetune.monitor(numbers, quiet=True):
        break
    assert list(numbers) == [1, 2, 3]


def test_one_line_is_printed_when_the_first_loop_ends(clock: InventedClock, capsys: pytest.CaptureFixture[str]) -> None:
    monitored = pipetune.monitor(Batches(clock, count=1872))
    for _ in range(2):
        for _ in monitored:
            clock.now += 3.0
        assert capsys.readouterr().out.count("\n") == (1 if monitored.steps == 1871 else 0)


def test_line_names_the_command_where_a_faster_input_can_gain_something(
    clock: InventedClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)

    def line(wait: float) -> str:
        for _ in pipetune.monitor(Batches(clock, seconds=wait, count=1871)):
            clock.now += 100.0 - wait
        return capsys.readouterr().out

    assert line(23.0) == "Input wait 23 % of 1,870 steps: `pipetune.tune(dataset)` may help.\n"  # as in a notebook
    main.__file__ = str(tmp_path / "jobs" / "train.py")
    assert line(23.0) == "Input wait 23 % of 1,870 steps: `pipetune analyze jobs/train.py` may help.\n"
    main.__spec__ = types.SimpleNamespace(name="__main__")  # type: ignore[assignment]  # python jobs
    assert line(23.0) == "Input wait 23 % of 1,870 steps: `pipetune analyze jobs/train.py` may help.\n"
    main.__file__ = str(tmp_path / "my jobs" / "train.py")
    assert line(23.0) == "Input wait 23 % of 1,870 steps: `pipetune analyze 'my jobs/train.py'` may help.\n"
    main.__spec__ = types.SimpleNamespace(name="jobs.__main__")  # type: ignore[assignment]
    assert line(23.0) == "Input wait 23 % of 1,870 steps: `pipetune analyze -m jobs` may help.\n"
    assert line(4.0) == "Input wait 4 % of 1,870 steps.\n"


@pytest.mark.parametrize("numpy", [False, True])
@pytest.mark.tensorflow
def test_datasets_are_passed_on_as_they_are_and_released(numpy: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.range(5)
    source = dataset.as_numpy_iterator() if numpy else dataset
    assert [int(element) for element in pipetune.monitor(source, quiet=True)] == [0, 1, 2, 3, 4]
    iterators: list[weakref.ref[object]] = []

    class Watched:
        def __iter__(self) -> Iterator[object]:
            made = iter(dataset)
            iterators.append(weakref.ref(made))
            return made  # type: ignore[no-any-return]

    for _ in pipetune.monitor(Watched(), quiet=True):
        break
    assert [reference() for reference in iterators] == [None]


@pytest.mark.tensorflow
def test_what_next_itself_takes_is_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a dataset that is ready: no faster input would save what `next` takes in Python, here 20 ms more."""
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.range(30).prefetch(30)
    iterator = type(iter(dataset))
    provided = iterator.__next__

    def slowed(self: Any) -> object:
        time.sleep(0.02)
        return provided(self)

    monkeypatch.setattr(iterator, "__next__", slowed)
    plain, monitored = pipetune.monitor(Passed(dataset), quiet=True), pipetune.monitor(dataset, quiet=True)
    for loop in (plain, monitored):
        for number in loop:
            int(number)
    assert plain.steps == 29 and monitored.steps == 28  # the last step has no request behind it
    assert monitored.wait_seconds < plain.wait_seconds


@pytest.mark.tensorflow
def test_loops_over_a_dataset_add_up_also_after_a_break() -> None:
    tf = pytest.importorskip("tensorflow")
    monitored = pipetune.monitor(tf.data.Dataset.range(10), quiet=True)
    assert monitored.input_wait is None
    for number in monitored:
        if int(number) == 5:
            break
    assert monitored.steps == 4, "neither the first nor the unfinished one"
    assert len(list(monitored)) == 10 and monitored.steps == 4 + 9
    assert monitored.input_wait is not None and 0 <= monitored.wait_seconds <= monitored.seconds


@pytest.mark.tensorflow
def test_where_the_runtime_measures_nothing_the_time_in_next_counts() -> None:
    tf = pytest.importorskip("tensorflow")
    options = tf.data.Options()
    options.autotune.enabled = False
    monitored = pipetune.monitor(tf.data.Dataset.range(10).with_options(options), quiet=True)
    assert len(list(monitored)) == 10 and monitored.steps == 9 and monitored.wait_seconds > 0


class Passed:
    """Elements of a dataset from an iterator that is not TensorFlow's."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        yield from self.dataset


def test_nothing_imports_tensorflow() -> None:
    code = (
        "import sys, pipetune\n"
        "list(pipetune.monitor(range(3)))\n"
        "assert not {'tensorflow', 'keras', 'numpy', 'pipetune.api'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": search_path(ROOT)}, check=True)
