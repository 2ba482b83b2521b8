"""The processes beside the chief of a job with parameter servers: they run the script, and it has to serve."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from pipetune.core import restoration
from pipetune.core.errors import PipetuneError
from pipetune.core.handover import COORDINATOR, DATASET, Handover
from pipetune.core.messages import (
    Failed,
    Job,
    Message,
    MessageWriter,
    Mode,
    Progress,
    ScriptExited,
    ScriptFailed,
    write_job,
)
from pipetune.core.settings import Settings
from pipetune.tf.script import saving
from pipetune.worker import serving


class Heard:
    """A writer that keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, message: Message) -> None:
        self.messages.append(message)


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(saving, "switch_off", lambda _: None)  # there is no way back from it


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("pass", Failed, "came to its end, where it should serve"),
        ("raise SystemExit(0)", Failed, "came to its end, where it should serve"),
        ("raise SystemExit('no data')", ScriptExited, "no data"),
        ("raise ValueError('of the user')", ScriptFailed, "ValueError: of the user"),
    ],
)
def test_a_script_that_does_not_serve_is_an_error(tmp_path: Path, text: str, kind: type[Any], says: str) -> None:
    path, heard = tmp_path / "train.py", Heard()
    path.write_text(text)
    job = Job(Mode.SERVE, -1, Settings(), script=str(path))
    assert serving.serve(job, cast(MessageWriter, heard)) == 3
    begun, message = heard.messages
    assert isinstance(begun, Progress) and isinstance(message, kind) and says in str(message)


@pytest.mark.tensorflow
def test_a_script_that_trains_where_it_should_serve_overwrites_nothing(tmp_path: Path) -> None:
    """In a process of its own: from then on nothing can be saved in it, and nothing behind it runs."""
    kept, path = tmp_path / "kept", tmp_path / "train.py"
    kept.write_text("of last week")
    text = f"import atexit, tensorflow as tf\ntf.io.write_file({str(kept)!r}, 'of today')\nprint('trained')\n"
    path.write_text(f"{text}atexit.register(print, 'at its end')")
    read_end, write_end = os.pipe()
    for folder in ("job", "undo"):
        (tmp_path / folder).mkdir()
    job = Job(Mode.SERVE, write_end, Settings(), script=str(path), undo=str(tmp_path / "undo"))
    write_job(job, tmp_path / "job" / "job.json")
    command = [sys.executable, "-P", "-m", "pipetune.worker", str(tmp_path / "job" / "job.json")]
    ended = subprocess.run(command, pass_fds=[write_end], capture_output=True, text=True, check=False)
    os.close(write_end)
    os.close(read_end)
    assert (ended.returncode, ended.stdout) == (3, "trained\n"), ended.stderr
    restoration.restore(str(tmp_path / "undo"))
    assert kept.read_text() == "of last week"


BY_COORDINATOR = Handover("ParameterServerStrategy", 1, COORDINATOR, 2)


def test_nothing_is_said_where_no_servers_were_started() -> None:
    assert serving.job_note(Settings(), BY_COORDINATOR, cores=2) == ""
    assert serving.job_note(Settings(workers=2), None, cores=2) == ""


def test_who_shares_this_machine_is_said() -> None:
    found = serving.job_note(Settings(workers=2, parameter_servers=1), BY_COORDINATOR, cores=4)
    assert found.startswith("A chief, 2 workers and 1 parameter server share the 4 cores of this machine")


@pytest.mark.parametrize(
    ("handover", "how"),
    [(None, "hands its dataset to no strategy"), (Handover("MirroredStrategy", 2, DATASET), "under MirroredStrategy")],
)
def test_servers_for_a_script_that_uses_none_are_refused(handover: Handover | None, how: str) -> None:
    with pytest.raises(PipetuneError, match=how) as refused:
        serving.job_note(Settings(workers=2, parameter_servers=1), handover, cores=2)
    assert "Leave --parameter-servers out" in refused.value.hint
