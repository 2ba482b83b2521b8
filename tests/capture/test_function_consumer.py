"""Training inside a `tf.function` that takes its elements itself."""

from __future__ import annotations

import functools
import itertools
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from pipetune.capture import consumption, loop_consumer
from pipetune.capture.function_consumer import FunctionConsumer
from pipetune.capture.observed_script import ObservedScript
from pipetune.core.results import RunFailed
from pipetune.pipelines.functions import written_captures
from tests.capture.test_hooks import Run, run
from tests.capture.test_strategies import mirrored

pytestmark = pytest.mark.tensorflow

IN_A_STRATEGY = pytest.mark.filterwarnings("ignore:To make it possible to preserve")  # TensorFlow's own

Dataset = tf.data.Dataset
TRACES: list[str] = []


def train_on(state: Any, numbers: Any) -> None:
    state.assign_add(tf.cast(tf.reduce_sum(numbers), tf.float32))


def functions(take: Callable[[Any], None]) -> dict[str, Any]:
    """Functions of a script, by name, which train on each element by `take`."""

    @tf.function
    def train_epoch(dataset: Any) -> None:
        TRACES.append("epoch")
        for element in dataset:
            take(element)

    @tf.function
    def train_steps(iterator: Any, count: Any) -> None:
        TRACES.append("steps")
        for _ in tf.range(count):
            take(next(iterator))

    @tf.function
    def train_step(iterator: Any) -> None:
        TRACES.append("one step")
        take(next(iterator))

    return {"train_epoch": train_epoch, "train_steps": train_steps, "train_step": train_step}


def functions_of(state: Any) -> dict[str, Any]:
    return functions(functools.partial(train_on, state))


def epoch(state: Any, train: Any) -> Any:
    train_epoch = functions_of(state)["train_epoch"]
    return lambda: train_epoch(train)


def captured(state: Any, train: Any) -> Any:
    @tf.function
    def train_epoch() -> Any:
        TRACES.append("captured")
        for numbers in train:
            train_on(state, numbers)

    return train_epoch


def steps(state: Any, train: Any) -> Any:
    train_steps, iterator = functions_of(state)["train_steps"], iter(train)
    return lambda: train_steps(iterator, tf.constant(3))


def one_step(state: Any, train: Any) -> Any:
    train_step, iterator = functions_of(state)["train_step"], iter(train)
    return lambda: train_step(iterator)


def captured_iterator(state: Any, train: Any) -> Any:
    iterator = iter(train)

    @tf.function
    def train_step() -> None:
        TRACES.append("captured iterator")
        train_on(state, next(iterator))

    return train_step


def until_empty(state: Any, train: Any) -> Any:
    @tf.function
    def train_epoch(iterator: Any) -> None:
        TRACES.append("until empty")
        more = tf.constant(True)
        while more:
            found = iterator.get_next_as_optional()
            more = found.has_value()
            if more:
                train_on(state, found.get_value())

    return lambda: train_epoch(iter(train))


FUNCTIONS = (epoch, captured, steps, one_step, captured_iterator, until_empty)


def trained(function: Callable[[Any, Any], Any]) -> tuple[Run, Any]:
    """Returns how a script ran that trains by `function`, and its variable."""
    state = tf.Variable(0.0)

    def script() -> None:
        train_model = function(state, Dataset.range(50).batch(5))
        for _ in range(3):
            train_model()

    return run(script), state


@pytest.mark.parametrize("function", FUNCTIONS)
def test_windows_take_their_elements_from_another_dataset(function: Any) -> None:
    TRACES.clear()
    found, state = trained(function)
    assert found.stopped and found.use.consumer_call == "a tf.function"
    assert (found.use.variable, found.use.elements) == ("" if function is captured else "train", 0)
    assert found.use.training_sign == "it changes trainable variables" and isinstance(found.consumer, FunctionConsumer)
    assert float(state) == 0, "the script's own call has not run"
    traces = len(TRACES)
    window = found.consumer.window(Dataset.range(10_000, 10_004).batch(2), steps=7, warmup=3)
    # Elements 0 to 10 of the repeated dataset: warm-up, window, and the request that ends it.
    assert float(state) == sum([20_001, 20_005][number % 2] for number in range(11))
    assert (window.steps, window.examples, len(TRACES)) == (7, 7, traces)
    assert window.wall_seconds > 0 and window.first_seconds > 0 and window.wait_seconds is not None


def test_function_of_several_epochs_and_with_validation_takes_each_element_once() -> None:
    def epochs(state: Any, train: Any) -> Any:
        validation = Dataset.range(3)

        @tf.function
        def train_epochs(dataset: Any, checked: Any) -> None:
            for _ in tf.range(1_000):
                for numbers in dataset:
                    train_on(state, numbers)
                for number in checked:
                    tf.debugging.assert_less(number, tf.constant(3, tf.int64))

        return lambda: train_epochs(train, validation)

    found, state = trained(epochs)
    found.consumer.window(Dataset.range(4).batch(2), steps=4, warmup=1)
    assert float(state) == 1 + 5 + 1 + 5 + 1 + 5


def test_script_s_own_iterators_stay_where_they_are() -> None:
    state, checked = tf.Variable(0.0), tf.Variable(0, dtype=tf.int64, trainable=False)
    iterators: list[Any] = []

    def script() -> None:
        train, validation = Dataset.range(50), Dataset.range(100, 103)
        iterators.extend([iter(train), iter(validation)])

        @tf.function
        def step(training: Any, checking: Any) -> None:
            train_on(state, next(training))
            checked.assign_add(next(checking))

        step(*iterators)

    found = run(script)
    assert found.use.name == "train"
    found.consumer.window(Dataset.range(9), steps=5, warmup=1)  # more than there are of the other dataset
    assert int(checked) > 500
    assert [int(next(iterator)) for iterator in iterators] == [0, 100]


@pytest.mark.parametrize("distributed", [False, True])
@IN_A_STRATEGY
def test_function_that_changes_no_weights_does_not_train(distributed: bool) -> None:
    weights, metric = tf.Variable(2.0), tf.Variable(0.0, trainable=False)
    read = 0.0

    def script() -> None:
        nonlocal read
        checked = Dataset.range(4)
        data = mirrored().experimental_distribute_dataset(checked) if distributed else checked

        @tf.function
        def evaluate(dataset: Any) -> None:
            for number in dataset:
                metric.assign_add(weights * tf.cast(number, tf.float32))

        evaluate(data)
        evaluate(data)
        read = float(metric)

    found = run(script)
    assert not found.begun and found.roles == {"checked": "preview"}
    assert read > 0
    asked = run(script, wanted="checked")
    assert asked.use.name == "checked" and isinstance(asked.consumer, FunctionConsumer)
    assert not asked.use.training_sign


def test_step_of_a_python_loop_may_take_elements_of_another_dataset(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("train = made()\nfor numbers in train:\n    step(numbers)\n")
    state = tf.Variable(0.0)

    def script() -> None:
        negatives = iter(Dataset.range(1_000))

        @tf.function
        def step(numbers: Any) -> None:
            train_on(state, numbers + next(negatives))

        runpy.run_path(str(file), {"made": lambda: Dataset.range(200).batch(5), "step": step})

    found = run(script)
    assert found.use.name == "train" and isinstance(found.consumer, loop_consumer.LoopConsumer)


def test_variables_are_created_before_the_script_stops() -> None:
    made: list[Any] = []

    def script() -> None:
        train = Dataset.range(50)

        @tf.function
        def step(iterator: Any) -> None:
            if not made:
                made.append(tf.Variable(1.0))
            train_on(made[0], next(iterator))

        step(iter(train))

    found = run(script)
    assert isinstance(found.consumer, FunctionConsumer) and float(made[0]) == 1
    found.consumer.window(Dataset.range(4), steps=2, warmup=1)
    assert float(made[0]) == 1 + 0 + 1 + 2 + 3


@pytest.mark.parametrize("function", [epoch, captured, steps, one_step])
@pytest.mark.mission("B5.function")
@IN_A_STRATEGY
def test_distributed_elements_are_taken_as_a_strategy_distributes_them(function: Any) -> None:
    taken: list[list[int]] = []

    def script() -> None:
        strategy = mirrored()
        weights = tf.Variable(0.0)
        train = Dataset.range(64).batch(4)

        class State:
            """Has the interface that `train_on` needs; an element has one part per replica."""

            def assign_add(self, value: Any) -> None:
                weights.assign_add(value)

        def seen(numbers: Any) -> Any:
            tf.numpy_function(lambda value: taken.append(value.tolist()), [numbers], [])
            return numbers

        distributed = strategy.experimental_distribute_dataset(train)

        def both(element: Any) -> None:
            for part in strategy.experimental_local_results(element):
                train_on(State(), seen(part))

        @tf.function
        def over_captured() -> None:
            for element in distributed:
                both(element)

        taking, iterator = functions(both), iter(distributed)
        {
            epoch: lambda: taking["train_epoch"](distributed),
            captured: over_captured,
            steps: lambda: taking["train_steps"](iterator, tf.constant(3)),
            one_step: lambda: taking["train_step"](iterator),
        }[function]()

    found = run(script)
    assert found.use.name == "train" and isinstance(found.consumer, FunctionConsumer)
    assert found.use.distributed_input is not None
    window = found.consumer.window(Dataset.range(100, 108).batch(4), steps=4, warmup=2)
    assert (window.steps, window.wait_seconds) == (4, None)
    batches = [[100, 101, 102, 103], [104, 105, 106, 107]]
    assert len(taken) > 6 and taken == list(itertools.islice(itertools.cycle(batches), len(taken)))


def with_break(state: Any, train: Any) -> Any:
    @tf.function
    def train_some(dataset: Any) -> None:
        for numbers in dataset:
            train_on(state, numbers)
            if numbers[0] > 103:
                break

    return lambda: train_some(train)


def with_take(state: Any, train: Any) -> Any:
    @tf.function
    def train_some(dataset: Any) -> None:
        for numbers in dataset.take(2):
            train_on(state, numbers)

    return lambda: train_some(train)


def counted(state: Any, train: Any) -> Any:
    @tf.function
    def train_some(dataset: Any) -> None:
        iterator = iter(dataset)
        for _ in tf.range(2):
            train_on(state, next(iterator))

    return lambda: train_some(train)


@pytest.mark.parametrize("function", [with_break, with_take, counted])
def test_function_that_leaves_a_dataset_early_is_called_again(function: Any) -> None:
    found, state = trained(function)
    assert found.use.readings.elements == 0, "a cache may never be complete"
    found.consumer.window(Dataset.range(100, 108).batch(2), steps=5, warmup=1)
    taken = [0, 1, 2, 0, 1, 2] if function is with_break else [0, 1, 2, 3, 0, 1, 2]  # it requests one more to leave
    assert float(state) == sum([201, 205, 209, 213][number] for number in taken)


def test_function_that_takes_nothing_has_no_window() -> None:
    def taking_nothing(state: Any, train: Any) -> Any:
        @tf.function
        def train_none(dataset: Any) -> None:
            for numbers in dataset.take(0):
                train_on(state, numbers)

        return lambda: train_none(train)

    found, _ = trained(taking_nothing)
    with pytest.raises(RunFailed, match=r"has taken too few elements"):
        found.consumer.window(Dataset.range(10, 20).batch(5), steps=4, warmup=1)


@pytest.mark.parametrize("function", [epoch, one_step])
def test_empty_dataset_ends_the_window(function: Any) -> None:
    found, _ = trained(function)
    with pytest.raises(RunFailed):
        found.consumer.window(Dataset.range(0).batch(5), steps=2, warmup=1)


def test_step_that_raises_ends_the_window() -> None:
    found, _ = trained(one_step)
    broken = Dataset.range(10).map(lambda x: x // 0).batch(5)
    with pytest.raises(RunFailed, match=r"tf\.function raised .*zero"):
        found.consumer.window(broken, steps=2, warmup=1)


def test_single_steps_are_recorded_where_each_call_takes_one() -> None:
    found, state = trained(one_step)
    found.consumer.window(Dataset.range(8).batch(4), steps=2, warmup=1)
    state.assign(0.0)
    series = found.consumer.record_steps(Dataset.range(8).batch(4), steps=5, seconds=60.0)
    assert len(series.step_seconds) == 5 and series.wait_seconds is not None and series.epoch_ends == (2, 4)
    assert float(state) == 6 + 22 + 6 + 22 + 6

    found, _ = trained(epoch)
    found.consumer.window(Dataset.range(8).batch(4), steps=2, warmup=1)
    assert "many steps in one call" in found.consumer.record_steps(Dataset.range(8), steps=5, seconds=60.0).why


def test_no_clock_can_be_read_with_op_determinism(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetune.tensorflow_private.op_determinism_enabled", lambda: True)
    found, _ = trained(epoch)
    assert isinstance(found.consumer, consumption.NoConsumer) and "determinism" in found.consumer.description


def test_processes_in_step_measure_the_input_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.capture.test_hooks.ObservedScript", functools.partial(ObservedScript, lockstep=True))
    found, _ = trained(one_step)
    assert isinstance(found.consumer, consumption.NoConsumer) and "same steps" in found.consumer.description


@pytest.mark.parametrize(
    ("call", "every", "in_steps"),
    [("train_epoch(train)", 1, False), ("train_steps(iterator, many)", 40, True), ("train_step(iterator)", 5, True)],
)
def test_validation_after_calls_is_counted_in_their_steps(
    call: str, every: int, in_steps: bool, tmp_path: Path
) -> None:
    file, state = tmp_path / "script.py", tf.Variable(0.0)
    when = "if n % 5 == 0:\n        " if "train_step(" in call else ""
    file.write_text(
        f"train, val = made()\niterator = iter(train)\nfor n in range(20):\n    {call}\n    {when}evaluate(val)\n"
    )

    def evaluate(data: Any) -> None:
        for _ in data:
            pass

    names = {**functions_of(state), "evaluate": evaluate, "many": tf.constant(40)}
    found = run(lambda: runpy.run_path(str(file), {**names, "made": lambda: (Dataset.range(99), Dataset.range(5))}))
    (checked,) = (use for use in found.script.uses if use.role == "validation")
    assert (checked.every, checked.every_in_steps) == (every, in_steps)


def test_written_variables_are_found_in_every_kind_of_inner_function() -> None:
    names = ["in_while", "in_cond", "in_call", "in_reduce", "only_read", "applied"]
    held = {name: tf.Variable([1.0], name=name) for name in names}

    @tf.function
    def inner(value: Any) -> None:
        held["in_call"].assign_sub(value)

    @tf.function
    def outer(number: Any) -> Any:
        for _ in tf.range(number):
            held["in_while"].assign(held["only_read"])
        if number > 1:
            held["in_cond"].assign_add([1.0])
        inner(tf.constant([1.0]))
        for value in Dataset.range(3):
            held["in_reduce"].assign_add([tf.cast(value, tf.float32)])
        handle = tf.identity(held["applied"].handle)
        tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=0.1, delta=[1.0])
        return held["only_read"].read_value()

    concrete = outer.get_concrete_function(tf.constant(2))
    handles = {id(variable.handle): name for name, variable in held.items()}
    written = {handles.get(id(concrete.captured_inputs[place])) for place in written_captures(concrete)}
    assert written == {*names} - {"only_read"}


@pytest.mark.parametrize("again", [False, True])
def test_dataset_of_one_call_is_read_once(again: bool, tmp_path: Path) -> None:
    loop = "for epoch in range(2):\n    " if again else ""
    file = tmp_path / "script.py"
    file.write_text(f"train = made()\n{loop}train_epoch(train)\n")
    names = {"made": lambda: Dataset.range(9).batch(3), **functions_of(tf.Variable(0.0))}
    found = run(lambda: runpy.run_path(str(file), names))
    assert (found.use.epochs, found.use.epochs_certain) == ((None, False) if again else (1, True))
