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


def started(tmp_path: Path, script: str, *options: str) -> tuple[int, float]:
    """The exit code, and the seconds it took; asserts that all processes have exited."""
    path, folder = tmp_path / "script.py", tmp_path / "told"
    path.write_text(script)
    folder.mkdir()
    began = time.monotonic()
    done = subprocess.run([sys.executable, START, *options, path, folder], timeout=200, check=False)
    seconds = time.monotonic() - began
    assert not any(psutil.pid_exists(int(one.stem)) for one in folder.glob("*.json"))
    return done.returncode, seconds


def test_processes_end_with_start(tmp_path: Path) -> None:
    path, folder = tmp_path / "script.py", tmp_path / "told"
    path.write_text(TELLS + "time.sleep(60)\n")
    folder.mkdir()
    with subprocess.Popen([sys.executable, START, path, folder]) as process:
        deadline = time.monotonic() + 120
        while len(list(folder.glob("*.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
    found = [int(one.stem) for one in folder.glob("*.json")]
    assert len(found) == 2 and not any(map(psutil.pid_exists, found))


@pytest.mark.parametrize(
    ("script", "options", "code"), [(SERVES, ["--parameter-servers", "1"], 0), (FAILS, ["--workers", "2"], 1)]
)
def test_servers_and_waiting_workers_are_terminated(tmp_path: Path, script: str, options: list[str], code: int) -> None:
    found, seconds = started(tmp_path, script, *options)
    assert found == code and seconds < 40, "they would have slept a minute"
