"""Consumers: windows and single steps in the user's training step, what is counted, and the messages of failures."""

from __future__ import annotations

import contextlib
import functools
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
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.slow]

from pipetune import tensorflow_private
from pipetune.capture import consumption, loop_consumer
from pipetune.capture.coordinator_consumer import CoordinatorConsumer, ScheduledCall, WorkerDataset
from pipetune.capture.distributed_input import distribute_like_fit
from pipetune.capture.fit_consumer import _TAKEN_AHEAD, FitConsumer, InferenceConsumer, is_tf_keras, steps_per_call
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.errors import StepFailed
from pipetune.core.measurement import RunFailed, StepSeries
from pipetune.measure import machine, runner
from pipetune.measure.caches import with_buffers
from pipetune.pipelines import files, live
from tests.capture.test_hooks import arrays
from tests.timing.asynchronous import Device

Dataset = tf.data.Dataset


def pairs(rows: int = 24) -> Any:
    return Dataset.from_tensor_slices(arrays(rows)).batch(4)


class Counting(keras.Model):  # type: ignore[misc,name-defined]
    """Counts its steps when the graph runs, not when Python traces it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.steps = tf.Variable(0, trainable=False)
        self.tested = tf.Variable(0, trainable=False)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        self.steps.assign_add(1)
        return super().train_step(data)

    def test_step(self, data: Any) -> Any:
        self.tested.assign_add(1)
        return super().test_step(data)


def fitted(model: Any, *, handed: Any = None, **kept: Any) -> FitConsumer:
    return FitConsumer(model, type(model).fit, kept, handed=handed)


def counting(**options: Any) -> Counting:
    model = Counting()
    model.compile(keras.optimizers.Adam(0.1), "mse", **options)
    model(tf.zeros([1, 2]))
    model.optimizer.build(model.trainable_variables)
    return model


def test_fit_window_runs_only_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    model = counting()
    window = fitted(model).window(pairs(), steps=9, warmup=2)
    assert window.steps == 9
    assert int(model.steps) == 12  # warm-up, window and one step after it; the six batches repeat
    assert int(model.tested) == 0
    assert window.wall_seconds > 0 and window.cpu_seconds > 0 and window.first_seconds > 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("method", ["predict", "evaluate"])
def test_inference_window_runs_only_its_steps(capsys: pytest.CaptureFixture[str], method: str) -> None:
    model = counting()
    consumer = InferenceConsumer(model, method, getattr(type(model), method))
    assert consumer.window(pairs(), steps=9, warmup=2).steps == 9 and not consumer.accepts_multi_step_calls
    assert (int(model.steps), int(model.tested)) == (0, 12 if method == "evaluate" else 0)
    assert capsys.readouterr().out == ""


def test_consecutive_windows_do_not_retrace() -> None:
    model = counting()
    consumer = fitted(model)
    traces: list[int] = []
    original = model.call
    model.call = lambda x: [traces.append(1), original(x)][1]
    for dataset in (pairs(), pairs().prefetch(2), pairs(32)):
        consumer.window(dataset, steps=3, warmup=1)
    assert len(traces) <= 1 and int(model.steps) == 3 * (1 + 3 + 1)


def test_steps_per_execution_rounds_windows_up_to_whole_executions() -> None:
    model = counting(steps_per_execution=4)
    consumer = fitted(model)
    for steps, warmup in ((8, 4), (6, 2)):
        before = int(model.steps)
        assert consumer.window(pairs(400), steps=steps, warmup=warmup).steps == 8
        assert int(model.steps) - before == 4 + 8 + 4


def test_module_of_the_user_is_not_taken_for_tf_keras() -> None:
    assert not is_tf_keras(type("Named", (Counting,), {"__module__": "tf_keras_models"})())


def test_fit_arguments_are_used_in_windows() -> None:
    model = counting()
    before = model.dense.kernel.numpy().copy()
    fitted(model, class_weight={0: 0.0}).window(pairs(), steps=3, warmup=0)
    assert np.array_equal(model.dense.kernel.numpy(), before)  # every example has weight 0


def test_steps_per_execution_is_read_from_a_distributed_variable() -> None:
    tf_keras = pytest.importorskip("tf_keras")
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=3)
    assert not isinstance(model.steps_per_execution, int) and steps_per_call(model) == 3
    assert steps_per_call(object()) == steps_per_call(counting()) == 1


def test_fit_input_that_raises_or_is_empty_fails_its_window() -> None:
    class Broken(Counting):
        def call(self, x: Any) -> Any:
            return tf.debugging.check_numerics(self.dense(x) / 0.0, "theirs in the graph")

    consumer, broken = fitted(counting()), Broken()
    with pytest.raises(RunFailed, match="bad input"):
        bad = pairs().map(lambda x, y: (tf.debugging.check_numerics(x / 0.0, "bad input"), y))
        consumer.window(bad, steps=2, warmup=0)
    broken.compile("sgd", "mse")
    with pytest.raises(RunFailed, match="theirs in the graph") as raised:
        fitted(broken).window(pairs(), steps=2, warmup=0)
    assert raised.value.__cause__ is not None
    with pytest.raises(RunFailed):
        consumer.window(pairs().take(0), steps=2, warmup=0)
    assert consumer.window(pairs(), steps=2, warmup=0).steps == 2  # later windows still work


def test_step_window_counts_steps_rows_and_input_wait() -> None:
    seen: list[Any] = []
    window = loop_consumer.StepConsumer(lambda x, y: seen.append((x, y))).window(pairs(), steps=5, warmup=2)
    assert len(seen) == 7 and window.steps == 5 and window.examples == 20
    assert window.wait_seconds is not None and 0 <= window.wait_seconds <= window.wall_seconds


def test_step_is_called_according_to_its_signature() -> None:
    element = (1, 2)
    assert loop_consumer.call_step(lambda x, y: ("two", x, y), element) == ("two", 1, 2)
    assert loop_consumer.call_step(lambda element: ("one", element), element) == ("one", element)
    assert loop_consumer.call_step(lambda *all_of_it: all_of_it, element) == element
    assert loop_consumer.call_step(lambda batch: batch, {"a": 1}) == {"a": 1}
    assert loop_consumer.call_step(lambda x, y=5: (x, y), element) == (1, 2)
    assert loop_consumer.call_step(tf.function(lambda x, y: x + y), (tf.constant(1), tf.constant(2))) == 3
    assert loop_consumer.call_step(max, element) == 2  # a builtin without a signature


ALONE = consumption.NoConsumer("alone")


def make_runner(dataset: Any, consumer: Any, tmp_path: Path, rows: float = 4.0) -> runner.TensorFlowRunner:
    here = machine.read_machine("cpu", root=tmp_path)
    return runner.TensorFlowRunner(live.read(dataset), consumer, machine=here, examples_per_element=rows)


def plan(edit: Insert) -> Plan:
    return Plan(edit.op, (Rewrite(edit.op, edit.after, Safety.EXACT, (edit,), ""),))


PREFETCH = plan(Insert("n1", "prefetch", "p", {"buffer_size": 1}))
CACHE = plan(Insert("n0", "cache", "c"))


@pytest.mark.parametrize(("steps", "known"), [(4, None), (4, 6), (5, None), (5, 6), (6, None)])
def test_a_window_within_an_epoch_does_not_cross_its_end(steps: int, known: int | None, tmp_path: Path) -> None:
    """The start of an epoch, which counts once an epoch, would be inside a second time."""
    seen: list[int] = []
    dataset = tf.data.Dataset.range(6) if known is None else tf.data.Dataset.range(6).filter(lambda x: x >= 0)
    runner = make_runner(dataset, loop_consumer.StepConsumer(lambda x: seen.append(int(x))), tmp_path)
    assert runner.training_window(Plan("current"), steps=steps, epoch_steps=known).steps == steps
    assert seen[:6] == [0, 1, 2, 3, 4, 5] and len(seen) == (6 if steps < 6 else 8)


def test_weights_optimizer_and_counters_are_restored_after_each_window(tmp_path: Path) -> None:
    model = counting()
    held = [*model.variables, *model.optimizer.variables]
    before = [variable.numpy().copy() for variable in held]

    def restored() -> bool:
        same = (np.array_equal(variable.numpy(), value) for variable, value in zip(held, before, strict=True))
        return all(same) and int(model.steps) == 0

    measured = make_runner(pairs(), fitted(model), tmp_path)
    assert measured.trains and measured.shares_processors
    for take in (
        lambda: measured.training_window(Plan("current"), steps=3),
        lambda: measured.training_window(PREFETCH, steps=3),
        lambda: measured.bound_window(steps=3),
    ):
        window = take()
        assert (window.steps, window.examples) == (3, 12) and restored()
    assert len(measured.record_steps(Plan("current"), steps=3, seconds=30.0).step_seconds) == 3 and restored()


def test_state_is_restored_after_a_failed_window(tmp_path: Path) -> None:
    counter = tf.Variable(0)

    def step(x: Any, y: Any) -> None:
        counter.assign_add(1)
        if int(counter) > 3:
            raise ZeroDivisionError

    with pytest.raises(StepFailed):
        make_runner(pairs(), loop_consumer.StepConsumer(step), tmp_path).training_window(Plan("current"), steps=8)
    assert int(counter) == 0


def test_input_window_restores_variables_of_the_pipeline(tmp_path: Path) -> None:
    counter = tf.Variable(0, dtype=tf.int64)
    dataset = Dataset.range(8).map(lambda x: counter.assign_add(1))
    measured = make_runner(dataset, ALONE, tmp_path, 1.0)
    assert not measured.trains
    measured.input_window(Plan("current"), seconds=0.01, warmup_seconds=0.0)
    assert int(counter) == 0


def test_original_plan_is_the_user_s_dataset_and_other_plans_are_built_once(tmp_path: Path) -> None:
    dataset = pairs()
    measured = make_runner(dataset, ALONE, tmp_path)
    assert measured.dataset(Plan("current")) is dataset
    assert measured.dataset(PREFETCH) is measured.dataset(PREFETCH)
    built = measured.dataset(PREFETCH)
    assert live.read(built).pipeline.output.op == "prefetch"
    measured.close()
    assert measured.dataset(PREFETCH) is not built


def test_cache_of_a_plan_is_filled_before_its_windows(tmp_path: Path) -> None:
    generated: list[int] = []

    def generate() -> Any:
        generated.append(1)
        yield from range(6)

    dataset = Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64)).batch(2)
    measured = make_runner(dataset, ALONE, tmp_path)
    measured.dataset(CACHE)
    filled = len(generated)
    for _ in range(2):
        measured.input_window(CACHE, seconds=0.01, warmup_seconds=0.0)
        assert len(generated) == filled


@pytest.mark.parametrize(("limit", "kept"), [(250.0, True), (150.0, False)])
def test_full_caches_of_several_plans_are_kept_only_as_far_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, kept: bool
) -> None:
    measured = make_runner(Dataset.range(8).batch(4), ALONE, tmp_path)
    monkeypatch.setattr(measured, "predicted_bytes", lambda _plan: 100.0)
    measured.memory_limit_bytes = limit
    first, ahead = measured.dataset(CACHE), measured.dataset(PREFETCH)
    measured.dataset(plan(Insert("n0", "cache", "cache@n0")))
    assert (measured.dataset(CACHE) is first) is kept
    assert (measured.dataset(PREFETCH) is ahead) or not kept


def test_file_cache_is_measured_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    measuring = make_runner(Dataset.range(8).map(lambda value: value * 2).batch(4), ALONE, tmp_path)
    cached = plan(Insert("n1", "cache", "cache@n1", {"filename": "pipetune-cache-x"}))
    with files.private_files():
        window = measuring.input_window(cached, seconds=0.05, warmup_seconds=0.0)
        assert window.steps > 0
        folder = Path(files.private_folder())
        assert list(folder.rglob("pipetune-cache-x*"))  # written there, not in the working directory
        assert list(tmp_path.iterdir()) == []
        measuring.close()
    assert not folder.exists()


# -- single steps of every consumer, on a pipeline in which one element of ten is slow


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


def by_inference(dataset: Any, *, method: str) -> StepSeries:
    model = compiled()
    found = InferenceConsumer(model, method, getattr(type(model), method)).record_steps(dataset, steps=60, seconds=30.0)
    assert getattr(model, "stop_predicting", False) is False
    return found


by_predict, by_evaluate = (functools.partial(by_inference, method=method) for method in ("predict", "evaluate"))


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


@pytest.mark.parametrize(("consumer", "dataset", "why"), [
    (loop_consumer.StepConsumer(lambda x, y: 1 // 0), slow_pairs(), "ZeroDivisionError"),
    (loop_consumer.StepConsumer(lambda x: None), Dataset.range(0), "empty"),
    (consumption.NoConsumer("It is inside a function."), slow_pairs(), "inside a function"),
    (CoordinatorConsumer(ScheduledCall(None, (), {}, None, None), WorkerDataset(None, None, object), workers=2),
     slow_pairs(), "at the same time"),
])  # fmt: skip
def test_a_series_that_cannot_be_recorded_says_why(consumer: consumption.Consumer, dataset: Any, why: str) -> None:
    with pytest.raises(RunFailed, match=why):
        consumer.record_steps(dataset, steps=5, seconds=5.0)


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
