"""Pipetune's temporary folders: removed on close, or by the next command if their process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.core import files

KILLED = """
import os, signal
from pipetune.core import files
with files.temporary_folder("trial") as folder:
    print(folder, flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(files, "_root", None)
    return tmp_path


def test_folder_is_removed_on_close(temporary: Path) -> None:
    with files.temporary_folder("trial") as folder:
        assert Path(folder).parent == temporary and f"-trial-{os.getpid()}-" in folder
        files.remove_abandoned()
        assert os.path.isdir(folder), "its process is there"
    assert list(temporary.iterdir()) == []


def test_worker_creates_folders_in_folder_of_its_job(temporary: Path) -> None:
    (temporary / "job").mkdir()
    files.set_root(str(temporary / "job"))
    with files.temporary_folder("trial") as folder, files.temporary_folder("files", within=str(temporary)) as beside:
        assert Path(folder).parent == temporary / "job" and Path(beside).parent == temporary


def test_only_folders_of_killed_processes_are_removed(temporary: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        (folder / "a").write_text("a")
        files.remove_abandoned()
        assert folder.exists(), "its process is there"
        process.send_signal(signal.SIGKILL)
    _, purpose, number, started, namespace, rest = folder.name.split("-", 5)
    others = [
        temporary / f"pipetune-{purpose}-{number}-{started}-{int(namespace) + 1}-{rest}",  # from another container
        temporary / "pipetune-notes",
        temporary / f"mine-pipetune-{purpose}-{number}-{started}-{namespace}-{rest}",
    ]
    for other in others:
        other.mkdir()
    (temporary / f"{folder.name}x").write_text("a file")
    files.remove_abandoned()
    assert not folder.exists() and all(map(Path.exists, others)) and (temporary / f"{folder.name}x").exists()


def test_folder_of_reused_process_id_is_removed(temporary: Path) -> None:
    with files.temporary_folder("trial") as folder:
        mine = f"-{os.getpid()}-"
        earlier = Path(folder.replace(mine, f"{mine}1", 1))  # same process id, different start time
        earlier.mkdir()
        files.remove_abandoned()
        assert not earlier.exists() and os.path.isdir(folder)
