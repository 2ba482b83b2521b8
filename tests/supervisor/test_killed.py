"""`kill -9` of the command, of its worker or of both, whenever it strikes: in the end nothing is changed or left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.files import writes
from tests.starting import search_path
from tests.supervisor import killed_command

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = 20
STARTING = 3  # of them; the others come once the worker records, from there to the report of the command
APART_SECONDS = 0.07
AT_ONCE = 4


def workers_of(command: psutil.Process) -> list[psutil.Process]:
    return [child for child in command.children(recursive=True) if "work" in words_of(child)]


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing where it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def kill(command: psutil.Process, who: str) -> None:
    doomed = workers_of(command) if who != "command" else []
    for process in ([command] if who != "worker" else []) + doomed:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def is_running_for(folder: Path) -> bool:
    for process in psutil.process_iter():
        try:
            told = [*process.cmdline(), *process.environ().values()]
        except (psutil.Error, OSError):
            continue
        if process.status() != psutil.STATUS_ZOMBIE and any(str(folder) in word for word in told):
            return True
    return False


def try_at(base: Path, moment: int) -> tuple[str, list[object]]:
    """Who was killed at this moment, and what is not as it should be."""
    who, seconds = ("command", "worker", "both")[moment % 3], APART_SECONDS * (moment % (MOMENTS - STARTING) + 1)
    folder, temporary = base / str(moment), base / f"{moment}-temporary"
    temporary.mkdir()
    kinds = writes.prepared(folder / "own", names=killed_command.KINDS)
    before = writes.trees(folder / "own", kinds)
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(folder / "state"),
        "TMPDIR": str(temporary),
        "PYTHONPATH": search_path(ROOT),
    }
    process = subprocess.Popen(
        [sys.executable, killed_command.__file__, "analyze", str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if moment < MOMENTS - STARTING:
            wait_until(lambda: process.poll() is not None or any((folder / "state").rglob("*.jsonl")))
        time.sleep(seconds)
        if process.poll() is None:
            kill(psutil.Process(process.pid), who)
    finally:
        if who != "worker":
            process.send_signal(signal.SIGKILL)
        process.wait(60)
    # Any command will do. One that comes while the last worker still dies has nothing to do yet, and the next one has.
    again = [sys.executable, "-m", "pipetune", "rules", "cache"]

    def left() -> list[object]:
        found: list[object] = [*writes.lost(folder / "own", before).items()]
        found += ["a process"] if is_running_for(folder) else []
        found += [path.name for path in temporary.glob("pipetune*")]
        return found + [str(path) for path in (folder / "state").rglob("*.jsonl")]

    def is_over() -> bool:
        subprocess.run(again, env=environment, cwd=base, capture_output=True, check=True)
        return not left()

    wait_until(is_over)
    wrong = left()
    return f"{moment}: {who} after {seconds:.2f} s", wrong


def test_whoever_is_killed_and_whenever_nothing_is_changed_and_nothing_left(tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(pool.map(lambda moment: try_at(tmp_path, moment), range(MOMENTS)))
    assert len(found) == MOMENTS and {who: wrong for who, wrong in found.items() if wrong} == {}
