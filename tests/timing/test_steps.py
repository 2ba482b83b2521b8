"""Single training steps: what counts to which step, where epochs end, and elements that are passed on in a graph."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.results import StepSeries
from pipetune.timing import windows
from pipetune.timing.steps import InputRelay, StepRecorder
from tests.timing.asynchronous import InventedClock, Pending

Dataset = tf.data.Dataset


class Recording(StepRecorder):
    """A recorder on an invented clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, steps: int = 4, seconds: float = 60.0) -> None:
        self.clock = InventedClock(monkeypatch)
        super().__init__(steps=steps, seconds=seconds)

    def record(self, wait: float | None, rest: float, *, new_epoch: bool = False, steps: int = 1) -> bool:
        """Records one step; afterwards 5 s pass until the next, which count to neither."""
        self.begin()
        self.clock.spend((wait or 0.0) + rest)
        more = self.end(lambda: (wait, new_epoch), steps=steps)
        self.clock.spend(5.0)
        return more


def test_a_step_is_its_wait_and_what_follows_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recording(monkeypatch)
    assert recorder.record(0.5, 0.25, new_epoch=True)
    assert recorder.record(0.1234567, 0.25)
    assert recorder.record(1.0, 0.25, new_epoch=True)
    assert not recorder.record(0.0, 0.25)
    found = recorder.series()
    assert found.step_seconds == pytest.approx((0.75, 0.373457, 1.25, 0.25), abs=1e-9)
    assert found.wait_seconds == (0.5, 0.123457, 1.0, 0.0)
    assert found.epoch_ends == (2,)  # the start of the series is no end


def test_no_step_is_wanted_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recording(monkeypatch, steps=100, seconds=7.0)
    assert recorder.record(1.0, 0.5)
    assert not recorder.record(1.0, 0.5)


def test_steps_of_one_call_have_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recording(monkeypatch)
    assert recorder.record(0.5, 0.5, steps=2)
    assert not recorder.record(1.0, 2.0, steps=2, new_epoch=True)
    assert recorder.series() == StepSeries((0.5, 0.5, 1.5, 1.5), (0.25, 0.25, 0.5, 0.5), epoch_ends=(2,))


def test_waits_that_cannot_be_told_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recording(monkeypatch)
    recorder.record(None, 0.5)
    assert (recorder.series().step_seconds, recorder.series().wait_seconds) == ((0.5,), None)


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
    numbers, waits, begun = [], [], []
    for element in relay.dataset.take(25):
        numbers.append(int(element))
        waited, new_epoch = relay.read()
        waits.append(waited)
        begun.append(new_epoch)
    assert numbers == [*range(10), *range(10), *range(5)]
    assert [index for index, new in enumerate(begun) if new] == [0, 10, 20]
    assert waits[5] > 0.19 and waits[15] > 0.19
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
