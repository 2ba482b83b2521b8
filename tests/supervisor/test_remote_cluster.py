"""Tasks of an existing cluster: the command of the first task controls the commands of the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.core.cluster import TF_CONFIG, tf_config
from tests.supervisor.test_local_cluster import NO_MEMORY, STOPPED

pytestmark = pytest.mark.slow

COMMAND = Path(__file__).with_name("remote_task.py")
ADDRESSES = ["127.0.0.1:1", "127.0.0.1:2"]  # nothing listens there: the workers are fakes
TASKS = [{TF_CONFIG: tf_config({"worker": ADDRESSES}, "worker", index)} for index in (0, 1)]
RANKS = [{"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2"} for rank in (0, 1)]
BY_GLOO = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1"}  # nothing listens there


def start(folder: Path, scenario: str, tasks: Sequence[dict[str, str]] = TASKS) -> list[subprocess.Popen[bytes]]:
    command = [sys.executable, str(COMMAND), str(folder), scenario]
    return [subprocess.Popen(command, env={**os.environ, **one}) for one in tasks]


def run(folder: Path, scenario: str, tasks: Sequence[dict[str, str]] = TASKS) -> tuple[list[int], list[dict[str, Any]]]:
    codes = [process.wait(60) for process in start(folder, scenario, tasks)]
    are_gone(folder, 0, 1)
    return codes, [found_by(folder, index) for index in (0, 1)]


def found_by(folder: Path, index: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"found-{index}.json").read_text())
    return found


def are_gone(folder: Path, *tasks: int) -> None:
    for known in (one for index in tasks for one in told(folder, index)):
        assert not psutil.pid_exists(known["pid"]), known


def await_both(folder: Path) -> None:
    end = time.monotonic() + 60
    while not (told(folder, 0) and told(folder, 1)):
        assert time.monotonic() < end
        time.sleep(0.05)


def told(folder: Path, index: int) -> list[dict[str, Any]]:
    return lines(folder / "out" / (f"worker-{index}" if index else ""), f"told-{index}")


def lines(results: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for path in results.glob(f"runs/*/{name}") for line in path.read_text().splitlines()]


@pytest.mark.one_core
def test_both_tasks_measure_and_verify_patch(tmp_path: Path) -> None:
    codes, (first, other) = run(tmp_path, "in_step")
    assert codes == [0, 0]
    assert first["verified"] is True and first["warned"] == []
    assert other["detail"] == f"Done, controlled by the first task; the results are in {tmp_path / 'out'}."
    for index in (0, 1):
        measured, *verified = told(tmp_path, index)
        assert [one["mode"] for one in (measured, *verified)] == ["analyze", *["verify"] * 5], "one cluster is there"
        assert measured["config"] == json.loads(tf_config({"worker": ADDRESSES}, "worker", index)), "as it was found"
    assert not (tmp_path / "out" / ".meeting.json").exists()
    assert sorted(path.name for path in (tmp_path / "out" / "worker-1").iterdir()) == ["latest", "runs", "script.log"]
    assert (tmp_path / "out" / "worker-1" / "script.log").read_text().count("worker 1 prints this") == 6


def test_failure_is_reported_by_first_task(tmp_path: Path) -> None:
    codes, (first, other) = run(tmp_path, "last_is_killed")
    detail = f"Worker 1 was killed (SIGKILL), {NO_MEMORY} {STOPPED}"
    assert codes == [3, 3] and first["detail"] == other["detail"] == detail
    assert first["last_lines"] == "worker 1 prints this\nthe script prints this\nout of memory"
    assert f"Partial results are in {tmp_path / 'out'};" in other["hint"]


@pytest.mark.exhaustive
def test_horovod_ranks_get_new_rendezvous_at_each_start(tmp_path: Path) -> None:
    codes, (first, _) = run(tmp_path, "ranks", [{**rank, **BY_GLOO} for rank in RANKS])
    assert codes == [0, 0], first
    assert "lost worker 1, which was killed (SIGKILL)" in first["warned"][0]
    assert first["verified"] is True, "the patched script was run too"
    starts = [list(dict.fromkeys(one["rendezvous"] for one in told(tmp_path, index))) for index in (0, 1)]
    assert starts[0] == starts[1], "both were told the same"
    assert len(starts[0]) == 2 + 4 + 1 and "1" not in starts[0], "measured twice, verified, informed"


@pytest.mark.exhaustive
def test_ranks_that_cannot_be_restarted_are_analyzed_alone_with_warning(tmp_path: Path) -> None:
    _, found = run(tmp_path, "hears_of_no_other", RANKS)
    for index, one in enumerate(found):
        assert not one["verified"], "of one rank alone the patched script would wait for the other"
        (why,) = one["warned"]
        assert why.startswith(f"Rank {index} of 2 measures only its own input") and "horovodrun with Gloo" in why
        assert why in one["notes"], "in the report too"


@pytest.mark.exhaustive
def test_command_killed_in_trial_ends_run_without_restart(tmp_path: Path) -> None:
    commands = start(tmp_path, "trial_without_end")
    await_both(tmp_path)
    while not (tmp_path / "trying").exists():
        time.sleep(0.02)
    commands[1].send_signal(signal.SIGKILL)
    assert commands[0].wait(60) not in (0, -signal.SIGKILL)
    first = found_by(tmp_path, 0)
    assert "Worker 1 is no longer reachable" in first["detail"]
    assert first["warned"] == [], "nothing is started once more"
    assert len(told(tmp_path, 0)) == 1
    commands[1].wait(60)
    os.kill(told(tmp_path, 1)[0]["pid"], signal.SIGKILL)


@pytest.mark.parametrize("index", [pytest.param(0, marks=pytest.mark.exhaustive), 1])
def test_ctrl_c_in_one_task_ends_both_tasks(tmp_path: Path, index: int) -> None:
    commands = start(tmp_path, "hangs")
    await_both(tmp_path)
    commands[index].send_signal(signal.SIGINT)
    codes = [process.wait(60) for process in commands]
    found = [found_by(tmp_path, number) for number in (0, 1)]
    assert codes[index] == 130 and "Interrupted" in found[index]["detail"]
    assert codes[1] == 130, "the first task's end is that of all"
    assert index == 0 or (codes[0] != 0 and "Worker 1 is no longer reachable" in found[0]["detail"])
    are_gone(tmp_path, 0, 1)


@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_killed_command_ends_other_command(tmp_path: Path, index: int) -> None:
    commands = start(tmp_path, "hangs")
    await_both(tmp_path)
    commands[index].send_signal(signal.SIGKILL)
    codes = [process.wait(60) for process in commands]
    assert codes[index] == -signal.SIGKILL and codes[1 - index] not in (0, -signal.SIGKILL)
    gone = ("The command of the first task has exited", "Worker 1 is no longer reachable")
    assert gone[index] in found_by(tmp_path, 1 - index)["detail"]
    are_gone(tmp_path, 1 - index)
    for known in told(tmp_path, index):  # its command was killed and cannot end it
        os.kill(known["pid"], signal.SIGKILL)
