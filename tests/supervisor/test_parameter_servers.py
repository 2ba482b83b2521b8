"""`analyze` with parameter servers: start and end of a fake chief, workers and servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.core.results import Outcome
from tests.supervisor.test_local_cluster import run, told

pytestmark = pytest.mark.slow

TASKS = ("chief-0", "worker-0", "worker-1", "ps-0")


@pytest.mark.one_core
@pytest.mark.mission("C1.cluster")
def test_chief_is_analyzed_and_all_other_tasks_serve(tmp_path: Path) -> None:
    analysis, _, out = run(tmp_path, "serves", servers=1)
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
    analysis, _, _ = run(tmp_path, scenario, servers=1)
    assert (analysis.exit_code, analysis.session.status_detail) == (code, detail)


@pytest.mark.mission("C4.window")
def test_worker_killed_in_trial_fails_trial_and_restarts_all_tasks(tmp_path: Path) -> None:
    """The chief would wait for a single killed worker, so that all are restarted."""
    analysis, _, out = run(tmp_path, "worker_is_killed_in_a_trial", servers=1)
    assert analysis.exit_code == 0
    failed = [trial for trial in analysis.session.trials if trial.outcome is Outcome.FAILED]
    assert ["lost worker 1" in trial.why for trial in failed] == [True]
    assert len(told(out, "chief-0")) == 2
