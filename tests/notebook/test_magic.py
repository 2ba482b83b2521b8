"""What `%%pipetune` shows where it cannot go on."""

from __future__ import annotations

import pytest

from pipetune.core.errors import PipetuneError

pytest.importorskip("IPython", reason="IPython is not installed")

from IPython.core.error import UsageError
from IPython.testing.globalipapp import get_ipython

from pipetune.notebook import magic
from pipetune.notebook.tuning import CellTuning

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--budget inf", "--budget takes a number of seconds above 0"),
        ("--budget nan", "--budget takes a number of seconds above 0"),
        ("2nd", "'2nd' is not a name"),
        ("class", "'class' is not a name"),
    ],
)
def test_wrong_arguments_are_refused(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
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
