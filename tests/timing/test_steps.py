"""Single training steps: what counts to which step, where epochs end, and elements that are passed on in a graph."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.timing import windows
from pipetune.timing.steps import InputRelay, StepRecorder
from tests.timing.asynchronous import InventedClock, Pending

Dataset = tf.data.Dataset


@pytest.mark.parametrize(
    ("calls", "limits", "steps", "waits", "ends"),
    [
        # a step is its wait and what follows until it ends; the start of the series is no end of an epoch
        ([(0.5, 0.25, True, 1), (0.1234567, 0.25, False, 1), (1.0, 0.25, True, 1), (0.0, 0.25, False, 1)], {},
         (0.75, 0.373457, 1.25, 0.25), (0.5, 0.123457, 1.0, 0.0), (2,)),
        # steps of one call have its mean
        ([(0.5, 0.5, False, 2), (1.0, 2.0, True, 2)], {}, (0.5, 0.5, 1.5, 1.5), (0.25, 0.25, 0.5, 0.5), (2,)),
        # none is wanted after the time
        ([(1.0, 0.5, False, 1)] * 2, {"steps": 100, "seconds": 7.0}, (1.5, 1.5), (1.0, 1.0), ()),
        ([(None, 0.5, False, 1)], {"steps": 1}, (0.5,), None, ()),  # waits that cannot be told
    ],
    ids=["steps", "calls", "time", "waits unknown"],
)  # fmt: skip
def test_series_of_steps(
    monkeypatch: pytest.MonkeyPatch, calls: list[Any], limits: dict[str, Any], steps: Any, waits: Any, ends: Any
) -> None:
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
