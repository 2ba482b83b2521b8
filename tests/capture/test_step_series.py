"""Single training steps of every consumer, on a pipeline in which one element of ten is slow."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune import tensorflow_private
from pipetune.capture import consumption, loop_consumer
from pipetune.capture.coordinator_consumer import CoordinatorConsumer, ScheduledCall
from pipetune.capture.distributed_input import distribute_like_fit
from pipetune.capture.fit_consumer import _TAKEN_AHEAD, InferenceConsumer
from pipetune.capture.worker_dataset import WorkerDataset
from pipetune.core.edits import Insert, Plan
from pipetune.core.results import RunFailed, StepSeries
from pipetune.measure.shuffles import with_buffers
from tests.capture.test_consumers import fitted, make_runner, plan
from tests.timing.asynchronous import Device

Dataset = tf.data.Dataset

EPOCH, SLOW = 25, 4  # elements of an epoch, and the place of the slow one in each ten
SECONDS = 0.1  # that it takes, far longer than what a busy machine adds

Record = Callable[[Any], StepSeries]


def slow_pairs() -> Any:
    def generate() -> Any:
        for number in range(EPOCH):
            if number % 10 == SLOW:
                time.sleep(SECONDS)
            yield np.full([4, 2], number, "float32"), np.zeros([4, 1], "float32")

    spec = tf.TensorSpec([4, 2], tf.float32), tf.TensorSpec([4, 1], tf.float32)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # where a step is delayed, it would hide a wait
    return Dataset.from_generator(generate, output_signature=spec).with_options(options)


def compiled(library: Any = keras, **options: Any) -> Any:
    model = library.Sequential([library.layers.Input([2]), library.layers.Dense(1)])
    model.compile(library.optimizers.Adam(0.1), "mse", **options)
    model.fit(slow_pairs().take(1), verbose=0)  # traces the step
    return model


def by_fit(dataset: Any) -> StepSeries:
    model = compiled()
    before = int(model.optimizer.iterations)
    found = fitted(model).record_steps(dataset, steps=60, seconds=30.0)
    assert int(model.optimizer.iterations) - before == 60 and model.stop_training is False
    return found


def by_fit_of_tf_keras(dataset: Any) -> StepSeries:
    return fitted(compiled(pytest.importorskip("tf_keras"))).record_steps(dataset, steps=60, seconds=30.0)


def by_predict(dataset: Any) -> StepSeries:
    model = compiled()
    found = InferenceConsumer(model, "predict", type(model).predict).record_steps(dataset, steps=60, seconds=30.0)
    assert model.stop_predicting is False
    return found


def by_evaluate(dataset: Any) -> StepSeries:
    model = compiled()
    return InferenceConsumer(model, "evaluate", type(model).evaluate).record_steps(dataset, steps=60, seconds=30.0)


def by_a_step(dataset: Any) -> StepSeries:
    return loop_consumer.StepConsumer(lambda x, y: None).record_steps(dataset, steps=60, seconds=30.0)


def in_a_loop(consumer: loop_consumer.LoopConsumer, dataset: Any, *, steps: int = 999) -> StepSeries:
    """Lets another thread take the steps, as the script's own thread does."""

    def script() -> None:
        with contextlib.suppress(consumption.ScriptStopped):
            for _ in range(steps):
                consumer.next_element()
            consumer.abandon("The loop has ended.")

    thread = threading.Thread(target=script)
    thread.start()
    try:
        return consumer.record_steps(dataset, steps=60, seconds=30.0)
    finally:
        consumer.stop()
        thread.join()


def by_a_loop(dataset: Any) -> StepSeries:
    return in_a_loop(loop_consumer.LoopConsumer(), dataset)


@pytest.mark.parametrize("record", [by_fit, by_fit_of_tf_keras, by_predict, by_evaluate, by_a_step, by_a_loop])
def test_waits_show_the_slow_elements_and_epochs_end_where_they_do(record: Record) -> None:
    found = record(slow_pairs())
    assert found.wait_seconds is not None and len(found.step_seconds) == len(found.wait_seconds) == 60
    beside = [step - wait for step, wait in zip(found.step_seconds, found.wait_seconds, strict=True)]
    assert found.epoch_ends == (EPOCH, 2 * EPOCH)
    slow = [index for index in range(60) if index % EPOCH % 10 == SLOW]
    assert min(found.wait_seconds[index] for index in slow) > 0.5 * SECONDS
    assert statistics.median(found.wait_seconds) < 0.2 * SECONDS
    assert min(beside) >= -1e-6  # each is rounded
    assert statistics.median(beside) < 0.2 * SECONDS


def test_a_call_of_several_steps_is_divided_among_them() -> None:
    found = fitted(compiled(steps_per_execution=5)).record_steps(slow_pairs(), steps=60, seconds=30.0)
    assert found.wait_seconds is not None and len(found.step_seconds) == len(found.wait_seconds) == 60
    assert set(found.epoch_ends) == {EPOCH, 2 * EPOCH}
    assert found.wait_seconds[:5] == (found.wait_seconds[0],) * 5 and found.wait_seconds[0] > 0.5 * SECONDS / 5
    assert found.wait_seconds[5] < found.wait_seconds[0]


def test_the_time_ends_a_series_and_fit() -> None:
    model = compiled()
    before = int(model.optimizer.iterations)
    found = fitted(model).record_steps(slow_pairs(), steps=10_000, seconds=0.5)
    assert 1 < len(found.step_seconds) < 500
    assert int(model.optimizer.iterations) - before == len(found.step_seconds)


def test_waits_are_unknown_under_a_strategy() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        consumer = fitted(compiled(), handed=distribute_like_fit(strategy, slow_pairs()))
    found = consumer.record_steps(slow_pairs(), steps=30, seconds=30.0)
    assert len(found.step_seconds) == 30 and sum(found.step_seconds) > 3 * SECONDS
    assert (found.wait_seconds, found.epoch_ends, found.why) == (None, (), _TAKEN_AHEAD)


def test_waits_are_unknown_on_a_device_or_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = fitted(compiled())

    def recorded(dataset: Any) -> StepSeries:
        return consumer.record_steps(dataset, steps=5, seconds=30.0)

    copied = recorded(slow_pairs().apply(tf.data.experimental.copy_to_device("/cpu:0")))
    assert (len(copied.step_seconds), copied.wait_seconds, copied.why) == (5, None, _TAKEN_AHEAD)
    monkeypatch.setattr(tensorflow_private, "op_determinism_enabled", lambda: True)
    deterministic = recorded(slow_pairs())
    assert (len(deterministic.step_seconds), deterministic.wait_seconds) == (5, None)
    assert "determinism" in deterministic.why


def test_steps_of_a_loop_that_ends_are_kept() -> None:
    consumer = loop_consumer.LoopConsumer()
    found = in_a_loop(consumer, slow_pairs(), steps=23)
    assert len(found.step_seconds) == 22
    with pytest.raises(RunFailed, match="The loop has ended"):
        consumer.record_steps(slow_pairs(), steps=60, seconds=30.0)


def test_a_step_lasts_as_long_as_the_device_needs() -> None:
    device = Device(0.02)
    try:
        found = loop_consumer.StepConsumer(device.step).record_steps(Dataset.range(99), steps=20, seconds=30.0)
    finally:
        device.close()
    assert 0.018 < statistics.median(found.step_seconds) < 0.04
    assert found.wait_seconds is not None and statistics.median(found.wait_seconds) < 0.01


@pytest.mark.parametrize(
    ("consumer", "dataset", "why"),
    [
        (loop_consumer.StepConsumer(lambda x, y: 1 // 0), slow_pairs(), "ZeroDivisionError"),
        (loop_consumer.StepConsumer(lambda x: None), Dataset.range(0), "empty"),
        (consumption.NoConsumer("It is inside a function."), slow_pairs(), "inside a function"),
        (CoordinatorConsumer(ScheduledCall(None, (), {}, None, None), WorkerDataset(None, None, object), workers=2),
         slow_pairs(), "at the same time"),
    ],
)  # fmt: skip
def test_a_series_that_cannot_be_recorded_says_why(consumer: consumption.Consumer, dataset: Any, why: str) -> None:
    with pytest.raises(RunFailed, match=why):
        consumer.record_steps(dataset, steps=5, seconds=5.0)


def test_weights_and_optimizer_are_restored(tmp_path: Path) -> None:
    model = compiled()
    held = [*model.variables, *model.optimizer.variables]
    before = [variable.numpy().copy() for variable in held]
    runner = make_runner(slow_pairs(), fitted(model), tmp_path)
    assert len(runner.record_steps(Plan("as written"), steps=20, seconds=30.0).step_seconds) == 20
    assert all(np.array_equal(variable.numpy(), value) for variable, value in zip(held, before, strict=True))


def test_steps_have_the_script_s_own_shuffle_buffers_and_the_plan(tmp_path: Path) -> None:
    seen: list[int] = []
    dataset = Dataset.range(64).shuffle(64)
    measured = make_runner(dataset, loop_consumer.StepConsumer(lambda x: seen.append(int(tf.reduce_max(x)))), tmp_path)
    measured.cut = cut = with_buffers(measured.source, {"n1": 2})
    measured.record_steps(Plan("as written"), steps=20, seconds=30.0)
    assert max(seen) > 40  # 21 elements at most in the smaller buffer
    assert measured.cut is cut
    measured.record_steps(plan(Insert("n1", "batch", "b", {"batch_size": 64})), steps=2, seconds=30.0)
    assert seen[-2:] == [63, 63]
    with pytest.raises(RunFailed, match="cannot be rebuilt"):
        measured.record_steps(plan(Insert("n0", "map", "m")), steps=2, seconds=30.0)
    assert measured.cut is cut


def test_steps_in_which_something_was_compiled_are_taken_again(tmp_path: Path) -> None:
    step = tf.function(lambda x: tf.reduce_sum(x))
    sizes: list[int] = []

    def counted(x: Any) -> Any:
        sizes.append(len(x))
        return step(x)

    measured = make_runner(Dataset.range(10).batch(4), loop_consumer.StepConsumer(counted), tmp_path)
    found = measured.record_steps(Plan("as written"), steps=6, seconds=30.0)
    assert sizes == [4, 4, 2, 4, 4, 2] * 2 and found.compile_seconds == 0 and len(found.step_seconds) == 6


def test_interrupt_between_the_queue_and_the_window_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's thread had taken the request and not begun with it: a notebook then hung after an interrupt."""
    consumer = loop_consumer.LoopConsumer()
    failed: list[bool] = []

    def request() -> None:
        with pytest.raises(RunFailed, match=r"^The loop has ended\.$"):
            consumer.window(Dataset.range(9), steps=2, warmup=0)
        failed.append(True)

    class Interrupted:
        def __init__(self, requests: Any) -> None:
            self.put, self.empty, self._get = requests.put, requests.empty, requests.get

        def get(self) -> Any:
            self._get()
            raise KeyboardInterrupt

    monkeypatch.setattr(consumer, "_requests", Interrupted(consumer._requests))
    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.next_element()
    consumer.abandon("The loop has ended.")
    thread.join(timeout=60)
    assert failed == [True]
