"""The chief of a cluster that others have started: takes in what the other tasks' sessions say."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core import sessionfile
from pipetune.core.cluster import Place
from pipetune.core.session import Session
from pipetune.core.skew import WorkerInput
from pipetune.supervisor.gathering import gathered, input_of, others_of
from pipetune.supervisor.interrupts import Interrupts
from tests.core.sessions import session

CHIEF = Place("worker", 0, 2)


def measured(*intervals: float, first: float = 0.1, status: str = "done") -> Session:
    made = session()
    profile = made.datasets[0].profile
    assert profile is not None
    profile = replace(profile, intervals=intervals, first_element_seconds=first)
    return replace(made, status=status, datasets=(replace(made.datasets[0], profile=profile),))


def skew(found: Session) -> list[WorkerInput]:
    kept = found.datasets[0].skew
    return [] if kept is None else list(kept.inputs)


def gather(folder: Path, *, wait_seconds: float = 0.0, place: Place = CHIEF) -> Session:
    with Interrupts() as interrupts:
        return gathered(measured(*[0.01] * 6), folder, place, interrupts, wait_seconds=wait_seconds)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (Place("worker", 0, 3), ["worker-1", "worker-2"]),
        (Place("chief", 0, 3, has_chief=True), ["worker-0", "worker-1"]),
        (Place("chief", 0, 1, has_chief=True), []),
    ],
)
def test_the_folders_of_the_others(place: Place, names: list[str]) -> None:
    assert others_of(place) == names


def test_rounds_are_parts_of_a_task_s_own_window() -> None:
    made = measured(0.01, 0.03, 0.02, 0.02, 0.04, 0.04, 9.0, first=0.25)
    assert input_of(3, made) == WorkerInput(3, (pytest.approx(0.02), pytest.approx(0.02), pytest.approx(0.04)), 0.25)
    few = measured(0.01, 0.02)
    profile = few.datasets[0].profile
    assert profile is not None and profile.consumer.input_seconds
    assert input_of(1, few).step_seconds == (profile.consumer.input_seconds,), "of the whole window"


def test_a_task_that_measured_nothing_says_why() -> None:
    failed = Session("0", {}, status="failed", status_detail="The script raised: ValueError")
    assert input_of(1, failed) == WorkerInput(1, why="The script raised: ValueError")


def test_alone_nothing_is_gathered(tmp_path: Path) -> None:
    assert gather(tmp_path, place=Place("chief", 0, 1, has_chief=True)) == measured(*[0.01] * 6)


def test_tasks_that_write_elsewhere_are_not_waited_for(tmp_path: Path) -> None:
    found = gather(tmp_path, wait_seconds=1000)
    assert skew(found) == []
    assert "left no session below this one's folder" in found.notes[-1]


@pytest.mark.mission("E2.skew")
def test_what_the_others_measured_stands_beside_the_chief_s(tmp_path: Path) -> None:
    sessionfile.save(measured(*[0.03] * 6, first=0.4), tmp_path / "worker-1" / "session.json")
    chief, other = skew(gather(tmp_path, wait_seconds=1000))
    assert chief.step_seconds == (pytest.approx(0.01),) * 3
    assert (other.worker, other.step_seconds, other.first_seconds) == (1, (pytest.approx(0.03),) * 3, 0.4)
    kept = gather(tmp_path).datasets[0].skew
    assert kept is not None and kept.certain and kept.ratio == pytest.approx(1.5)


def test_one_that_is_not_done_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "worker-1" / "session.json"
    sessionfile.save(measured(*[0.03] * 6, status="running"), path)
    assert skew(gather(tmp_path)) == [], "not for ever"
    timer = threading.Timer(0.2, sessionfile.save, (measured(*[0.03] * 6), path))
    timer.start()
    try:
        assert len(skew(gather(tmp_path, wait_seconds=1000))) == 2
    finally:
        timer.join()


def test_one_of_three_may_be_missing(tmp_path: Path) -> None:
    sessionfile.save(measured(*[0.03] * 6), tmp_path / "worker-2" / "session.json")
    inputs = skew(gather(tmp_path, place=Place("worker", 0, 3)))
    assert [bool(one.step_seconds) for one in inputs] == [True, False, True]
    assert inputs[1].why == "it left no session in the folder worker-1 below this one"


def test_ctrl_c_ends_the_waiting(tmp_path: Path) -> None:
    (tmp_path / "worker-1").mkdir()
    with Interrupts() as interrupts:
        interrupts.count = 1
        found = gathered(measured(0.01), tmp_path, CHIEF, interrupts, wait_seconds=1000)
    assert skew(found) == []
