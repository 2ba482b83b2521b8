"""Two tasks of a cluster that exists: the first one's command decides, the other's does what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.core.cluster import VARIABLE, configuration

COMMAND = Path(__file__).with_name("far_task.py")
ADDRESSES = ["127.0.0.1:1", "127.0.0.1:2"]  # nothing listens there: the workers are no real ones


def start(folder: Path, scenario: str) -> list[subprocess.Popen[bytes]]:
    return [
        subprocess.Popen(
            [sys.executable, str(COMMAND), str(folder), str(index), scenario],
            env={**os.environ, VARIABLE: configuration(ADDRESSES, index)},
        )
        for index in (0, 1)
    ]


def run(folder: Path, scenario: str) -> tuple[list[int], list[dict[str, Any]]]:
    codes = [process.wait(60) for process in start(folder, scenario)]
    found = [json.loads((folder / f"found-{index}.json").read_text()) for index in (0, 1)]
    for index in (0, 1):
        for known in told(folder, index):
            assert not psutil.pid_exists(known["pid"]), known
    return codes, found


def told(folder: Path, index: int) -> list[dict[str, Any]]:
    path = folder / "out" / (f"worker-{index}" if index else "") / f"told-{index}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.one_core
def test_both_measure_and_both_run_the_patch(tmp_path: Path) -> None:
    codes, (first, other) = run(tmp_path, "in_step")
    assert codes == [0, 0]
    assert first["verified"] is True and first["warned"] == []
    assert other["detail"] == f"Followed the first task; the results are in {tmp_path / 'out'}."
    for index in (0, 1):
        measured, verified = told(tmp_path, index)
        assert (measured["mode"], verified["mode"]) == ("analyze", "verify")
        assert measured["config"] == json.loads(configuration(ADDRESSES, index)), "as it was found"
    assert not (tmp_path / "out" / ".meeting.json").exists()
    assert sorted(path.name for path in (tmp_path / "out" / "worker-1").iterdir()) == ["script.log", "told-1"]
    assert (tmp_path / "out" / "worker-1" / "script.log").read_text().count("worker 1 prints this") == 2


@pytest.mark.parametrize(
    ("scenario", "code", "detail", "last_lines"),
    [
        (
            "last_is_killed",
            3,
            "Worker 1 was killed (SIGKILL), as a system out of memory does. The other workers were ended with it.",
            "worker 1 prints this\nthe script prints this\nno more memory",
        ),
        ("one_raises_in_a_step", 3, "On worker 1: The script raised: ValueError: of the user", None),
        ("one_fails", 5, "On worker 1: There is no GPU here.", None),
        ("chief_dies", 3, "The script ended its process with exit status 9.", ""),
    ],
)
def test_what_went_wrong_is_said_where_all_is_decided(
    tmp_path: Path, scenario: str, code: int, detail: str, last_lines: str | None
) -> None:
    codes, (first, other) = run(tmp_path, scenario)
    assert codes == [code, code] and first["detail"] == detail
    assert last_lines is None or first["last_lines"] == last_lines
    assert "The first task has ended without success" in other["detail"]


@pytest.mark.parametrize("index", [0, 1])
def test_a_command_that_is_killed_ends_the_other(tmp_path: Path, index: int) -> None:
    commands = start(tmp_path, "hangs")
    end = time.monotonic() + 60
    while not (told(tmp_path, 0) and told(tmp_path, 1)):
        assert time.monotonic() < end
        time.sleep(0.05)
    commands[index].send_signal(signal.SIGKILL)
    codes = [process.wait(60) for process in commands]
    other = json.loads((tmp_path / f"found-{1 - index}.json").read_text())
    assert codes[index] == -signal.SIGKILL and codes[1 - index] not in (0, -signal.SIGKILL)
    if index == 1:
        assert "Worker 1 can be heard no more" in other["detail"]
    for known in told(tmp_path, 1 - index):
        assert not psutil.pid_exists(known["pid"])
    for known in told(tmp_path, index):  # nobody is left to end it
        os.kill(known["pid"], signal.SIGKILL)
