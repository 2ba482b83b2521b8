"""`examples/distributed/start.py`: the `TF_CONFIG` of each process, and the end of all processes."""

from __future__ import annotations

import json
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


def started(tmp_path: Path, script: str, *options: str) -> tuple[int, list[dict[str, object]], float]:
    """The exit code, the `TF_CONFIG` of the processes, and the seconds it took; asserts that all have exited."""
    path, folder = tmp_path / "script.py", tmp_path / "told"
    path.write_text(script)
    folder.mkdir()
    began = time.monotonic()
    done = subprocess.run([sys.executable, START, *options, path, folder], timeout=200, check=False)
    seconds = time.monotonic() - began
    found = list(folder.glob("*.json"))
    assert not any(psutil.pid_exists(int(one.stem)) for one in found)
    return done.returncode, [json.loads(one.read_text()) for one in found], seconds


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


def tasks(told: list[dict[str, object]]) -> list[tuple[object, object]]:
    return sorted((one["task"]["type"], one["task"]["index"]) for one in told)  # type: ignore[index]


def test_every_worker_gets_the_whole_cluster(tmp_path: Path) -> None:
    code, told, _ = started(tmp_path, TELLS, "--workers", "3")
    assert code == 0 and tasks(told) == [("worker", 0), ("worker", 1), ("worker", 2)]
    (cluster,) = {json.dumps(one["cluster"]) for one in told}
    addresses = json.loads(cluster)["worker"]
    assert len(set(addresses)) == 3 and all(address.startswith("127.0.0.1:") for address in addresses)


@pytest.mark.parametrize(
    ("script", "options", "code"), [(SERVES, ["--parameter-servers", "1"], 0), (FAILS, ["--workers", "2"], 1)]
)
def test_servers_and_waiting_workers_are_terminated(tmp_path: Path, script: str, options: list[str], code: int) -> None:
    found, _, seconds = started(tmp_path, script, *options)
    assert found == code and seconds < 40, "they would have slept a minute"
