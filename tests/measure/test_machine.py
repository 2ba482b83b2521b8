"""The available resources of the machine, and the target device."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.errors import PipetuneError
from pipetune.measure import machine, memory
from tests.measure.test_cgroups import version_2


def test_machine_has_the_limits_of_its_container(tmp_path: Path) -> None:
    limits = {"cpu.max": "50000 100000", "memory.max": "268435456", "memory.current": "200000000"}
    root = version_2(tmp_path, limits)
    found = machine.read_machine(root=root)
    assert found.cores_granted == 0.5 and found.quota_cores == 0.5
    assert found.cores_host == os.cpu_count()
    assert found.memory_limit_bytes == 268435456
    assert found.memory_available_bytes == 268435456 - 200000000
    assert found.memory_host_bytes == psutil.virtual_memory().total
    assert found.tensorflow == tf.__version__ and found.processor
    assert found.device == "cpu" or any("GPU" in name or "TPU" in name for name in found.devices)


def test_cores_without_a_smaller_quota_are_those_of_the_affinity_mask(tmp_path: Path) -> None:
    found = machine.read_machine(root=tmp_path)
    assert found.cores_granted == found.cores_affinity == len(os.sched_getaffinity(0))
    assert found.quota_cores is None
    assert found.memory_limit_bytes == found.memory_host_bytes
    larger = machine.read_machine(root=version_2(tmp_path, {"cpu.max": "6400000 100000"}))
    assert larger.cores_granted == larger.cores_affinity


@pytest.mark.parametrize(("device", "present", "target"), [
    ("auto", "CPU", "cpu"),
    ("auto", "CPU GPU", "gpu"),
    ("auto", "CPU GPU TPU", "tpu"),
    ("cpu", "CPU GPU", "cpu"),
])  # fmt: skip
def test_target_device_is_the_requested_or_best_one(device: str, present: str, target: str) -> None:
    names = tuple(f"/physical_device:{kind}:0" for kind in present.split())
    assert machine._target(device, names) == target


def test_absent_target_device_has_exit_code_5(tmp_path: Path) -> None:
    with pytest.raises(PipetuneError, match="'tpu' is not available") as raised:
        machine.read_machine("tpu", root=tmp_path)
    assert raised.value.exit_code == 5
    assert "--step-time" in raised.value.hint


def test_peak_memory_is_counted_from_the_reset() -> None:
    assert machine.peak_rss_bytes() >= machine.rss_bytes() // 2 > 0
    if machine.reset_peak_rss():
        before = machine.peak_rss_bytes()
        held = bytearray(64 << 20)
        held[::4096] = b"x" * len(held[::4096])
        assert machine.peak_rss_bytes() - before > 32 << 20


def test_memory_of_the_fullest_gpu_is_known_where_tensorflow_alone_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("torch", "jax"):
        monkeypatch.delitem(sys.modules, library, raising=False)
    assert machine.peak_gpu_mib() is None, "no GPU"
    peaks = {"/device:GPU:0": 3 << 20, "/device:GPU:1": 5 << 20}
    monkeypatch.setattr(
        tf.config, "list_logical_devices", lambda kind: [tf.config.LogicalDevice(name, kind) for name in peaks]
    )
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda name: {"peak": peaks[name]})
    assert machine.peak_gpu_mib() == 5
    cuda = SimpleNamespace(is_initialized=lambda: False)
    bridge = SimpleNamespace(backends_are_initialized=lambda: False)
    for name, module in (("torch", SimpleNamespace(cuda=cuda)), ("jax", object()), ("jax._src.xla_bridge", bridge)):
        monkeypatch.setitem(sys.modules, name, module)
    assert machine.peak_gpu_mib() == 5, "imported by another library, and no more"
    cuda.is_initialized = lambda: True
    assert machine.peak_gpu_mib() is None
    monkeypatch.delitem(sys.modules, "torch")
    bridge.backends_are_initialized = lambda: True
    assert machine.peak_gpu_mib() is None


def test_free_heap_memory_is_released() -> None:
    blocks = [bytearray(b"x") * 100_000 for _ in range(1000)]
    for block in blocks:
        block[::4096] = b"y" * len(block[::4096])
    kept = blocks[::100]  # between the free ones, so that the heap cannot just shrink
    del blocks, block
    before = machine.rss_bytes()
    if not memory.release_free_memory():
        pytest.skip("this C library has nothing to give back, or no word for it")
    assert before - machine.rss_bytes() > 50 << 20
    assert all(block[0] == ord("y") for block in kept)
