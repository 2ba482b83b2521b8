"""Variables that a training step creates get their initial values again, whichever way they are created."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune.capture.protection import CreatedVariables

BATCH = tf.ones([4, 3])


def eagerly() -> list[Any]:
    made = tf.Variable([1.0])
    made.assign([5.0])
    return [made]


def in_function() -> list[Any]:
    made: list[Any] = []

    @tf.function
    def step() -> None:
        if not made:
            made.append(tf.Variable([1.0]))
        made[0].assign_add([1.0])

    step()
    step()
    return made


def trained(library: Any, *, function: bool) -> list[Any]:
    """Returns the weights of a model that was built in its first training step, and the slots of its optimizer."""
    model = library.Sequential([library.layers.Dense(2, kernel_initializer="ones")])
    optimizer = library.optimizers.SGD(0.1, momentum=0.9)

    def step(batch: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    taken = tf.function(step) if function else step
    for _ in range(3):
        taken(BATCH)
    slots = optimizer.variables
    return [model.weights[0], next(slot for slot in slots if tuple(slot.shape) == (3, 2))]


def fitted(library: Any) -> list[Any]:
    model = library.Sequential([library.layers.Dense(2, kernel_initializer="ones")])
    model.compile("sgd", "mse")
    model.fit(tf.data.Dataset.from_tensors((BATCH, tf.ones([4, 2]))).repeat(3), verbose=0)
    return [model.weights[0]]


CASES: dict[str, tuple[Callable[[], list[Any]], list[float]]] = {
    "eagerly": (eagerly, [1.0]),
    "in a function": (in_function, [1.0]),
    "Keras, own loop": (lambda: trained(keras, function=False), [1.0, 0.0]),
    "Keras, own loop in a function": (lambda: trained(keras, function=True), [1.0, 0.0]),
    "Keras, fit": (lambda: fitted(keras), [1.0]),
    "tf_keras, own loop": (lambda: trained(tf_keras, function=False), [1.0, 0.0]),
    "tf_keras, own loop in a function": (lambda: trained(tf_keras, function=True), [1.0, 0.0]),
    "tf_keras, fit": (lambda: fitted(tf_keras), [1.0]),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_initial_values_are_restored(name: str) -> None:
    create, initial = CASES[name]
    with CreatedVariables() as created:
        variables = create()
    changed = [variable.numpy() for variable in variables]
    assert all((value != first).all() for value, first in zip(changed, initial, strict=True)), "trained"
    created.restore()
    assert all((variable.numpy() == first).all() for variable, first in zip(variables, initial, strict=True))


def test_only_those_created_later_are_restored() -> None:
    with CreatedVariables() as created:
        (before,) = eagerly()
        count = created.count
        (later,) = eagerly()
    created.restore(count)
    assert (float(before[0]), float(later[0])) == (5.0, 1.0)


def test_nothing_is_kept_of_what_is_created_afterwards_or_is_gone() -> None:
    with CreatedVariables() as created:
        eagerly()
    count = created.count
    (later,) = eagerly()
    created.restore()
    assert created.count == count and float(later[0]) == 5.0
