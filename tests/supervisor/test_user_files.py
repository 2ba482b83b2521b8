"""What is said of the user's files after a command, and by the next one where it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.cli.main import main
from pipetune.core import file_events, restoration, scratch
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
    """What a worker does: writes these files in a loop, then ends without a word."""
    child = os.fork()
    if child == 0:
        journal = Journal(folder)
        file_events.tell(journal)
        journal.begin(journal.mark())
        for name in changes:
            (own / name).write_text("of the loop")
        os._exit(0)
    os.waitpid(child, 0)


def test_the_files_of_all_workers_of_a_command_are_put_back_and_counted(own: Path) -> None:
    screen = Recorder()
    files = UserFiles(screen, own / "results")
    assert files.side_effects == {} and files.notes == ()
    for names in (("file", "new"), ("file", "more")):
        with files.kept() as folder:
            train(own, folder, *names)
        assert (own / "file").read_text() == "precious" and os.listdir(own) == ["file"]
        assert not os.path.exists(folder)
    assert files.side_effects == {"files_restored": 2, "files_removed": 2}
    assert files.notes == ("Put back: 2 files that the script's loop had changed; removed: 2 that it had made.",)
    assert screen.warned == []


@pytest.mark.parametrize(
    ("done", "says"),
    [
        (Restoration(left=[("/a/log", "/copies/1")]), ["/a/log was changed by somebody else", "is in /copies/1."]),
        (Restoration(left=[("/a/new", "")]), ["/a/new was changed by somebody else", "The script's loop had made it."]),
        (
            Restoration(failed=[("/a/log", "/copies/1", "Permission denied")]),
            ["could not be put back: Permission denied. What it held before is in /copies/1."],
        ),
        (Restoration(failed=[("/a/log", "", "gone")]), ["/a/log, which the script's loop has changed, could", "gone."]),
        (Restoration(unknown=[f"/a/{number}" for number in range(7)]), ["left so: /a/0, /a/1", "/a/4 and 2 more."]),
        (Restoration(unknown=["/a/0"]), ["left so: /a/0."]),
        (Restoration(restored=["/a/log"], removed=["/a/new"]), []),
    ],
)
def test_what_is_not_put_back_is_said_with_what_to_do(done: Restoration, says: list[str]) -> None:
    found = list(user_files.warnings(done))
    assert len(found) == bool(says)
    for words in says:
        assert words in found[0]


@pytest.mark.parametrize(
    ("restored", "removed", "says"),
    [
        (0, 0, ""),
        (1, 0, "Put back: 1 file that the script's loop had changed."),
        (0, 1, "Removed: 1 file that it had made."),
        (0, 2, "Removed: 2 files that it had made."),
        (3, 1, "Put back: 3 files that the script's loop had changed; removed: 1 that it had made."),
    ],
)
def test_the_files_are_counted_in_words(restored: int, removed: int, says: str) -> None:
    assert user_files._put_back(restored, removed) == says


@pytest.mark.parametrize("command", [["rules", "cache"], ["report", "no-such-session"]])
def test_whatever_command_comes_next_puts_back_and_says_so(
    own: Path, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(own.parent))
    monkeypatch.setattr("tempfile.tempdir", None)
    killed = (
        "import os\nfrom pipetune.core import restoration, scratch\n"
        "with scratch.folder('job'), restoration.folder() as folder:\n    print(folder, flush=True)\n    os.abort()"
    )
    folder = subprocess.run([sys.executable, "-c", killed], stdout=subprocess.PIPE, text=True, check=False).stdout
    train(own, folder.strip(), "file", "new")
    main(command)
    assert (own / "file").read_text() == "precious" and os.listdir(own) == ["file"]
    error = capsys.readouterr().err
    assert error.startswith("pipetune: An earlier command was killed while it measured. Put back: 1 file that the")
    assert not list(own.parent.glob("pipetune-job-*")) and list(restoration.recover()) == []
    assert scratch.root() is None
    main(command)
    assert "An earlier command" not in capsys.readouterr().err
