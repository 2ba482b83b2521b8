"""`analyze` with parameter servers: start and end of a fake chief, workers and servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.core.results import Outcome
from pipetune.core.settings import Settings
from pipetune.supervisor.analysis import AnalysisRequest, AnalysisResult, analyze
from pipetune.supervisor.results_folder import Results
from pipetune.supervisor.target import Target
from tests.supervisor.test_analysis import SOON, Recorder

pytestmark = pytest.mark.slow

FAKE = (sys.executable, str(Path(__file__).with_name("fake_servers.py")))
TASKS = ("chief-0", "worker-0", "worker-1", "ps-0")


def run(tmp_path: Path, scenario: str) -> tuple[AnalysisResult, Path]:
    request = AnalysisRequest(
        Target(script="/somewhere/train.py", arguments=(scenario,), directory=str(tmp_path)),
        Settings(workers=2, parameter_servers=1),
        Results(tmp_path / "out", workers=2, parameter_servers=1),
        limits=SOON,
        worker_command=FAKE,
    )
    analysis = analyze(request, screen=Recorder())
    out = analysis.results.folder
    for known in (one for task in TASKS for one in told(out, task)):
        assert not psutil.pid_exists(known["pid"]), known
    return analysis, out


def told(out: Path, task: str) -> list[dict[str, Any]]:
    path = out / f"told-{task}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.one_core
@pytest.mark.mission("C1.cluster")
def test_chief_is_analyzed_and_all_other_tasks_serve(tmp_path: Path) -> None:
    analysis, out = run(tmp_path, "serves")
    assert analysis.exit_code == 0
    assert analysis.session.patch is not None and analysis.session.patch.verified, "in a cluster of its own"
    clusters = []
    for task in TASKS:
        measured, *verified = told(out, task)
        kind, index = task.split("-")
        modes = ("analyze", "verify") if kind == "chief" else ("serve", "serve")
        assert measured["mode"] == modes[0] and {one["mode"] for one in verified} == {modes[1]}
        assert len(verified) == 4 + 1, "two jobs at a time do not fit; the last is for what only informs"
        assert measured["config"]["task"] == {"type": kind, "index": int(index)}
        assert measured["group"] == measured["pid"]
        clusters.append(measured["config"]["cluster"])
        log = "chief.log" if kind == "chief" else f"{task}.log"
        assert (out / log).read_text().count(f"{kind} {index} prints this") == 6
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {kind: len(addresses) for kind, addresses in clusters[0].items()} == {"chief": 1, "worker": 2, "ps": 1}
    assert len({address for addresses in clusters[0].values() for address in addresses}) == 4
    assert not (out / "script.log").exists()


@pytest.mark.parametrize(
    ("scenario", "code", "detail"),
    [
        (
            "server_is_killed",
            3,
            "Parameter server 0 was killed (SIGKILL), possibly because the system ran out of memory. The other "
            "workers were stopped as well.",
        ),
        ("worker_does_not_serve", 3, "On worker 1: The script came to its end."),
    ],
)
def test_lost_task_is_named_and_ends_all_tasks(tmp_path: Path, scenario: str, code: int, detail: str) -> None:
    analysis, _ = run(tmp_path, scenario)
    assert (analysis.exit_code, analysis.session.status_detail) == (code, detail)


@pytest.mark.mission("C4.window")
def test_worker_killed_in_trial_fails_trial_and_restarts_all_tasks(tmp_path: Path) -> None:
    """The chief would wait for a single killed worker, so that all are restarted."""
    analysis, out = run(tmp_path, "worker_is_killed_in_a_trial")
    assert analysis.exit_code == 0
    failed = [trial for trial in analysis.session.trials if trial.outcome is Outcome.FAILED]
    assert ["lost worker 1" in trial.why for trial in failed] == [True]
    assert len(told(out, "chief-0")) == 2
