"""What is granted beside what TensorFlow believes, and what to set: on invented machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.cli import doctor
from pipetune.core.machine import CpuLoad, DetectedResources, Machine
from pipetune.report.environment import load_fact, settings, sides
from tests.core.sessions import MACHINE

WHOLE = replace(MACHINE, cores_granted=64.0, cores_affinity=64, affinity=tuple(range(5, 69)))
WHOLE = replace(WHOLE, memory_limit_bytes=64 << 30, memory_available_bytes=60 << 30)
WHOLE = replace(WHOLE, believed=DetectedResources(64.0, 30 << 30, 64, 64, 64))
PINNED = replace(WHOLE, cores_granted=2.0, cores_affinity=2, affinity=(5, 9))
PINNED = replace(PINNED, believed=DetectedResources(2.0, 30 << 30, 2, 2, 2))
QUOTA = replace(WHOLE, cores_granted=2.0, quota_cores=2.0, memory_limit_bytes=8 << 30, memory_available_bytes=7 << 30)


@pytest.mark.parametrize("machine", [WHOLE, PINNED], ids=["its own", "affinity alone, which TensorFlow sees too"])
def test_a_machine_that_tensorflow_knows_needs_nothing_set(machine: Machine) -> None:
    assert [side.label for side in sides(machine) if side.differs] == []
    assert list(settings(machine)) == [] and list(doctor.machine_warnings(machine)) == []


def test_two_cores_of_sixty_four() -> None:
    found = {side.label: side for side in sides(QUOTA)}
    assert found["cores"].granted == "2 of 64 (quota 2)"
    assert found["cores"].believed == "64 (cpu_budget)"
    assert all(side.differs for side in found.values())
    assert [line.label for line in settings(QUOTA)] == [
        "taskset -c 5,6 python train.py",
        "options.autotune.cpu_budget = 2",
        "options.threading.private_threadpool_size = 2",
        "TF_NUM_INTRAOP_THREADS=2 TF_NUM_INTEROP_THREADS=2 python train.py",
        f"options.autotune.ram_budget = {4 << 30}",
        "pipetune analyze train.py",
    ]


@pytest.mark.parametrize(("quota", "number"), [(0.5, 1), (1.5, 2), (2.4, 2)])
def test_a_fraction_of_a_core_is_rounded_as_the_trials_round_it(quota: float, number: int) -> None:
    lines = [line.label for line in settings(replace(QUOTA, cores_granted=quota, quota_cores=quota))]
    assert f"options.autotune.cpu_budget = {number}" in lines


@pytest.mark.parametrize("buffers", [30 << 30, 6 << 30])  # more than all, and than half of it
def test_memory_alone_differs(buffers: int) -> None:
    tight = replace(WHOLE, memory_limit_bytes=8 << 30, believed=DetectedResources(64.0, buffers, 64, 64, 64))
    assert [side.label for side in sides(tight) if side.differs] == ["memory", "for AUTOTUNE's buffers"]
    assert [line.label for line in settings(tight)] == [f"options.autotune.ram_budget = {4 << 30}"]


def test_a_machine_of_an_old_session_was_not_asked() -> None:
    old = replace(QUOTA, believed=None, affinity=())
    assert [side.believed for side in sides(old)][:1] == ["64 (affinity)"]
    assert "not asked" in [side.believed for side in sides(old)]
    assert next(settings(old)).label == "taskset -c 0-1 python train.py"


@pytest.mark.parametrize("machine", [WHOLE, QUOTA, MACHINE, replace(QUOTA, devices=("/physical_device:CPU:0",) * 6)])
def test_the_doctor_answers_in_eighty_columns(machine: object) -> None:
    lines = "\n".join(doctor._lines(machine)).split("\n")  # type: ignore[arg-type]
    assert max(map(len, lines)) <= 80
    assert any("available" in line and "detected by TensorFlow" in line for line in lines)


def test_who_used_the_cores() -> None:
    assert load_fact(None) is None
    found = load_fact(CpuLoad(12.0, 30, 2, 0.7, 0.23, 0.01, 0.9, 100, 25, 1.25))
    assert found is not None and found.text == "other processes took 23 %"
    for part in ("12.0 s", "2 cores", "we took 70 %", "90 %", "hypervisor took 1.0 %", "25 % of its periods", "1.25 s"):
        assert part in found.note
    quiet = load_fact(CpuLoad(12.0, 30, 2, 0.7, 0.0))
    assert quiet is not None and "quota" not in quiet.note and "hypervisor" not in quiet.note
