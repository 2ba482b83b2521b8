"""A snapshot restores what a training step or a pipeline may change; what a step creates gets its initial values."""

from __future__ import annotations

import functools
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune.capture import protection


@pytest.fixture(autouse=True)
def _alone() -> None:
    gc.collect()


def test_variables_tables_and_random_states_of_every_kind_are_restored() -> None:
    number = tf.Variable(3, dtype=tf.int64)
    text = tf.Variable("before")
    grown = tf.Variable([1.0], shape=tf.TensorShape([None]))
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    empty = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    vectors = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, [0.0, 0.0])
    dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2, initial_num_buckets=8)
    pairs = tf.lookup.experimental.DenseHashTable(tf.string, tf.float32, [0.0, 0.0], "", "$", initial_num_buckets=4)
    table.insert(["a", "b"], [1, 2])
    pairs.insert(["x"], [[1.0, 2.0]])
    vectors.insert([5], [[1.0, 2.0]])
    dense.insert([3], [30])
    generator = tf.random.Generator.from_seed(3)

    def draw() -> list[Any]:
        order = list(tf.data.Dataset.range(50).shuffle(50).as_numpy_iterator())  # by an op seed from the global seed
        return [order, random.random(), float(np.random.random()), float(generator.uniform([]))]

    tf.random.set_seed(11)
    snapshot = protection.Snapshot()
    drawn = draw()
    assert all(one != other for one, other in zip(draw(), drawn, strict=True))
    number.assign_add(4)
    text.assign("after")
    grown.assign([1.0, 2.0, 3.0])
    table.insert(["a", "c"], [10, 3])
    table.remove(tf.constant(["b"]))
    empty.insert([1], [2])
    vectors.insert([5, 6], [[0.0, 9.0], [9.0, 9.0]])
    dense.insert([3, 4], [31, 40])
    pairs.insert(["x", "y"], [[3.0, 4.0], [5.0, 6.0]])
    snapshot.restore()
    assert (int(number), text.numpy(), grown.numpy().tolist()) == (3, b"before", [1.0])
    assert table.lookup(["a", "b", "c"]).numpy().tolist() == [1, 2, -1]
    assert vectors.lookup([5, 6]).numpy().tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert pairs.lookup(["x", "y"]).numpy().tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert dense.lookup([3, 4]).numpy().tolist() == [30, 0]
    assert [int(one.size()) for one in (table, empty, vectors, dense)] == [2, 0, 1, 1] and draw() == drawn
    number.assign(9)
    snapshot.restore()  # works repeatedly
    assert int(number) == 3


def train(keras: Any) -> tuple[Any, Callable[[], list[Any]]]:
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse", metrics=["mae"])
    data = tf.data.Dataset.from_tensor_slices((np.ones([8, 2], "float32"), np.zeros([8, 1], "float32"))).batch(4)
    model.fit(data, verbose=0)

    def everything() -> list[Any]:
        slots = model.optimizer.variables
        slots = slots() if callable(slots) else slots
        held = [*model.variables, *slots, *(v for m in model.metrics for v in m.variables)]
        return [np.array(variable).tolist() for variable in held]

    return (lambda: model.fit(data, verbose=0)), everything


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["keras", "tf_keras"])
@pytest.mark.filterwarnings("ignore")
def test_weights_optimizer_slots_and_metrics_are_restored(name: str) -> None:
    fit, everything = train(pytest.importorskip(name))
    before = everything()
    assert len(before) > 12
    snapshot = protection.Snapshot()
    fit()
    assert everything() != before
    snapshot.restore()
    assert everything() == before


def test_seed_set_after_the_snapshot_does_not_prevent_restoring() -> None:
    tf.random.set_seed(None)
    variable = tf.Variable(1)
    snapshot = protection.Snapshot()
    tf.random.set_seed(4)
    variable.assign(2)
    snapshot.restore()
    assert int(variable) == 1


def test_snapshot_copies_values_and_touches_neither_proxies_nor_graph_variables() -> None:
    class Proxy:
        """Claims to be a variable through `__class__`."""

        asked = False

        @property
        def __class__(self) -> Any:
            Proxy.asked = True
            return tf.Variable

    proxy = Proxy()
    variable = tf.Variable([1.0, 2.0])
    with tf.Graph().as_default():
        inside = tf.compat.v1.get_variable("inside", shape=[2])
    snapshot = protection.Snapshot()
    assert not Proxy.asked and proxy is not None
    assert all(candidate is not inside for candidate, _ in snapshot.variables)
    (held,) = (value for candidate, value in snapshot.variables if candidate is variable)
    variable.assign([5.0, 6.0])
    assert held.tolist() == [1.0, 2.0]


def test_tables_in_graphs_are_left_alone() -> None:
    tables: list[Any] = []

    def look_up(key: Any) -> Any:
        tables.append(tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1))
        return tables[-1].lookup(key)

    tf.data.Dataset.range(2).map(look_up)
    assert tables
    protection.Snapshot().restore()


@pytest.mark.usefixtures("all_objects_searched")
def test_variable_frozen_in_the_garbage_collector_is_restored() -> None:
    number = tf.Variable(3)
    gc.freeze()  # for good: what earlier files left is collected with what is thawed, which may take a minute
    snapshot = protection.Snapshot()
    assert gc.get_freeze_count() > 0, "it stays left alone"
    number.assign(4)
    snapshot.restore()
    assert int(number) == 3


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
}
for library in (keras, tf_keras):
    CASES |= {
        f"{library.__name__}, own loop": (functools.partial(trained, library, function=False), [1.0, 0.0]),
        f"{library.__name__}, own loop in a function": (functools.partial(trained, library, function=True), [1.0, 0.0]),
        f"{library.__name__}, fit": (functools.partial(fitted, library), [1.0]),
    }


@pytest.mark.parametrize(("create", "initial"), CASES.values(), ids=CASES)
def test_initial_values_are_restored(create: Callable[[], list[Any]], initial: list[float]) -> None:
    with protection.CreatedVariables() as created:
        variables = create()
    changed = [variable.numpy() for variable in variables]
    assert all((value != first).all() for value, first in zip(changed, initial, strict=True)), "trained"
    created.restore()
    assert all((variable.numpy() == first).all() for variable, first in zip(variables, initial, strict=True))


def test_only_those_created_later_are_restored_and_nothing_is_kept_afterwards() -> None:
    with protection.CreatedVariables() as created:
        (before,) = eagerly()
        count = created.count
        (later,) = eagerly()
    created.restore(count)
    assert (float(before[0]), float(later[0])) == (5.0, 1.0)
    del later  # what is gone is not restored
    (afterwards,) = eagerly()
    created.restore()
    assert (created.count, float(before[0]), float(afterwards[0])) == (count + 1, 1.0, 5.0)
