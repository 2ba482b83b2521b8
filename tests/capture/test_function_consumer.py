"""Training inside a `tf.function` that takes its elements itself."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from pipetune.capture import consumption, loop_consumer
from pipetune.capture.function_consumer import FunctionConsumer
from pipetune.capture.observed_script import ObservedScript
from pipetune.core.measurement import RunFailed
from pipetune.pipelines.functions import written_captures
from tests.capture.test_hooks import Run, run, run_text
from tests.capture.test_strategies import mirrored

pytestmark = pytest.mark.tensorflow

IN_A_STRATEGY = pytest.mark.filterwarnings("ignore:To make it possible to preserve")  # TensorFlow's own

Dataset = tf.data.Dataset
TRACES: list[int] = []


def train_on(state: Any, numbers: Any) -> None:
    state.assign_add(tf.cast(tf.reduce_sum(numbers), tf.float32))


READY = "ready = iter(train)\n"
FUNCTIONS = {
    # what the script does before, what its function does, and what it is called with
    "epoch": ("", "for numbers in data:\n        take(numbers)", "train"),
    "captured": ("held = [train]\ndel train\n", "for numbers in held[0]:\n        take(numbers)", ""),
    "steps": (READY, "for _ in tf.range(more):\n        take(next(data))", "ready, tf.constant(many)"),
    "one step": (READY, "take(next(data))", "ready"),
    "captured iterator": (READY, "take(next(ready))", ""),
    "until empty": ("", "more = tf.constant(True)\n    while more:\n        found = data.get_next_as_optional()\n"
        "        more = found.has_value()\n        if more:\n            take(found.get_value())", "iter(train)"),
    "epochs, with validation": ("validation = Dataset.range(3)\n",
        "for _ in tf.range(1_000):\n        for numbers in data:\n            take(numbers)\n        for n in more:\n"
        "            tf.debugging.assert_less(n, tf.constant(3, tf.int64))", "train, validation"),
    "break": ("", "for one in data:\n        take(one)\n        if one[0] > 103:\n            break", "train"),
    "take": ("", "for numbers in data.take(2):\n        take(numbers)", "train"),
    "count": ("", "begun = iter(data)\n    for _ in tf.range(2):\n        take(next(begun))", "train"),
    "nothing": ("", "for numbers in data.take(0):\n        take(numbers)", "train"),
    "steps of an epoch": (READY,
        "for _ in tf.range(more[0]):\n        take(next(data))\n    take(tf.cast(more[1], tf.int64))",
        "ready, (tf.constant(many), tf.constant(n))"),
    "all of an epoch": (READY,
        "for _ in tf.range(7):\n        take(next(data))\n    take(tf.cast(more, tf.int64))",
        "ready, tf.constant(n + 3)"),
    "one step of an epoch": (READY, "take(next(data))", "ready, tf.constant(n)"),
}  # fmt: skip


def trained(
    name: str, *, train: str = "Dataset.range(50).batch(5)", count: int = 3, after: str = "", **given: Any
) -> tuple[Run, Any]:
    """Returns how a script ran that trains by a function of `FUNCTIONS`, and the variable that it changes."""
    before, body, called_with = FUNCTIONS[name]
    function = f"@tf.function\ndef step(data=None, more=None):\n    traces.append(1)\n    {body}\n"
    loop = f"for n in range({count}):\n    " if count > 1 else ""
    state = tf.Variable(0.0)
    names = {"take": functools.partial(train_on, state), "traces": TRACES, "many": 3, **given}
    return run_text(f"train = {train}\n{before}{function}{loop}step({called_with})\n{after}", names), state


@pytest.mark.parametrize("name", [*FUNCTIONS][:6])
def test_windows_take_their_elements_from_another_dataset(name: str) -> None:
    TRACES.clear()
    found, state = trained(name)
    assert found.stopped and found.use.consumer_call == "a tf.function"
    assert (found.use.variable, found.use.elements) == ("" if name == "captured" else "train", 0)
    assert found.use.training_sign == "it changes trainable variables" and isinstance(found.consumer, FunctionConsumer)
    assert float(state) == 0, "the script's own call has not run"
    traces = len(TRACES)
    window = found.consumer.window(Dataset.range(10_000, 10_004).batch(2), steps=7, warmup=3)
    # Elements 0 to 10 of the repeated dataset: warm-up, window, and the request that ends it.
    assert float(state) == sum([20_001, 20_005][number % 2] for number in range(11))
    assert (window.steps, window.examples, len(TRACES)) == (7, 7, traces)
    assert window.wall_seconds > 0 and window.first_seconds > 0 and window.wait_seconds is not None


def test_function_of_several_epochs_and_with_validation_takes_each_element_once() -> None:
    found, state = trained("epochs, with validation")
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
    assert int(checked) > 500 and [int(next(iterator)) for iterator in iterators] == [0, 100]


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
    assert not found.begun and found.roles == {"checked": "preview"} and read > 0
    asked = run(script, wanted="checked")
    assert asked.use.name == "checked" and isinstance(asked.consumer, FunctionConsumer)
    assert not asked.use.training_sign


def test_step_of_a_python_loop_may_take_elements_of_another_dataset() -> None:
    step = "@tf.function\ndef step(numbers):\n    take(numbers + next(negatives))\n"
    loop = "train = Dataset.range(200).batch(5)\nfor numbers in train:\n    step(numbers)\n"
    found = run_text(
        f"negatives = iter(Dataset.range(1_000))\n{step}{loop}", {"take": functools.partial(train_on, tf.Variable(0.0))}
    )
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


@pytest.mark.parametrize("name", ["epoch", "captured", "steps", "one step"])
@pytest.mark.mission("B5.function")
@IN_A_STRATEGY
def test_distributed_elements_are_taken_as_a_strategy_distributes_them(name: str) -> None:
    taken: list[list[int]] = []
    strategy, weights = mirrored(), tf.Variable(0.0)

    def both(element: Any) -> None:
        for part in strategy.experimental_local_results(element):
            tf.numpy_function(lambda value: taken.append(value.tolist()), [part], [])
            train_on(weights, part)

    train = "Dataset.range(64).batch(4)\ntrain = strategy.experimental_distribute_dataset(train)"
    found, _ = trained(name, train=train, take=both, strategy=strategy)
    assert found.use.name == "train" and isinstance(found.consumer, FunctionConsumer)
    assert found.use.distributed_input is not None
    window = found.consumer.window(Dataset.range(100, 108).batch(4), steps=4, warmup=2)
    assert (window.steps, window.wait_seconds) == (4, None)
    batches = [[100, 101, 102, 103], [104, 105, 106, 107]]
    assert len(taken) > 6 and taken == list(itertools.islice(itertools.cycle(batches), len(taken)))


@pytest.mark.parametrize("name", ["break", "take", "count"])
def test_function_that_leaves_a_dataset_early_is_called_again(name: str) -> None:
    found, state = trained(name)
    assert found.use.readings.elements == 0, "a cache may never be complete"
    found.consumer.window(Dataset.range(100, 108).batch(2), steps=5, warmup=1)
    taken = [0, 1, 2, 0, 1, 2] if name == "break" else [0, 1, 2, 3, 0, 1, 2]  # it requests one more to leave
    assert float(state) == sum([201, 205, 209, 213][number] for number in taken)


@pytest.mark.parametrize(("name", "dataset", "why"), [
    ("nothing", Dataset.range(10, 20).batch(5), "has taken too few elements"),
    ("epoch", Dataset.range(0).batch(5), None),
    ("one step", Dataset.range(0).batch(5), None),
    ("one step", Dataset.range(10).map(lambda x: x // 0).batch(5), r"tf\.function raised .*zero"),
])  # fmt: skip
def test_function_that_takes_nothing_or_raises_has_no_window(name: str, dataset: Any, why: str | None) -> None:
    found, _ = trained(name)
    with pytest.raises(RunFailed, match=why):
        found.consumer.window(dataset, steps=2, warmup=1)


def test_single_steps_are_recorded_where_each_call_takes_one() -> None:
    found, state = trained("one step")
    found.consumer.window(Dataset.range(8).batch(4), steps=2, warmup=1)
    state.assign(0.0)
    series = found.consumer.record_steps(Dataset.range(8).batch(4), steps=5, seconds=60.0)
    assert len(series.step_seconds) == 5 and series.wait_seconds is not None and series.epoch_ends == (2, 4)
    assert float(state) == 6 + 22 + 6 + 22 + 6

    found, _ = trained("epoch")
    found.consumer.window(Dataset.range(8).batch(4), steps=2, warmup=1)
    assert "many steps in one call" in found.consumer.record_steps(Dataset.range(8), steps=5, seconds=60.0).why


@pytest.mark.parametrize(("name", "value", "why"), [
    ("pipetune.tensorflow_private.op_determinism_enabled", lambda: True, "determinism"),  # no clock can be read
    ("tests.capture.test_hooks.ObservedScript", functools.partial(ObservedScript, lockstep=True), "same steps"),
])  # fmt: skip
def test_input_alone_is_measured(monkeypatch: pytest.MonkeyPatch, name: str, value: Any, why: str) -> None:
    monkeypatch.setattr(name, value)
    found, _ = trained("one step")
    assert isinstance(found.consumer, consumption.NoConsumer) and why in found.consumer.description


@pytest.mark.parametrize(("name", "when", "expected"), [
    ("epoch", "", [(1, False)]),
    ("steps", "", [(40, True)]),
    ("steps of an epoch", "", [(40, True)]),
    ("all of an epoch", "", []),  # its number ends no loop: it is no number of steps
    ("one step", "if n % 5 == 0:\n        ", [(5, True)]),
    ("one step of an epoch", "if n % 5 == 0:\n        ", [(5, True)]),
])  # fmt: skip
def test_validation_after_calls_is_counted_in_their_steps(name: str, when: str, expected: list[Any]) -> None:
    def evaluate(data: Any) -> None:
        for _ in data:
            pass

    data = "Dataset.range(99)\nval = Dataset.range(5)"
    found, _ = trained(name, train=data, count=20, after=f"    {when}evaluate(val)\n", evaluate=evaluate, many=40)
    checked = [use for use in found.script.uses if use.role != "training"]
    assert [(use.every, use.every_in_steps) for use in checked if use.role == "validation"] == expected
    assert len(checked) == len(expected)


def test_written_variables_are_found_in_every_kind_of_inner_function() -> None:
    names = ["in_while", "in_cond", "in_call", "in_reduce", "only_read", "applied", "in_part", "at_index"]
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
        held["in_part"][:1].assign([2.0])
        held["at_index"].scatter_sub(tf.IndexedSlices([1.0], [0]))
        handle = tf.identity(held["applied"].handle)
        tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=0.1, delta=[1.0])
        return held["only_read"].read_value()

    concrete = outer.get_concrete_function(tf.constant(2))
    handles = {id(variable.handle): name for name, variable in held.items()}
    written = {handles.get(id(concrete.captured_inputs[place])) for place in written_captures(concrete)}
    assert written == {*names} - {"only_read"}


@pytest.mark.parametrize("again", [False, True])
def test_dataset_of_one_call_is_read_once(again: bool) -> None:
    found, _ = trained("epoch", count=2 if again else 1)
    assert (found.use.epochs, found.use.epochs_certain) == ((None, False) if again else (1, True))
