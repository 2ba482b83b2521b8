"""What a training step changes is put back, does not happen, or is told: variables, random states, files, models."""

from __future__ import annotations

import functools
import gc
import json
import random
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore::UserWarning")]

import pipetune
from pipetune.capture import protection
from pipetune.capture.protection import unrestorable_names, unrestorable_state
from pipetune.core import file_events
from tests.starting import search_path


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


# -- what cannot be restored: models, optimizers and arrays of other libraries


class _Module:
    pass


class _Array:
    pass


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the classes of PyTorch and JAX that are looked for."""
    nn, optim = types.SimpleNamespace(Module=_Module), types.SimpleNamespace(Optimizer=type("Optimizer", (), {}))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(nn=nn, optim=optim))
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=_Array))


@pytest.mark.usefixtures("libraries")
def test_steps_that_change_nothing_of_torch_or_jax_are_silent() -> None:
    weight, constant = tf.Variable(1.0), _Array()

    def step(element: Any) -> None:
        weight.assign_add(1.0)
        print(constant, element)

    assert unrestorable_state(step) == [] and unrestorable_state(print) == []


@pytest.mark.usefixtures("libraries")
def test_cell_can_change_what_it_and_its_functions_name() -> None:
    model, frozen = _Module(), _Module()

    def step(element: Any) -> None:
        print(model, element)

    names = {"train_step": step, "frozen": frozen, "params": _Array(), "kept": [_Array()], "other": _Module()}
    code = compile("for x in data:\n    train_step(x)\n    print(frozen, params, kept)\n", "cell", "exec")
    assert unrestorable_names(code, names) == ["model (PyTorch)", "frozen (PyTorch)", "kept[0] (JAX)"]
    assert unrestorable_names(compile("train(x)", "cell", "exec"), names) == []


@pytest.mark.usefixtures("libraries")
def test_models_are_found_wherever_the_step_reaches_them() -> None:
    model = _Module()

    class Trainer:
        def __init__(self) -> None:
            self.parts = {"model": _Module()}
            self.weights = _Array()

        def step(self, element: Any) -> None:
            pass

        def __call__(self, element: Any) -> None:
            pass

    def closed_over(element: Any) -> None:
        print(model, element)

    def given(network: Any, element: Any) -> None:
        pass

    members = ["self.parts['model'] (PyTorch)", "self.weights (JAX)"]
    assert unrestorable_state(closed_over) == ["model (PyTorch)"]
    assert unrestorable_state(Trainer().step) == members
    assert unrestorable_state(Trainer()) == [one.replace("self", "Trainer", 1) for one in members]
    assert unrestorable_state(functools.partial(given, model)) == ["argument 1 (PyTorch)"]


@pytest.mark.parametrize(("backend", "named"), [("jax", ["model (Keras on jax)"]), ("tensorflow", [])])
def test_keras_models_are_listed_where_their_weights_are_not_of_tensorflow(
    monkeypatch: pytest.MonkeyPatch, backend: str, named: list[str]
) -> None:
    config, others = types.SimpleNamespace(backend=lambda: backend), type("Optimizer", (), {})
    keras = types.SimpleNamespace(config=config, Layer=_Module, Optimizer=others)
    monkeypatch.setitem(sys.modules, "keras", keras)
    cell = compile("model.fit(data)", "cell", "exec")
    assert unrestorable_names(cell, {"model": _Module(), "data": tf.data.Dataset.range(3)}) == named


@pytest.mark.usefixtures("libraries")
def test_jax_arrays_are_listed_where_the_step_can_replace_them() -> None:
    state = {"weights": _Array()}
    weights: Any = _Array()

    def updates_dictionary(element: Any) -> None:
        state["weights"] = element

    def rebinds(element: Any) -> None:
        nonlocal weights
        weights = element

    assert unrestorable_state(updates_dictionary) == ["state['weights'] (JAX)"]
    assert unrestorable_state(rebinds) == ["weights (JAX)"]


@pytest.mark.usefixtures("libraries")
def test_tune_warns_before_the_first_step() -> None:
    model, called = _Module(), []

    def step(element: Any) -> None:
        called.append((model, element))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="The step can change model \\(PyTorch\\), which pipetune cannot restore"):
            pipetune.tune(tf.data.Dataset.range(10), step=step)
    assert not called


# -- every function that saves is disabled and counted, whatever name the script uses for it


ROOT = Path(__file__).parents[2]

SCRIPT = """
import atexit, json, os, sys
import keras
import tensorflow as tf
from keras.models import save_model
from tensorflow.saved_model import save as save_signatures
from tensorflow.summary import scalar

from pipetune.capture import protection

class Overriding(keras.Model):
    def call(self, x):
        return x

    def save(self, *args, **named):
        return super().save(*args, **named)

model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
own = Overriding()
bound = model.save
checkpoint = tf.train.Checkpoint(model=model)
manager = tf.train.CheckpointManager(checkpoint, "managed", 2)
archive = keras.export.ExportArchive()
archive.track(model)
archive.add_endpoint("serve", model.call, [tf.TensorSpec([None, 2])])
writer = tf.summary.create_file_writer("events")
before = sorted(os.listdir("events"))
size = os.path.getsize(os.path.join("events", before[0]))

seen = []
enable = protection.disable_saving(seen.append)

def attempt(call, result, *noted):
    start = len(seen)
    assert (repr(call()), seen[start:]) == (result, [*noted]), seen[start:]

attempt(lambda: model.save("a.keras"), "None", "Model.save")
attempt(lambda: bound("b.keras", overwrite=True), "None", "Model.save")
attempt(lambda: own.save("c.keras"), "None", "Model.save")
attempt(lambda: model.save_weights("d.weights.h5"), "None", "Model.save_weights")
attempt(lambda: model.export("e"), "None", "Model.export")
attempt(lambda: archive.write_out("f"), "None", "SavedModelExportArchive.write_out")
attempt(lambda: save_model(model, "g.keras"), "None", "keras.save_model")
attempt(lambda: keras.saving.save_model(model, "h.keras"), "None", "keras.save_model")
attempt(lambda: keras.saving.save_weights(model, "i.weights.h5"), "None", "keras.save_weights")
attempt(lambda: checkpoint.save("j"), "''", "Checkpoint.save")
attempt(lambda: checkpoint.write("k"), "''", "Checkpoint.write")
attempt(lambda: manager.save(), "''", "CheckpointManager.save")
attempt(lambda: tf.saved_model.save(model, "l"), "None", "saved_model.save")
attempt(lambda: save_signatures(model, "m"), "None", "saved_model.save")
attempt(lambda: tf.data.Dataset.range(3).save("o"), "None", "Dataset.save")
with writer.as_default():
    for name in ("image", "histogram", "audio", "text", "write", "graph", "flush"):
        attempt(getattr(tf.summary, name), "False", "tf.summary." + name)
    attempt(lambda: scalar("loss", 1.0, step=0), "False", "tf.summary.scalar")
with tf.profiler.experimental.Profile("profile"):
    tf.zeros([1])
data = tf.data.Dataset.from_tensors((tf.zeros([4, 2]), tf.zeros([4, 1])))
callbacks = [keras.callbacks.ModelCheckpoint("p.keras"), keras.callbacks.BackupAndRestore("backup")]
attempt(lambda: model.fit(data, callbacks=callbacks, verbose=0) and None, "None",
        "ModelCheckpoint._save_model", "Model.save_weights")

import tf_keras  # the first time only now
late = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=[2])])
late.compile("sgd", "mse")
attempt(lambda: late.save("q"), "None", "Model.save")
attempt(lambda: tf_keras.models.save_model(late, "r"), "None", "keras.save_model")
keeper = tf_keras.callbacks.ModelCheckpoint("s")
attempt(lambda: late.fit(data, callbacks=[keeper], verbose=0) and None, "None", "ModelCheckpoint._save_model")

def at_exit():
    model.save("t.keras")
    files = sorted(os.listdir("."))
    if sorted(os.listdir("events")) != before:
        files.append("an event")
    last = seen[-1]
    enable()
    for save in (lambda: bound("v.keras"), lambda: save_model(model, "w.keras"), lambda: checkpoint.write("x"),
                 lambda: late.save("y.h5"), lambda: save_signatures(model, "z"),
                 lambda: tf.profiler.experimental.start("profile"), tf.profiler.experimental.stop):
        save()
    with writer.as_default():
        tf.summary.write("loss", 1.0, step=0)
    writer.flush()
    again = sorted(set(os.listdir(".")) - set(files))
    event = os.path.getsize(os.path.join("events", before[0])) > size
    found = {"files": files, "last": last, "again": again, "event": event}
    json.dump(found, open(sys.argv[1], "w"))
atexit.register(at_exit)
try:
    raise SystemExit
finally:
    model.save("u.keras")
"""


@pytest.mark.parametrize(("name", "path", "made"), [
    ("Model.save", "model.keras", "file"),
    ("Model.save_weights", "model.weights.h5", "file"),
    ("keras.save_model", "export", "folder"),
    ("Model.export", "export", ""),
    ("Model.save", "missing/export", ""),
])  # fmt: skip
def test_what_is_not_saved_is_created_empty(tmp_path, monkeypatch, name, path, made) -> None:
    monkeypatch.setattr(file_events, "current_journal", object)
    place = tmp_path / path
    protection.on_suppressed_call(name, (None, place), {})
    assert {"file": place.is_file(), "folder": place.is_dir()}.get(made, not place.exists())


def test_disabled_saving_writes_nothing_until_the_process_ends(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    own = {"PYTHONPATH": search_path(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "result.json")]
    ran = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert (tmp_path / "result.json").exists(), ran.stderr[-3000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["last"] == "Model.save"
    assert told["files"] == ["events"], "what it had made"
    assert told["again"] == ["profile", "v.keras", "w.keras", "x.data-00000-of-00001", "x.index", "y.h5", "z"]
    assert told["event"]
