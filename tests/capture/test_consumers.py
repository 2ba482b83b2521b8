"""Windows in the user's own training step: what is counted, what is not, and the messages of failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.slow]

from pipetune.capture import consumption, loop_consumer
from pipetune.capture.fit_consumer import FitConsumer, InferenceConsumer, is_tf_keras, steps_per_call
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.errors import StepFailed
from pipetune.core.results import RunFailed
from pipetune.measure import machine, runner
from pipetune.pipelines import files, live
from tests.capture.test_hooks import arrays

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


def test_weights_optimizer_and_counters_are_restored_after_each_window(tmp_path: Path) -> None:
    model = counting()
    before = [variable.numpy().copy() for variable in (*model.variables, *model.optimizer.variables)]
    measured = make_runner(pairs(), fitted(model), tmp_path)
    assert measured.trains and measured.shares_processors
    for window in (
        measured.training_window(Plan("current"), steps=3),
        measured.training_window(PREFETCH, steps=3),
        measured.bound_window(steps=3),
    ):
        assert (window.steps, window.examples) == (3, 12)
        after = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
        assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
        assert int(model.steps) == 0


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.range(5), 0),
        (Dataset.range(5).enumerate(), (1, 1)),
        (Dataset.range(1).enumerate(), (0, 0)),
        # Has a zip, and TensorFlow does not join it with another dataset.
        (Dataset.sample_from_datasets([Dataset.range(5).map(lambda x: (tf.zeros([2]), x)).repeat()] * 2,
         weights=Dataset.from_tensors(0).repeat().map(lambda _: tf.constant([1.0, 0.0]))), (0, 1)),
    ],
)  # fmt: skip
def test_input_of_the_bound_is_one_numbered_element(tmp_path: Path, dataset: Any, expected: Any) -> None:
    (element,) = list(make_runner(dataset, ALONE, tmp_path).training_dataset(None))
    assert tf.nest.map_structure(lambda part: int(tf.reduce_sum(part)), element) == expected


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


def test_plan_that_cannot_be_rebuilt_fails_its_window(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="cannot be rebuilt"):
        wrong = plan(Insert("n0", "map", "m"))
        make_runner(pairs(), ALONE, tmp_path).input_window(wrong, seconds=0.01, warmup_seconds=0.0)


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
