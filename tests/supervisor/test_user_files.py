"""Messages about restored user files, after a command and by the next command if it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipetune.cli.main import main
from pipetune.core import file_events, restoration
from pipetune.core.files import root
from pipetune.core.restoration import Restoration
from pipetune.supervisor import user_files
from pipetune.supervisor.user_files import UserFiles
from tests.files.journal import Journal
from tests.supervisor.test_analysis import Recorder


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").write_text("precious")
    return tmp_path / "own"


def train(own: Path, folder: str, *changes: str) -> None:
    """Does what a worker does: writes these files in a training loop, then ends without a message."""
    if (child := os.fork()) == 0:
        journal = Journal(folder)
        file_events.set_journal(journal)
        journal.confirm_training(journal.begin_generation())
        for name in changes:
            (own / name).write_text("of the loop")
        os._exit(0)
    os.waitpid(child, 0)


def test_files_of_all_workers_are_restored_and_counted(own: Path) -> None:
    screen = Recorder()
    files = UserFiles(screen, own / "results")
    assert files.side_effects == {} and files.notes == ()
    for names in (("file", "new"), ("file", "more")):
        with files.restored_on_exit() as folder:
            train(own, folder, *names)
        assert (own / "file").read_text() == "precious" and os.listdir(own) == ["file"]
        assert not os.path.exists(folder)
    assert files.side_effects == {"files_restored": 2, "files_removed": 2}
    assert files.notes == ("Restored: 2 files changed by the training loop; removed: 2 created by it.",)
    assert screen.warned == []


@pytest.mark.parametrize(("done", "says"), [
    ({"left_alone": [("/a/log", "/copies/1")]}, "/a/log was changed by another process ... is in /copies/1."),
    ({"left_alone": [("/a/new", "")]},
     "/a/new was changed by another process ... The training loop had created it."),
    ({"failed": [("/a/log", "/copies/1", "Permission denied")]},
     "could not be restored: Permission denied. Its previous content is in /copies/1."),
    ({"failed": [("/a/log", "", "gone")]}, "/a/log was changed by the training loop and could ... gone."),
    ({"unexplained": [f"/a/{number}" for number in range(7)]}, "not restored: /a/0, /a/1 ... /a/4 and 2 more."),
    ({"unexplained": ["/a/0"]}, "not restored: /a/0."),
    ({"restored": ["/a/log"], "removed": ["/a/new"]}, ""),
])  # fmt: skip
def test_unrestored_files_are_reported_with_their_copies(done: dict[str, Any], says: str) -> None:
    found = list(user_files.warnings(Restoration(**done)))
    assert len(found) == bool(says)
    assert not says or all(words in found[0] for words in says.split(" ... "))


@pytest.mark.parametrize(("restored", "removed", "says"), [
    (0, 0, ""),
    (1, 0, "Restored: 1 file changed by the training loop."),
    (0, 1, "Removed: 1 file created by the training loop."),
    (0, 2, "Removed: 2 files created by the training loop."),
    (3, 1, "Restored: 3 files changed by the training loop; removed: 1 created by it."),
])  # fmt: skip
def test_restored_files_are_counted_in_a_sentence(restored: int, removed: int, says: str) -> None:
    assert user_files._put_back(restored, removed) == says


@pytest.mark.parametrize("command", [["rules", "cache"], ["report", "no-such-session"]])
def test_next_command_restores_files_and_reports_it(own, command, capsys, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(own.parent))
    monkeypatch.setattr("tempfile.tempdir", None)
    killed = """import os\nfrom pipetune.core import files, restoration
with files.temporary_folder('job'), restoration.journal_folder() as folder:\n print(folder, flush=True)\n os.abort()"""
    folder = subprocess.run([sys.executable, "-c", killed], stdout=subprocess.PIPE, text=True, check=False).stdout
    train(own, folder.strip(), "file", "new")
    main(command)
    assert (own / "file").read_text() == "precious" and os.listdir(own) == ["file"]
    says = "pipetune: An earlier command was killed during its measurements. Restored: 1 file changed by"
    assert capsys.readouterr().err.startswith(says)
    assert not list(own.parent.glob("pipetune-job-*")) and list(restoration.recover()) == []
    assert root() is None
    main(command)
    assert "An earlier command" not in capsys.readouterr().err
