"""The extension in the kernel of a real notebook: what its user types, and what the notebook shows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.starting import search_path

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


class Cell:
    """A cell that was run: what it printed, displayed and raised."""

    def __init__(self, cell: Any) -> None:
        self.number: int = cell.execution_count
        self.outputs: list[Any] = cell.outputs
        self.printed, self.errors = self._stream("stdout"), self._stream("stderr")
        raised = [one for one in cell.outputs if one.output_type == "error"]
        self.raised: str = raised[0].ename if raised else ""
        self.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(raised[0].traceback)) if raised else ""
        shown = [one.data for one in cell.outputs if one.output_type in ("execute_result", "display_data")]
        self.html = [one["text/html"] for one in shown if "text/html" in one]
        self.plain = [one["text/plain"] for one in shown]

    def _stream(self, name: str) -> str:
        return "".join(one.text for one in self.outputs if one.output_type == "stream" and one.name == name)


def run_notebook(folder: Path, *cells: str) -> list[Cell]:
    """Runs a notebook in a kernel of its own; an error does not end it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text.strip("\n")) for text in cells])
    resources = {"metadata": {"path": str(folder)}}
    how = {"timeout": 300, "kernel_name": "python3", "allow_errors": True, "resources": resources}
    client = nbclient.NotebookClient(notebook, **how)
    private = {name: str(folder / name) for name in ("HOME", "IPYTHONDIR", "XDG_STATE_HOME")}
    Path(private["HOME"]).mkdir()
    client.execute(env={**os.environ, **private, "PYTHONPATH": search_path(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"})
    return [Cell(cell) for cell in notebook.cells]


CELLS = """
# %% LOAD
%load_ext pipetune
# %% BUILD
import time
import numpy as np
import tensorflow as tf

def decode(number):
    time.sleep(0.003)
    return np.float32(number)

def load(number):
    value = tf.ensure_shape(tf.numpy_function(decode, [number], tf.float32), [])
    return tf.fill([4], value), value

train = tf.data.Dataset.range(80)
train = train.map(load)
train = train.batch(4)
# %% MODEL
import keras
model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
model.compile("adam", "mse")
before = model.get_weights()
# %% FIT
%%pipetune --budget 6 --allow python-parallel,statistical tuned
print("before the first step")

model.fit(train, epochs=3, verbose=0)
print("after the last step")
# %% UNCHANGED
same = all((now == then).all() for now, then in zip(model.get_weights(), before))
print(same, int(model.optimizer.iterations), type(tuned).__name__)
print(list(tuned.to_frame()["source"]))
print(tuned.session.main_dataset.file, tuned.session.main_dataset.line)
# %% ITERATIONS
print(int(model.optimizer.iterations))
# %% LOOP
optimizer = keras.optimizers.Adam(0.01)
losses, steps = [], 0

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x)[:, 0] - y) ** 2)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    return loss
# %% TRAIN
for epoch in range(2):
    for x, y in train:
        losses.append(float(train_step(x, y)))
        steps += 1
        print("step", steps)
        open("log.csv", "a").write("a line\\n")
# %% STATE
import builtins, os, sys
same = all((now == then).all() for now, then in zip(model.get_weights(), before))
print(same, losses, steps, int(optimizer.iterations), "x" in globals(), os.path.exists("log.csv"))
hooked = [name for name in dir(builtins) if "pipetune" in name]
print(hooked, tf.data.Dataset.__iter__.__module__, keras.Model.fit.__module__)
print(_pipetune.outcome in ("proven", "likely", "undecided", "none", "not-input-bound"), sys.stdout.__class__.__name__)
# %% ERROR
%%pipetune
reached = 1
raise ValueError("of the cell")
model.fit(train)
# %% ARRAYS
%%pipetune
model.fit(np.ones([8, 4]), np.ones(8), verbose=0)
next(iter(train))
"""
CELL = SimpleNamespace(**dict(re.findall(r"^# %% (\w+)\n(.*?)\n(?=# %%|\Z)", CELLS, re.DOTALL | re.MULTILINE)))


NORMALLY = CELL.FIT.replace("%%pipetune --budget 6 --allow python-parallel,statistical tuned", "")


def test_fit_cell_stops_at_its_first_step_and_shows_the_report(fit: list[Cell]) -> None:
    cell = fit[4]
    assert cell.raised == "" and cell.number == 5
    assert "before the first step" in cell.printed and "after the last step" not in cell.printed
    assert "stopped at its first training step: Model.fit over train, In [5], line 4." in cell.printed
    (html,) = cell.html
    assert html.startswith("<iframe srcdoc=") and "In [3], line 14" in html
    assert cell.plain[0].startswith("<pipetune session: ")


def test_progress_is_shown_below_the_cell(fit: list[Cell]) -> None:
    text = fit[4].errors
    assert "measuring the input alone" in text and "input or model?" in text
    assert "map (In [3], line 14)" in " ".join(text.split()), "what bounds the input, and where"
    assert text.replace("\n", "").isprintable() and "\r" not in text
    assert len(fit[4].plain) == 1, "nothing else is displayed"


def test_nothing_is_changed_by_it(fit: list[Cell]) -> None:
    same, sources, consumer, *_ = fit[5].printed.splitlines()
    assert same == "True 0 TunedSession"
    assert sources == "['In [3], line 13', 'In [3], line 14', 'In [3], line 15']" and consumer == "In [5] 4"


def test_same_cell_trains_when_it_is_run_normally(fit: list[Cell]) -> None:
    assert fit[6].printed.splitlines() == ["before the first step", "after the last step"]
    assert fit[7].printed.strip() == "60"


FIT_CELLS = (
    CELL.LOAD, CELL.BUILD, CELL.BUILD, CELL.MODEL, CELL.FIT, CELL.UNCHANGED, NORMALLY, CELL.ITERATIONS,
)  # fmt: skip
"""A cell that calls `fit`; the cell that builds its data is run twice."""

LOOP_CELLS = (
    "%unload_ext pipetune", "%%pipetune\n1", CELL.BUILD, CELL.MODEL, CELL.LOOP, CELL.LOAD,
    f"%%pipetune --budget 6\n{CELL.TRAIN}", CELL.STATE, CELL.TRAIN, "print(steps, len(losses))", CELL.ERROR,
    "print(reached)", CELL.ARRAYS,
)  # fmt: skip
"""A loop, whose data is built while the extension is taken out; and what goes wrong."""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    """All cells in one notebook: a kernel takes long to start."""
    return run_notebook(tmp_path_factory.mktemp("notebook"), *FIT_CELLS, *LOOP_CELLS)


@pytest.fixture
def fit(cells: list[Cell]) -> list[Cell]:
    return cells[: len(FIT_CELLS)]


@pytest.fixture
def loop(cells: list[Cell]) -> list[Cell]:
    return cells[len(FIT_CELLS) :]


def test_own_loop_is_measured_leaves_nothing_behind_and_trains_afterwards(loop: list[Cell]) -> None:
    assert loop[6].raised == "" and len(loop[6].html) == 1
    assert "a Python loop over train, In [15], line 3." in loop[6].printed
    assert "step 1\n" in loop[6].printed and "step 40\n" not in loop[6].printed, "measured steps print nothing"
    state, hooks, outcome = loop[7].printed.splitlines()
    assert state == "True [] 0 0 False False"
    assert hooks == "[] tensorflow.python.data.ops.dataset_ops keras.src.backend.tensorflow.trainer"
    assert outcome == "True OutStream"
    assert loop[8].raised == "" and loop[9].printed.split() == ["40", "40"]


def test_cells_that_ran_before_the_extension_have_no_places_and_it_says_what_to_do(loop: list[Cell]) -> None:
    assert "Run those that have run already again" in loop[5].printed
    assert "No places in your code are known" in loop[6].printed and "pipetune.record()" in loop[6].printed


def test_error_of_the_cell_is_shown_as_its_own(loop: list[Cell]) -> None:
    cell = loop[10]
    assert cell.raised == "ValueError" and "of the cell" in cell.traceback
    assert re.search(r"In\s?\[19\], line 3", cell.traceback) and "pipetune/notebook" not in cell.traceback
    assert cell.html == [] and loop[11].printed.strip() == "1"


def test_cell_without_a_dataset_runs_to_its_end_and_says_so(loop: list[Cell]) -> None:
    cell = loop[12]
    assert cell.raised == "" and cell.html == []
    assert "ran to its end and trained on no tf.data.Dataset: Model.fit was given ndarray" in cell.printed
    assert "only one element of train (In [21], line 3)" in cell.printed


def test_extension_can_be_taken_out(loop: list[Cell]) -> None:
    assert "Cell magic `%%pipetune` not found" in loop[1].errors


@pytest.fixture(scope="module", autouse=True)
def no_kernel_is_left() -> Iterator[None]:
    import psutil

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
