"""What `%%pipetune` shows where it cannot go on."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.settings import Settings

pytest.importorskip("IPython", reason="IPython is not installed")

from IPython.core.error import UsageError
from IPython.testing.globalipapp import get_ipython

from pipetune import workflow
from pipetune.notebook import magic
from pipetune.notebook.magic import CellTuning
from pipetune.source.cells import running_shell

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(("line", "says"), [
    ("--budget inf", "--budget takes a number of seconds above 0"),
    ("--budget nan", "--budget takes a number of seconds above 0"),
    ("--budget much", "argument --budget: invalid float value: 'much'"),
    ("--allow reorders", "--allow: 'reorders' is not one of statistical, reorder"),
    ("2nd", "'2nd' is not a name"),
    ("class", "'class' is not a name"),
])  # fmt: skip
def test_wrong_arguments_are_refused(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"^%%pipetune: {says}"):
        magic.run(line, "1")


def test_error_is_shown_without_frames(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_tuning: CellTuning) -> None:
        raise PipetuneError("The data cannot be read.", hint="Build it in this process.")

    monkeypatch.setattr(CellTuning, "run", fail)
    shell = get_ipython()
    shell.register_magic_function(magic.run, magic_kind="cell", magic_name="pipetune")
    result = shell.run_cell("%%pipetune\n1")
    assert isinstance(result.error_in_exec, PipetuneError)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).strip() == "pipetune: The data cannot be read.\n  Build it in this process."


def test_plan_is_for_the_variable_that_holds_the_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    monkeypatch.setattr(workflow, "analyze", lambda _study: None)
    model: Any = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    shell: Any = get_ipython() or running_shell()  # it is returned once
    shell.user_ns.update(model=model, training=0.8, data=tf.data.Dataset.from_tensors(([[1.0]], [[1.0]])).repeat(9))
    for cell, variable in {"model.fit(data)": "data", "model.fit(data.take(4))": "dataset"}.items():
        tuning = CellTuning(shell, cell, Settings(distribute="none"))
        assert tuning.run() is not None and tuning.variable == variable
