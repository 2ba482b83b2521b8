"""Computed deliveries compared with those of TensorFlow: on logical devices, and in real worker processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.cluster import free_addresses
from tests.distributed.cases import CLUSTERS, MIRRORED, Case, elements
from tests.distributed.forks import ended
from tests.starting import search_path

LIMIT_SECONDS = 220
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of each process, by "KIND-WORKER". All processes are ended in any case."""
    folder = tmp_path_factory.mktemp("deliveries")
    kinds = ["mirrored", *map(str, CLUSTERS)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": search_path(ROOT)}
    environment.pop("TF_CONFIG", None)
    command = [sys.executable, str(ROOT / "tests/distributed/processes.py"), str(folder), str(LIMIT_SECONDS), *kinds]
    started = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, said = started.communicate(timeout=LIMIT_SECONDS + 20)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    logs = "\n".join(f"{log.parent.name}: {log.read_text()[-1500:]}" for log in sorted(folder.glob("*/log")))
    assert started.returncode == 0, f"{said}\n{logs}"
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_hanging_process_is_killed() -> None:
    hanging = subprocess.Popen(["sleep", "600"])
    assert not ended({hanging.pid}, time.monotonic())
    with pytest.raises(ProcessLookupError):
        os.kill(hanging.pid, 0)
    hanging.wait()


def test_free_addresses_are_distinct() -> None:
    assert len(set(free_addresses(9))) == 9


def test_case_names_are_unique() -> None:
    for cases in (MIRRORED, *CLUSTERS.values()):
        assert len({str(case) for case in cases}) == len(cases)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", MIRRORED, ids=str)
def test_computed_delivery_equals_that_of_logical_devices(case: Case, found: dict[str, Any]) -> None:
    assert found["mirrored-0"][str(case)]["steps"] == elements(case.delivery(), 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [case for cases in CLUSTERS.values() for case in cases], ids=str)
def test_computed_delivery_equals_that_of_worker_processes(case: Case, found: dict[str, Any]) -> None:
    delivery = case.delivery()
    mine = [found[f"{case.workers}-{worker}"][str(case)] for worker in range(case.workers)]
    assert [one["steps"] for one in mine] == [elements(delivery, worker) for worker in range(case.workers)]
    assert [one["messages"] for one in mine] == [delivery.messages] * case.workers
