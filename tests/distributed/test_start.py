"""`examples/distributed/start.py`: the end of all processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

START = Path(__file__).resolve().parents[2] / "examples" / "distributed" / "start.py"

TELLS = """
import os, sys, time
folder, *more = sys.argv[1:]
told = os.environ["TF_CONFIG"]
name = f"{folder}/{os.getpid()}"
open(name, "w").write(told)
os.rename(name, name + ".json")
"""
SERVES = TELLS + 'if \'"chief", "index"\' not in told: time.sleep(60)\n'
FAILS = TELLS + "sys.exit(3) if '\"index\": 1' in told else time.sleep(60)\n"


def command(tmp_path: Path, script: str, *options: str) -> list[str | Path]:
    """A command that starts the script; its processes tell in the last word, a folder, that they have begun."""
    path, folder = tmp_path / "script.py", tmp_path / "told"
    path.write_text(script)
    folder.mkdir()
    return [sys.executable, START, *options, path, folder]


def processes(tmp_path: Path) -> list[int]:
    return [int(one.stem) for one in (tmp_path / "told").glob("*.json")]


def test_processes_end_with_start(tmp_path: Path) -> None:
    with subprocess.Popen(command(tmp_path, TELLS + "time.sleep(60)\n")) as process:
        deadline = time.monotonic() + 120
        while len(processes(tmp_path)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
    found = processes(tmp_path)
    assert len(found) == 2 and not any(map(psutil.pid_exists, found))


@pytest.mark.parametrize(
    ("script", "options", "code"), [(SERVES, ["--parameter-servers", "1"], 0), (FAILS, ["--workers", "2"], 1)]
)
def test_servers_and_waiting_workers_are_terminated(tmp_path: Path, script: str, options: list[str], code: int) -> None:
    began = time.monotonic()
    assert subprocess.run(command(tmp_path, script, *options), timeout=200, check=False).returncode == code
    assert time.monotonic() - began < 40, "they would have slept a minute"
    assert not any(map(psutil.pid_exists, processes(tmp_path)))
