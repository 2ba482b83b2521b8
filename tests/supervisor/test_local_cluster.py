"""`analyze` with several fake workers, and with parameter servers: their start, their messages and their end."""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.results import Outcome
from pipetune.supervisor.analysis import analyze
from pipetune.supervisor.local_cluster import log_tail
from pipetune.supervisor.request import AnalysisResult
from tests.supervisor.test_analysis import Recorder, request

pytestmark = pytest.mark.slow

NO_MEMORY, STOPPED = "possibly because the system ran out of memory.", "The other workers were stopped as well."
FAKE = (sys.executable, str(Path(__file__).with_name("fake_cluster.py")))


def run(tmp_path: Path, scenario: str, *, workers: int = 2, servers: int = 0) -> tuple[AnalysisResult, Recorder, Path]:
    screen = Recorder()
    alone = request(tmp_path / "out", scenario, command=FAKE)
    settings = replace(alone.settings, workers=workers, parameter_servers=servers)
    results = replace(alone.results, workers=workers, parameter_servers=servers)
    analysis = analyze(replace(alone, settings=settings, results=results), screen=screen)
    out = analysis.results.folder
    for known in (one for path in out.glob("told-*") for one in told(out, path.name.removeprefix("told-"))):
        assert not psutil.pid_exists(known["pid"]), known
    return analysis, screen, out


def told(out: Path, task: int | str) -> list[dict[str, Any]]:
    path = out / f"told-{task}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.one_core
@pytest.mark.mission("C1.cluster")
@pytest.mark.parametrize(
    ("scenario", "workers", "servers", "tasks"),
    [("in_step", 3, 0, "worker-0 worker-1 worker-2"), ("serves", 2, 1, "chief-0 worker-0 worker-1 ps-0")],
)
def test_each_task_has_its_own_log_and_process_group_and_all_are_started_to_measure_and_to_verify(
    tmp_path: Path, scenario: str, workers: int, servers: int, tasks: str
) -> None:
    """Of a job with parameter servers the chief is analyzed, and all other tasks serve."""
    analysis, screen, out = run(tmp_path, scenario, workers=workers, servers=servers)
    assert analysis.exit_code == 0 and (servers or screen.warned == [])
    assert analysis.session.patch is not None and analysis.session.patch.verified, "in a cluster of its own"
    clusters = []
    for task in tasks.split():
        kind, index = task.split("-")
        measured, *verified = told(out, task if servers else index)
        modes = ["serve"] * 6 if servers and kind != "chief" else ["analyze", *["verify"] * 5]
        assert [one["mode"] for one in (measured, *verified)] == modes, "two jobs at once do not fit; the last informs"
        assert measured["config"]["task"] == {"type": kind, "index": int(index)}
        assert measured["group"] == measured["pid"]
        clusters.append(measured["config"]["cluster"])
        log = "chief.log" if kind == "chief" else f"{task}.log"
        assert (out / log).read_text().count(f"{kind} {index} prints this") == 6
    assert all(cluster == clusters[0] for cluster in clusters)
    kinds = Counter(task.split("-")[0] for task in tasks.split())
    assert {kind: len(addresses) for kind, addresses in clusters[0].items()} == kinds
    assert len({address for addresses in clusters[0].values() for address in addresses}) == kinds.total()
    assert not (out / "script.log").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize(("scenario", "code", "detail"), [
    ("one_raises", 3, "On worker 1: The script raised an exception: ValueError: of the user"),
    ("one_raises_in_a_step", 3, "On worker 1: The script raised an exception: ValueError: of the user"),
    ("one_fails", 5, "On worker 1: No GPU."),
    ("chief_dies", 3, "The script exited with status 9."),
])  # fmt: skip
def test_failure_is_reported_with_its_worker(tmp_path: Path, scenario: str, code: int, detail: str) -> None:
    analysis, _, _ = run(tmp_path, scenario)
    assert (analysis.exit_code, analysis.session.status_detail) == (code, detail)
    assert bool(analysis.traceback) is ("one_raises" in scenario)
    assert (analysis.failure is not None and analysis.failure.hint == "Ask for another device.") is (code == 5)


def test_worker_killed_in_trial_fails_that_trial_only(tmp_path: Path) -> None:
    analysis, screen, out = run(tmp_path, "killed_in_a_trial_of_the_chief")
    assert analysis.exit_code == 0
    assert "While trying prefetch, the process lost worker 1, which was killed (SIGKILL)" in screen.warned[0]
    assert [one["attempt"] for one in told(out, 1)[:2]] == [1, 2]
    first, second = (one["config"]["cluster"] for one in told(out, 0)[:2])
    assert first != second, "of the same ports one may not be free yet"


@pytest.mark.parametrize(("scenario", "detail"), [
    ("out_of_step", "worker 1 took 4 steps, but worker 0 took 5"),
    ("one_says_out_of_step", "Worker 1 is no longer in lockstep with the others: its input raised."),
])  # fmt: skip
def test_workers_out_of_lockstep_are_ended(tmp_path: Path, scenario: str, detail: str) -> None:
    analysis, _, _ = run(tmp_path, scenario)
    assert (analysis.exit_code, analysis.session.status) == (1, "failed")
    assert detail in analysis.session.status_detail


def test_step_failure_is_attributed_to_killed_peer(tmp_path: Path) -> None:
    analysis, _, _ = run(tmp_path, "heard_of_before_it_is_gone")
    assert (analysis.exit_code, analysis.traceback) == (3, "")
    assert analysis.session.status_detail.startswith("Worker 1 was killed (SIGKILL)")


def test_children_of_peers_are_ended(tmp_path: Path) -> None:
    _, screen, out = run(tmp_path, "others_leave_a_child")
    assert "the child is there" in screen.said
    assert told(out, 1), "its id was looked at"


def test_log_tail_has_last_lines_without_tensorflow_messages(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_tail(log) == ""
    log.write_bytes(b"x" * 20_000 + b"\n" + b"".join(b"%d\n\n" % number for number in range(9)) + b"\xff end")
    assert log_tail(log) == "4\n5\n6\n7\n8\n\ufffd end"
    passing = (
        "I0000 00:00:1795234039.263753    7422 port.cc:153] oneDNN custom operations are on.",
        "2026-01-01 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.",
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "E0000 00:00:1795669364.280501   32738 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error",
        "2026-01-01 10:00:00.123456: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:8310] no factory",
    )
    log.write_text("\n".join(["it raised", *passing, "E0000 00:00:1795.2 9 a.cc:1] broken", *passing]))
    assert log_tail(log) == "it raised\nE0000 00:00:1795.2 9 a.cc:1] broken"


def test_no_free_ports_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_server", Mock(side_effect=OSError(98, "Address already in use")))
    with pytest.raises(PipetuneError, match=r"need 2 free ports on 127\.0\.0\.1.*already in use"):
        run(tmp_path, "in_step")


# -- parameter servers, with a chief and workers


@pytest.mark.parametrize(("scenario", "detail"), [
    ("server_is_killed", f"Parameter server 0 was killed (SIGKILL), {NO_MEMORY} {STOPPED}"),
    ("worker_does_not_serve", "On worker 1: The script came to its end."),
])  # fmt: skip
def test_lost_task_is_named_and_ends_all_tasks(tmp_path: Path, scenario: str, detail: str) -> None:
    analysis, _, _ = run(tmp_path, scenario, servers=1)
    assert (analysis.exit_code, analysis.session.status_detail) == (3, detail)


@pytest.mark.mission("C4.window")
def test_served_worker_killed_in_trial_fails_trial_and_restarts_all_tasks(tmp_path: Path) -> None:
    """The chief would wait for a single killed worker, so that all are restarted."""
    analysis, _, out = run(tmp_path, "worker_is_killed_in_a_trial", servers=1)
    assert analysis.exit_code == 0
    failed = [trial for trial in analysis.session.trials if trial.outcome is Outcome.FAILED]
    assert ["lost worker 1" in trial.why for trial in failed] == [True]
    assert len(told(out, "chief-0")) == 2
