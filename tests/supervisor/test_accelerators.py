"""Assignment of one machine's GPUs to several workers."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from pipetune.supervisor.local_cluster import free_gpu_mib, gpu_environment, visible_gpus


@pytest.mark.parametrize(("environment", "devices", "found"), [
    ({}, ("nvidiactl", "nvidia-uvm", "null"), ()),
    ({"CUDA_VISIBLE_DEVICES": ""}, ("nvidia0",), ()),
    ({"CUDA_VISIBLE_DEVICES": "-1"}, ("nvidia0",), ()),
    ({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, ("nvidia0", "nvidia1"), ("1",)),
    ({}, ("nvidia10", "nvidia2", "nvidiactl", "nvidia0"), ("0", "2", "10")),
    ({"CUDA_VISIBLE_DEVICES": "GPU-8a, 3"}, (), ("GPU-8a", "3")),
])  # fmt: skip
def test_visible_gpus(environment: dict[str, str], devices: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert visible_gpus(environment, devices=devices) == found


@pytest.mark.parametrize(("visible", "answer", "free"), [
    (None, "900, 0, GPU-8a1\n80000, 1, GPU-3f2\n", 900.0),
    ("1", "900, 0, GPU-8a1\n80000, 1, GPU-3f2\n70000, 11, GPU-1\n", 80000.0),
    ("GPU-3f,GPU-1", "900, 0, GPU-8a1\n80000, 1, GPU-3f2\n70000, 11, GPU-1\n", 70000.0),
    ("MIG-3f2", "900, 0, GPU-8a1\n80000, 1, GPU-3f2\n", 900.0),
    ("0", "[N/A], 0, GPU-8a1\n", None),
    ("0", "", None),
])  # fmt: skip
def test_free_memory_is_that_of_the_fullest_visible_gpu(monkeypatch, visible, answer, free) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=answer))
    assert free_gpu_mib() == free


@pytest.mark.parametrize(("found", "workers", "shares"), [
    ((), 2, [None, None]),
    (("0",), 2, ["-1", "-1"]),
    (("0", "1", "2"), 2, ["0", "1"]),
    (("0", "1", "2", "3"), 2, ["0,1", "2,3"]),
])  # fmt: skip
def test_gpus_are_divided_evenly_among_workers(found: tuple[str, ...], workers: int, shares: list[str | None]) -> None:
    dealt = [gpu_environment(found, workers=workers, index=index) for index in range(workers)]
    assert [one.get("CUDA_VISIBLE_DEVICES") for one in dealt] == shares
