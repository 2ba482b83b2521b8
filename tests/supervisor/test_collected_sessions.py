"""The chief of an existing cluster collects the input rates from the sessions of the other tasks."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core import session_file
from pipetune.core.cluster import ClusterTask
from pipetune.core.distribution import WorkerInput
from pipetune.core.session import Session
from pipetune.core.settings import Command
from pipetune.supervisor.monitoring import Interrupts
from pipetune.supervisor.session_ending import peer_names, with_input_skew, worker_input
from tests.core.sessions import session

CHIEF = ClusterTask("worker", 0, 2)


def measured(*intervals: float, first: float = 0.1, status: str = "done") -> Session:
    dataset = session().datasets[0]
    profile = replace(dataset.profile, intervals=intervals, first_element_seconds=first)  # type: ignore[type-var]
    return replace(session(), status=status, datasets=(replace(dataset, profile=profile),))


def skew(found: Session) -> list[WorkerInput]:
    kept = found.datasets[0].skew
    return [] if kept is None else list(kept.inputs)


def gather(folder: Path, *, wait_seconds: float = 0.0, place: ClusterTask = CHIEF) -> Session:
    with Interrupts() as interrupts:
        return with_input_skew(measured(*[0.01] * 6), folder, place, interrupts, wait_seconds=wait_seconds)


@pytest.mark.parametrize(("place", "names"), [
    (ClusterTask("worker", 0, 3), ["worker-1", "worker-2"]),
    (ClusterTask("chief", 0, 3, has_chief=True), ["worker-0", "worker-1"]),
    (ClusterTask("chief", 0, 1, has_chief=True), []),
])  # fmt: skip
def test_folder_names_of_peers(place: ClusterTask, names: list[str]) -> None:
    assert peer_names(place) == names


def test_rounds_of_worker_input_are_parts_of_its_window_and_without_any_there_is_a_reason() -> None:
    made = measured(0.01, 0.03, 0.02, 0.02, 0.04, 0.04, 9.0, first=0.25)
    assert worker_input(3, made) == WorkerInput(3, tuple(map(pytest.approx, (0.02, 0.02, 0.04))), 0.25)
    few = measured(0.01, 0.02)
    profile = few.datasets[0].profile
    assert profile is not None and profile.consumer.input_seconds
    assert worker_input(1, few).step_seconds == (profile.consumer.input_seconds,), "of the whole window"
    failed = Session("0", Command(), status="failed", status_detail="The script raised an exception: ValueError")
    assert worker_input(1, failed) == WorkerInput(1, why="The script raised an exception: ValueError")


def test_no_wait_for_tasks_with_results_elsewhere_and_a_single_task_collects_nothing(tmp_path: Path) -> None:
    assert gather(tmp_path, place=ClusterTask("chief", 0, 1, has_chief=True)) == measured(*[0.01] * 6)
    found = gather(tmp_path, wait_seconds=1000)
    assert skew(found) == []
    assert "wrote no session below this task's results folder" in found.notes[-1]


@pytest.mark.mission("E2.skew")
def test_input_of_peers_is_added_to_chiefs_session(tmp_path: Path) -> None:
    session_file.save(measured(*[0.03] * 6, first=0.4), tmp_path / "worker-1" / "session.json")
    chief, other = skew(gather(tmp_path, wait_seconds=1000))
    assert chief.step_seconds == (pytest.approx(0.01),) * 3
    assert (other.worker, other.step_seconds, other.first_seconds) == (1, (pytest.approx(0.03),) * 3, 0.4)
    kept = gather(tmp_path).datasets[0].skew
    assert kept is not None and kept.is_certain and kept.ratio == pytest.approx(1.5)


def test_chief_waits_for_running_peer(tmp_path: Path) -> None:
    path = tmp_path / "worker-1" / "session.json"
    session_file.save(measured(*[0.03] * 6, status="running"), path)
    assert skew(gather(tmp_path)) == [], "not for ever"
    timer = threading.Timer(0.2, session_file.save, (measured(*[0.03] * 6), path))
    timer.start()
    try:
        assert len(skew(gather(tmp_path, wait_seconds=1000))) == 2
    finally:
        timer.join()


def test_missing_session_of_one_peer_is_reported(tmp_path: Path) -> None:
    session_file.save(measured(*[0.03] * 6), tmp_path / "worker-2" / "session.json")
    inputs = skew(gather(tmp_path, place=ClusterTask("worker", 0, 3)))
    assert [bool(one.step_seconds) for one in inputs] == [True, False, True]
    assert inputs[1].why == "it wrote no session to the subfolder worker-1"


def test_ctrl_c_ends_wait_for_peers(tmp_path: Path) -> None:
    (tmp_path / "worker-1").mkdir()
    with Interrupts() as interrupts:
        interrupts.count = 1
        found = with_input_skew(measured(0.01), tmp_path, CHIEF, interrupts, wait_seconds=1000)
    assert skew(found) == []
