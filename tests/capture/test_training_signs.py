"""What shows that a Python loop trains, and what does not."""

from __future__ import annotations

import contextlib
import linecache
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.capture import consumption, hooks
from pipetune.capture.consumption import FIRST_ELEMENTS, UNCERTAIN_ELEMENTS
from pipetune.capture.observed_script import ObservedScript
from pipetune.pipelines import call_sites


def observed(script: Callable[[], None], **how: Any) -> tuple[ObservedScript, list[consumption.Consumption]]:
    """The script, which is stopped where it trains, and the use that does."""
    found: list[consumption.Consumption] = []

    def on_training(use: consumption.Consumption, _consumer: Any) -> None:
        found.append(use)
        raise consumption.ScriptStopped

    seen, stopped = ObservedScript(on_training, **how), contextlib.suppress(consumption.ScriptStopped)
    with call_sites.Recorder(), hooks.installed(seen), stopped:
        script()
    return seen, found


SCRIPTS = {
    "printing": "total = 0\nfor element in dataset:\n    total += int(element)",
    "evaluating": "model, metric = tf.Variable([2.0]), keras.metrics.Mean()\nfor element in dataset:\n"
    "    metric.update_state(model * tf.cast(element, tf.float32))",
    "gradients": """
weights, frozen, optimizer = tf.Variable([2.0]), tf.Variable(tf.zeros([3])), keras.optimizers.SGD()
@tf.function
def step(element):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weights * tf.cast(element + 1, tf.float32) + tf.reduce_sum(frozen))
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
for element in dataset:
    step(element)
""",
    "one element each": "weights = tf.Variable([2.0])\nfor _ in range(30):\n    next(iter(dataset))\n"
    "    weights.assign_add([1.0])",
    "every eighth step": "weights = tf.Variable([2.0])\nfor number, _ in enumerate(dataset):\n    if number % 8 == 7:\n"
    "        weights.assign_add([1.0])",
    "short datasets": "weights = tf.Variable([2.0])\nfor size in (10, 11, 12, 13, 14, 15):\n"
    "    for _ in tf.data.Dataset.range(size):\n        weights.assign_add([1.0])",
    "a dataset for each epoch": "weights = tf.Variable([2.0])\nfor epoch in range(6):\n"
    "    for _ in tf.data.Dataset.range(10 + epoch):\n        weights.assign_add([1.0])",
    "printing twice": f"for element in dataset.take({FIRST_ELEMENTS - 1}):\n    print(element)\n"
    "for element in dataset:\n    print(element)",
}
SCRIPTS["a large table alone"] = (
    "table = tf.Variable(tf.zeros([2, 600_000]))\nfor _ in dataset:\n    table.scatter_nd_add([[1, 7]], [1.0])"
)
SCRIPTS["gradients after printing"] = f"for element in dataset.take(40):\n    print(element)\n{SCRIPTS['gradients']}"
CHANGES = "it changes trainable variables"


def begun(
    script: str | Callable[[Any], None], *, count: int = 100, wanted: str | None = None, loop: int | None = None
) -> tuple[int, str] | None:
    """The element at which a loop over `count` elements is taken for training, and the sign; None if it is not."""

    def run() -> None:
        dataset = tf.data.Dataset.range(count)
        if isinstance(script, str):
            file, text = f"/{script}/train.py", SCRIPTS[script]
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
            exec(compile(text, file, "exec"), {"tf": tf, "keras": keras, "dataset": dataset, "__name__": "__main__"})
        else:
            script(dataset)

    _, found = observed(run, target_dataset=wanted, training_loop=loop)
    return (found[0].elements, found[0].training_sign) if found else None


@pytest.mark.parametrize(
    "script",
    ["gradients", "one element each", "every eighth step", "gradients after printing", "a large table alone"],
)
def test_loop_that_changes_trainable_variables_trains(script: str) -> None:
    found = begun(script)
    assert found is not None and found[0] <= FIRST_ELEMENTS + 16 and found[1] == CHANGES


def test_short_epochs_of_a_rebuilt_dataset_are_counted_together() -> None:
    seen: list[Any] = []

    def epochs() -> None:  # runs for the first time: CPython specializes its calls after the first epoch
        weights = tf.Variable([2.0])
        for _ in range(9):
            for _ in enumerate(tf.data.Dataset.range(24).batch(2)):  # built anew in each epoch
                weights.assign_add([1.0])

    _, (use,) = observed(epochs, on_iteration=seen.append)
    assert (use.elements, use.training_sign) == (FIRST_ELEMENTS + 1, CHANGES)
    assert use.first_dataset is seen[0] and use.dataset is seen[-1] is not seen[0], "it is undone from the first"
    assert begun("a dataset for each epoch") == (FIRST_ELEMENTS + 1, CHANGES)
    assert begun("short datasets") is None  # each may be for something else


def test_evaluation_between_steps_of_other_training_does_not_train() -> None:
    def epochs() -> None:
        weights, checked = tf.Variable([2.0]), tf.data.Dataset.range(24)
        for _ in range(9):
            weights.assign_add([1.0])  # on data of NumPy
            for _ in checked:
                pass

    assert observed(epochs)[1] == []


@pytest.mark.parametrize("script", ["printing", "evaluating"])
def test_loop_that_changes_nothing_does_not_train(script: str) -> None:
    assert begun(script) is None


def test_loop_without_a_sign_is_taken_after_many_elements_and_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumption, "UNCERTAIN_SECONDS", 0.0)
    found = begun("printing", count=1000)
    assert found is not None and UNCERTAIN_ELEMENTS <= found[0] < UNCERTAIN_ELEMENTS + 64 and found[1] == ""
    assert begun("printing", count=UNCERTAIN_ELEMENTS - 1) is None


@pytest.mark.parametrize(
    ("how", "trains"), [({"wanted": "dataset"}, True), ({"loop": 0}, False), ({"loop": 1}, True), ({"loop": 2}, False)]
)
def test_loop_that_is_requested_or_trained_before_is_not_questioned(how: dict[str, Any], trains: bool) -> None:
    assert begun("printing twice", **how) == ((FIRST_ELEMENTS, "") if trains else None)


def test_pytorch_optimizer_that_steps_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for `torch.optim.optimizer`, whose global hooks are as in PyTorch 2."""
    registered: dict[int, Callable[..., None]] = {}

    def register(hook: Callable[..., None]) -> Any:
        registered[id(hook)] = hook
        return types.SimpleNamespace(remove=lambda: registered.pop(id(hook), None))

    module = types.SimpleNamespace(register_optimizer_step_post_hook=register)
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", module)

    def script(dataset: Any) -> None:
        for _ in dataset:
            for hook in list(registered.values()):
                hook(None, (), {})

    assert begun(script) == (FIRST_ELEMENTS + 1, "it calls torch.optim.Optimizer.step") and not registered


def test_variables_that_are_not_a_number_and_stay_so_show_nothing() -> None:
    variable = tf.Variable([float("nan"), 1.0])
    signs = consumption.TrainingSigns(None)
    assert signs.describe(None) == ""
    variable.assign_add([0.0, 1.0])
    assert signs.describe(None) == consumption.CHANGES_VARIABLES


def test_jax_arrays_that_an_iteration_carries_over_show_training() -> None:
    jax = pytest.importorskip("jax")

    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        return {"weights": state["weights"] - 0.1 * batch}, batch.sum()

    def training(dataset: Any) -> None:
        state = {"weights": jax.numpy.ones(3)}
        for element in dataset:
            state, _loss = step(state, element.numpy())

    def looking(dataset: Any) -> None:
        total = jax.numpy.zeros(())
        for element in dataset:
            batch = jax.numpy.ones(3) * element.numpy()
            total = total + batch.sum()

    assert begun(training) == (FIRST_ELEMENTS + 1, "it updates state, which holds JAX arrays")
    assert begun(looking) is None


def test_names_that_a_loop_reads_before_it_stores_them_are_carried_over() -> None:
    def carried(source: Iterator[int]) -> frozenset[str]:
        state, fresh = 0, 0
        for element in source:
            fresh = element + 1
            state = state + fresh
            if element == 3:
                frame = sys._getframe()
                return consumption._loop_carried(frame.f_code, frame.f_lasti)
        raise AssertionError((state, fresh))

    assert carried(iter(range(5))) == {"state"}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_datasets_of_a_step_the_one_that_is_waited_for_is_chosen(order: int) -> None:
    def late(element: Any) -> Any:
        time.sleep(0.01)
        return element

    waited = tf.data.Dataset.range(60).map(lambda x: tf.numpy_function(late, [x], tf.int64))
    other, shown = tf.data.Dataset.range(60), tf.data.Dataset.range(60)

    def train() -> None:
        list(zip(range(FIRST_ELEMENTS + 1), shown, strict=False))  # as many, but before
        weights = tf.Variable([2.0])
        for _ in zip(*(waited, other)[::order], strict=True):
            weights.assign_add([1.0])

    script, (use,) = observed(train)
    assert use.dataset is waited and [one.dataset for one in script.uses if one.in_turn] == [other]
