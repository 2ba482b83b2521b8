"""Pipetune's own folders: gone when they are closed, and with the next command where their process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.core import scratch

KILLED = """
import os, signal
from pipetune.core import scratch
with scratch.folder("trial") as folder:
    print(folder, flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(scratch, "_root", None)
    return tmp_path


def test_a_folder_is_gone_when_it_is_closed(temporary: Path) -> None:
    with scratch.folder("trial") as folder:
        assert Path(folder).parent == temporary and f"-trial-{os.getpid()}-" in folder
        scratch.remove_abandoned()
        assert os.path.isdir(folder), "its process is there"
    assert list(temporary.iterdir()) == []


def test_a_worker_has_its_folders_in_that_of_its_job(temporary: Path) -> None:
    (temporary / "job").mkdir()
    scratch.use(str(temporary / "job"))
    with scratch.folder("trial") as folder, scratch.folder("files", within=str(temporary)) as beside:
        assert Path(folder).parent == temporary / "job" and Path(beside).parent == temporary


def test_the_folders_of_killed_processes_are_removed_and_no_others(temporary: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        (folder / "a").write_text("a")
        scratch.remove_abandoned()
        assert folder.exists(), "its process is there"
        process.send_signal(signal.SIGKILL)
    _, purpose, number, started, namespace, rest = folder.name.split("-", 5)
    others = [
        temporary / f"pipetune-{purpose}-{number}-{started}-{int(namespace) + 1}-{rest}",  # of another container
        temporary / "pipetune-notes",
        temporary / f"mine-pipetune-{purpose}-{number}-{started}-{namespace}-{rest}",
    ]
    for other in others:
        other.mkdir()
    (temporary / f"{folder.name}x").write_text("a file")
    scratch.remove_abandoned()
    assert not folder.exists() and all(map(Path.exists, others)) and (temporary / f"{folder.name}x").exists()


def test_a_number_that_another_process_has_now_is_no_owner(temporary: Path) -> None:
    with scratch.folder("trial") as folder:
        mine = f"-{os.getpid()}-"
        earlier = Path(folder.replace(mine, f"{mine}1", 1))  # a process of this number that began at another time
        earlier.mkdir()
        scratch.remove_abandoned()
        assert not earlier.exists() and os.path.isdir(folder)
