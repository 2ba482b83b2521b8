"""A cell is run to its first training step and measured there; what its measured steps changed is put back."""

from __future__ import annotations

import ast
import builtins
import contextlib
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]

from pipetune import tensorflow_private
from pipetune.capture import loops
from pipetune.capture.consumption import Consumer, Consumption
from pipetune.capture.patches import ImportWatcher
from pipetune.core import file_events, restoration
from pipetune.core.measurement import RunFailed
from pipetune.notebook.observed_cell import ObservedCell

WINDOWS = 2
STEPS = 10
STEP = "for x, y in data:\n    weight.assign_add(1.0)"


@dataclass
class Notebook:
    """Names of a notebook, and how its last cell went."""

    names: dict[str, Any]
    measured: list[int] = field(default_factory=list)  # steps of each window
    failures: list[str] = field(default_factory=list)
    uses: list[Consumption] = field(default_factory=list)
    observed: ObservedCell | None = None
    silent: list[str] = field(default_factory=list)

    def run(self, text: str, work: Callable[[Consumer, Any], None] | None = None) -> ObservedCell:
        """Runs a cell; `WINDOWS` windows are measured, or `work` is called with consumer and dataset."""

        def measure(use: Consumption, consumer: Consumer, _hooks: object) -> None:
            self.uses.append(use)
            if work is not None:
                work(consumer, use.dataset)
                return
            for _ in range(WINDOWS):
                try:
                    self.measured.append(consumer.window(use.dataset, steps=STEPS, warmup=1).steps)
                except RunFailed as failure:
                    self.failures.append(str(failure))

        @contextlib.contextmanager
        def silence() -> Iterator[None]:
            self.silent.append("begun")
            yield
            self.silent.append("ended")

        tree = ast.parse(textwrap.dedent(text), "/cells/1.py")
        extends = loops.extend_loops(tree)
        code = compile(tree, "/cells/1.py", "exec")
        with restoration.journal_folder() as folder:
            self.observed = ObservedCell(self.names, measure, undo_folder=folder, silence=silence)
            self.observed.run(lambda: exec(code, self.names), extends_loops=extends)
        return self.observed


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones([80, 2], "float32"), np.ones([80, 1], "float32"))).batch(2)
    weight = tf.Variable(0.0)
    yield Notebook({"tf": tf, "keras": keras, "np": np, "model": model, "data": data, "weight": weight, "done": []})
    assert file_events.current_journal() is None
    assert not any(isinstance(finder, ImportWatcher) for finder in sys.meta_path)
    assert type(iter(data)) is tensorflow_private.OwnedIterator
    assert "pipetune" not in keras.Model.fit.__code__.co_filename
    assert not [thread for thread in threading.enumerate() if thread.name == "pipetune"]
    folder = tmp_path / "state" / "pipetune" / "undo"
    assert not folder.exists() or not list(folder.iterdir()), "of the journal nothing is left"


def test_fit_is_measured_and_the_rest_does_not_run(notebook: Notebook) -> None:
    model = notebook.names["model"]
    model.fit(notebook.names["data"].take(3), verbose=0)
    weights, history = model.get_weights(), model.history
    notebook.run("before = 1\nmodel.fit(data, epochs=3)\ndone.append('after')")
    assert notebook.measured == [STEPS] * WINDOWS
    assert notebook.names["before"] == 1 and notebook.names["done"] == []
    assert all((now == then).all() for now, then in zip(model.get_weights(), weights, strict=True))
    assert int(model.optimizer.iterations) == 3 and model.history is history
    assert notebook.silent == ["begun", "ended"]
    model.fit(notebook.names["data"], verbose=0)
    assert int(model.optimizer.iterations) == 43, "it trains as before"


def test_model_built_by_the_measured_fit_has_its_initial_weights(notebook: Notebook) -> None:
    notebook.names["late"] = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    notebook.names["late"].compile("adam", "mse")
    notebook.run("late.fit(data)")
    assert notebook.names["late"].weights[0].numpy().tolist() == [[1.0], [1.0]]
    assert all(not np.any(slot) for slot in notebook.names["late"].optimizer.variables[2:])


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_step_that_was_traced_while_measured_writes_its_summaries_later(notebook: Notebook, library: str) -> None:
    module = pytest.importorskip(library)
    writer = tf.summary.create_file_writer("events")
    count = tf.Variable(0, dtype=tf.int64, trainable=False)

    class Model(module.Sequential):  # type: ignore[misc,name-defined]
        def train_step(self, data: Any) -> Any:
            with writer.as_default():
                tf.summary.write("seen", count.assign_add(1), step=count)
            return super().train_step(data)

    model = notebook.names["model"] = Model([module.layers.Dense(1)])
    model.compile("sgd", "mse")
    notebook.run("model.fit(data)")
    model.fit(notebook.names["data"].take(3), verbose=0)
    writer.close()
    (file,) = Path("events").iterdir()
    assert int(count) == 3 and sum(1 for _ in tf.data.TFRecordDataset(str(file))) == 1 + 3


LOOP = """
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((late(x) - y) ** 2)
    weights = late.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

for x, y in data.repeat(2):
    step(x, y)
    weight.assign_add(1.0)
    done.append(float(weight))
    count = len(done)
"""


def test_loop_is_measured_and_leaves_nothing_behind(notebook: Notebook) -> None:
    """The model and its optimizer, which the first step builds, have their initial values."""
    late = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    optimizer = keras.optimizers.Adam()
    notebook.names.update(late=late, optimizer=optimizer)
    notebook.run(LOOP)
    assert notebook.measured == [STEPS] * WINDOWS
    assert float(notebook.names["weight"]) == 0.0 and notebook.names["done"] == []
    assert {"x", "y", "count"}.isdisjoint(notebook.names)
    assert int(optimizer.iterations) == 0 and all(not np.any(slot) for slot in optimizer.variables[2:])
    assert late.weights[0].numpy().tolist() == [[1.0], [1.0]]
    exec(LOOP, notebook.names)
    assert notebook.names["count"] == 80


def test_what_the_cell_did_before_the_loop_is_kept(notebook: Notebook) -> None:
    notebook.run(
        "open('prepared', 'w').write('ready')\nweight.assign(5.0)\nnext(iter(data))\nmade = tf.Variable(1.0)\n"
        "made.assign(2.0)\nnext(iter(data))\nweight.assign(7.0)\nsteps = 0\n"
        f"{STEP}\n    steps += 1\n    made.assign_add(1.0)"
    )
    assert (float(notebook.names["weight"]), float(notebook.names["made"]), notebook.names["steps"]) == (7.0, 2.0, 0)
    assert Path("prepared").read_text() == "ready"


EPOCHS = (
    "epochs = 0\nshort = data.take(6)\nfor epoch in range(9):\n    epochs += 1\n    for x, y in short:\n"
    "        weight.assign_add(1.0)"
)
RANGE = "epochs = 1\ntaken = iter(data.repeat())\nfor step in range(25):\n    next(taken)\n    weight.assign_add(1.0)"
CLEANUP = (
    "epochs = 1\ntry:\n    for x, y in data:\n        weight.assign_add(1.0)\nfinally:\n"
    "    open('final', 'w').write('it')\n    open('seen', 'r')"
)


@pytest.mark.parametrize("cell", [EPOCHS, RANGE, CLEANUP], ids=["earlier-epochs", "range", "cleanup-that-raises"])
def test_all_that_a_loop_does_is_undone(notebook: Notebook, cell: str) -> None:
    """A loop over a range begins again while it is measured; what cleanup raises does not count."""
    notebook.run(cell)
    assert notebook.measured == [STEPS] * WINDOWS and float(notebook.names["weight"]) == 0.0
    assert notebook.names["epochs"] == 1, "as it was before the first step"
    assert not Path("final").exists()
    assert not [name for name in dir(builtins) if "pipetune" in name], "functions of the cell may be called later"


def test_files_that_a_loop_writes_are_put_back_and_nothing_is_saved(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("earlier\n")
    with (tmp_path / "opened").open("w") as opened:
        notebook.names["opened"] = opened
        observed = notebook.run("""
            with open("own", "w") as own:
                own.write("head")
                for x, y in data:
                    weight.assign_add(1.0)
                    own.write("step")
                    opened.write("step")
                    open("log", "a").write("step")
                    open("new", "w").write("step")
                    model.save("model.keras")
        """)
    assert (tmp_path / "log").read_text() == "earlier\n" and (tmp_path / "own").read_text() == "head"
    assert not (tmp_path / "new").exists() and not (tmp_path / "model.keras").exists()
    assert observed.suppressed > 0 and str(tmp_path / "log") in observed.files.restored
    assert (tmp_path / "opened").read_text().startswith("step"), "another cell opened it: what it holds is its own"
    notebook.names["model"].save(str(tmp_path / "model.keras"))
    assert (tmp_path / "model.keras").exists(), "saving works again"


COUNT = "reduce(0, lambda count, _: count)"


@pytest.mark.parametrize("reading", ["model.evaluate(checked, verbose=0)", f"checked.{COUNT}", "counted(checked)"])
@pytest.mark.parametrize("first", [1, 30])
def test_cache_that_steps_fill_is_removed(notebook: Notebook, tmp_path: Path, reading: str, first: int) -> None:
    notebook.run(
        f"counted = tf.function(lambda data: data.{COUNT})\nsteps = 0\nchecked = data.cache('checked')\n"
        f"{STEP}\n    steps += 1\n"
        f"    if steps >= {first}:\n        {reading}"
    )
    assert notebook.measured == [STEPS] * WINDOWS and not list(tmp_path.glob("checked*"))


def test_cache_that_a_function_fills_while_it_trains_is_removed(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run(
        "@tf.function(autograph=False)\ndef epoch(data, checked):\n"
        "    trained = data.reduce(0, lambda count, _: (weight.assign_add(1.0), count)[1])\n"
        f"    return trained, checked.{COUNT}\n"
        "epoch(data, data.take(3).cache('checked'))",
        lambda consumer, dataset: consumer.window(dataset.take(3), steps=2, warmup=1) and None,
    )
    assert not list(tmp_path.glob("checked*"))


@pytest.mark.parametrize("of_known_length", [True, False])
def test_error_beyond_the_end_of_the_data_is_none_of_the_cell(notebook: Notebook, of_known_length: bool) -> None:
    def work(consumer: Consumer, dataset: Any) -> None:
        for _ in range(5):
            with contextlib.suppress(RunFailed):
                consumer.window(dataset, steps=STEPS, warmup=1)

    read = "data" if of_known_length else "data.filter(lambda x, y: True)"
    loop = f"for n, (x, y) in enumerate({read}):\n    weight.assign_add(1.0)\n    losses[n] = 1"
    notebook.run(f"losses = np.zeros(40)\n{loop}", work)
    assert float(notebook.names["weight"]) == 0.0


def test_files_are_put_back_if_something_else_cannot_be(notebook: Notebook, tmp_path: Path) -> None:
    def work(consumer: Consumer, dataset: Any) -> None:
        consumer.window(dataset, steps=STEPS, warmup=1)
        assert notebook.observed is not None and notebook.observed._state is not None
        notebook.observed._state.names.restore = lambda: done[0]  # type: ignore[method-assign]

    done: list[int] = []
    with pytest.raises(IndexError):
        notebook.run(f"{STEP}\n    open('new', 'w').write('step')", work)
    assert not (tmp_path / "new").exists()


def test_loop_that_ends_too_early_says_so(notebook: Notebook) -> None:
    notebook.run("import itertools\nfor x, y in itertools.islice(data, 24):\n    weight.assign_add(1.0)")
    assert notebook.measured == [] and float(notebook.names["weight"]) == 0.0
    assert notebook.failures[0].startswith("The loop of the cell ended after 24 elements")


def test_loop_in_a_thread_of_the_cell_is_left(notebook: Notebook) -> None:
    """The cell would wait for ever for what the thread makes of the elements.

    A kernel that was started in the background ignores interrupts.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        notebook.run("""
            import queue, threading
            batches = queue.Queue(2)
            def feed():
                for batch in data.repeat():
                    batches.put(batch)
            threading.Thread(target=feed, daemon=True).start()
            while True:
                batches.get()
                weight.assign_add(1.0)
        """)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert notebook.measured == [STEPS] * WINDOWS and float(notebook.names["weight"]) == 0.0


def test_cell_that_does_not_train_runs_as_it_does_by_itself(notebook: Notebook) -> None:
    observed = notebook.run(
        "kept = iter(data)\nnext(kept)\nopen('written', 'w').write('it')\nfor x, y in data.take(5):\n"
        "    done.append(1)\nmodel.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)"
    )
    assert not notebook.uses and notebook.names["done"] == [1] * 5 and Path("written").read_text() == "it"
    assert int(notebook.names["model"].optimizer.iterations) == 1
    assert "Model.fit was given ndarray" in observed.script.describe_other_uses()
    assert len([1 for _ in notebook.names["kept"]]) == 39, "the iterator is its own again"


def test_error_before_training_is_raised_and_its_effects_are_kept(notebook: Notebook) -> None:
    with pytest.raises(KeyError, match="mine"):
        notebook.run("before = 1\nopen('written', 'w').write('it')\nraise KeyError('mine')\nmodel.fit(data)")
    assert notebook.names["before"] == 1 and Path("written").exists() and not notebook.measured


def test_error_in_a_measured_step_is_raised_when_all_is_put_back(notebook: Notebook) -> None:
    seen: list[bool] = []

    def work(consumer: Consumer, dataset: Any) -> None:
        with contextlib.suppress(RunFailed):
            while True:
                consumer.window(dataset, steps=STEPS, warmup=1)
        assert notebook.observed is not None
        latest = time.monotonic() + 20
        while not notebook.observed.stopped and time.monotonic() < latest:
            time.sleep(0.01)
        seen.append(notebook.observed.stopped)

    steps = "weight.assign_add(1.0)\n    done.append(1)\n    if len(done) > 35:\n        raise KeyError('of the step')"
    with pytest.raises(KeyError, match="of the step"):
        notebook.run(f"for x, y in data:\n    {steps}", work)
    assert seen == [True] and float(notebook.names["weight"]) == 0.0 and notebook.names["done"] == []


def test_failure_of_the_work_is_raised_when_all_is_put_back(notebook: Notebook) -> None:
    def fail(_consumer: Consumer, _dataset: Any) -> None:
        raise RunFailed("nothing can be measured")

    with pytest.raises(RunFailed, match="nothing can be measured"):
        notebook.run(STEP, fail)
    assert float(notebook.names["weight"]) == 0.0


def test_cell_that_swallows_the_stop_is_stopped_again(notebook: Notebook) -> None:
    fits = "for attempt in range(3):\n    try:\n        model.fit(data, verbose=0)\n    except BaseException:\n"
    notebook.run(f"{fits}        continue\n{STEP}")
    assert len(notebook.uses) == 1 and float(notebook.names["weight"]) == 0.0


@pytest.mark.parametrize("cell", ["model.fit(data)", STEP, RANGE])
def test_interrupt_ends_the_work_and_puts_all_back(notebook: Notebook, cell: str) -> None:
    def work(consumer: Consumer, dataset: Any) -> None:
        threading.Timer(0.5, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
        assert notebook.observed is not None
        while not notebook.observed.stopped:
            with contextlib.suppress(RunFailed):
                consumer.window(dataset, steps=STEPS, warmup=1)
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        notebook.run(cell, work)
    assert float(notebook.names["weight"]) == 0.0 and int(notebook.names["model"].optimizer.iterations) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_that_a_finalizer_ignores_ends_the_work(notebook: Notebook) -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    stopped: list[bool] = []

    def work(_consumer: Consumer, _dataset: Any) -> None:
        assert notebook.observed is not None
        Finalized()
        stopped.append(notebook.observed.stopped)

    with pytest.raises(KeyboardInterrupt):
        notebook.run("model.fit(data)", work)
    assert stopped == [True]
