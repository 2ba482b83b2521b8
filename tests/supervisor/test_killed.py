"""`kill -9` of the command, its worker or both at any time: no file is changed and nothing is left over."""

from __future__ import annotations

import contextlib
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
STARTING = 3  # so many at the start; the others from the worker's first record to the command's report
APART_SECONDS = 0.07
AT_ONCE = 4


def words_of(process: psutil.Process) -> list[str]:
    """The command line of a process; empty if it has exited."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def kill(command: psutil.Process, who: str) -> None:
    children = command.children(recursive=True) if who != "command" else []
    doomed = [child for child in children if "work" in words_of(child)]
    for process in ([command] if who != "worker" else []) + doomed:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.05)


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
    """Kills at this moment; returns what was killed and what is wrong afterwards."""
    who, seconds = ("command", "worker", "both")[moment % 3], APART_SECONDS * (moment % (MOMENTS - STARTING) + 1)
    folder, temporary = base / str(moment), base / f"{moment}-temporary"
    temporary.mkdir()
    kinds = writes.prepared(folder / "own", names=killed_command.KINDS)
    before = writes.trees(folder / "own", kinds)
    places = {"XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(temporary), "PYTHONPATH": search_path(ROOT)}
    environment, quiet = {**os.environ, **places}, subprocess.DEVNULL
    command = [sys.executable, killed_command.__file__, "analyze", str(folder)]
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
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
    # Any command restores. One that runs before the last worker has exited does nothing; the next one restores.
    again = [sys.executable, "-m", "pipetune", "rules", "cache"]

    def left() -> list[object]:
        found: list[object] = [*writes.lost(folder / "own", before).items()]
        found += ["a separate process"] if is_running_for(folder) else []
        found += [path.name for path in temporary.glob("pipetune*")]
        return found + [str(path) for path in (folder / "state").rglob("*.jsonl")]

    def is_over() -> bool:
        subprocess.run(again, env=environment, cwd=base, capture_output=True, check=True)
        return not left()

    wait_until(is_over)
    return f"{moment}: {who} after {seconds:.2f} s", left()


@pytest.mark.parametrize(
    "moments", [range(0, MOMENTS, 7), pytest.param(range(MOMENTS), marks=pytest.mark.exhaustive)], ids=["few", "all"]
)
def test_kill_at_any_time_leaves_no_changes_and_no_leftovers(tmp_path: Path, moments: range) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(pool.map(lambda moment: try_at(tmp_path, moment), moments))
    assert len(found) == len(moments) and {who: wrong for who, wrong in found.items() if wrong} == {}
