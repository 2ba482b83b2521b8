"""Workers and servers of a job with parameter servers: they run the script, which has to serve."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.capture import protection
from pipetune.core import messages, restoration
from pipetune.core.distribution import COORDINATOR, DATASET, InputDistribution
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, Mode
from pipetune.core.settings import Settings
from pipetune.worker import lockstep


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(protection, "disable_saving", lambda _: None)  # it cannot be undone


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("pass", messages.AnalysisFailed, "ended, but it should serve"),
        ("raise SystemExit(0)", messages.AnalysisFailed, "ended, but it should serve"),
        ("raise SystemExit('no data')", messages.ScriptExited, "no data"),
        ("raise ValueError('of the user')", messages.ScriptFailed, "ValueError: of the user"),
    ],
)
def test_script_that_does_not_serve_is_an_error(tmp_path: Path, text: str, kind: type[Any], says: str) -> None:
    path, heard = tmp_path / "train.py", list[messages.Message]()
    path.write_text(text)
    job = Job(Mode.SERVE, -1, Settings(), script=str(path))
    assert lockstep.run_server_task(job, SimpleNamespace(send=heard.append)) == 3  # type: ignore[arg-type]
    begun, message = heard
    assert isinstance(begun, messages.Progress) and isinstance(message, kind) and says in str(message)


@pytest.mark.tensorflow
def test_script_that_trains_in_server_task_overwrites_nothing(tmp_path: Path) -> None:
    """In its own process: saving stays disabled there, and exit handlers do not run."""
    kept, path = tmp_path / "kept", tmp_path / "train.py"
    kept.write_text("of last week")
    text = f"import atexit, tensorflow as tf\ntf.io.write_file({str(kept)!r}, 'of today')\nprint('trained')\n"
    path.write_text(f"{text}atexit.register(print, 'at its end')")
    read_end, write_end = os.pipe()
    for folder in ("job", "undo"):
        (tmp_path / folder).mkdir()
    job = Job(Mode.SERVE, write_end, Settings(), script=str(path), undo=str(tmp_path / "undo"))
    messages.write_job(job, tmp_path / "job" / "job.json")
    command = [sys.executable, "-P", "-m", "pipetune.worker", str(tmp_path / "job" / "job.json")]
    ended = subprocess.run(command, pass_fds=[write_end], capture_output=True, text=True, check=False)
    os.close(write_end)
    os.close(read_end)
    assert (ended.returncode, ended.stdout) == (3, "trained\n"), ended.stderr
    restoration.restore(str(tmp_path / "undo"))
    assert kept.read_text() == "of last week"


BY_COORDINATOR = InputDistribution("ParameterServerStrategy", 1, COORDINATOR, 2)


def test_note_lists_processes_that_share_the_machine() -> None:
    assert lockstep.parameter_server_note(Settings(), BY_COORDINATOR, cores=2) == ""
    assert lockstep.parameter_server_note(Settings(workers=2), None, cores=2) == ""
    found = lockstep.parameter_server_note(Settings(workers=2, parameter_servers=1), BY_COORDINATOR, cores=4)
    assert found.startswith("A chief, 2 workers and 1 parameter server share the 4 cores of this machine")


@pytest.mark.parametrize(
    ("handover", "how"),
    [
        (None, "does not pass its dataset to a strategy"),
        (InputDistribution("MirroredStrategy", 2, DATASET), "under MirroredStrategy"),
    ],
)
def test_servers_for_script_without_parameter_servers_are_rejected(
    handover: InputDistribution | None, how: str
) -> None:
    with pytest.raises(PipetuneError, match=how) as refused:
        lockstep.parameter_server_note(Settings(workers=2, parameter_servers=1), handover, cores=2)
    assert "Omit --parameter-servers" in refused.value.hint
