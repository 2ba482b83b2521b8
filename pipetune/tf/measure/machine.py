"""Reads the machine: its hardware, the limits of the container, and the devices that TensorFlow sees."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import psutil
import tensorflow as tf

from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.tf.measure import cgroup


def read_machine(device: str = "auto", *, root: Path = cgroup.ROOT) -> Machine:
    """Returns the machine with the resources available to this process; `root` as in `cgroup`.

    Raises:
        PipetuneError: `device` is requested and absent (exit code 5).
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota(root)
    memory = psutil.virtual_memory()
    limit, room = cgroup.memory_limit(root), cgroup.memory_room(root)
    devices = tuple(found.name for found in tf.config.list_physical_devices())
    return Machine(
        cores_granted=min(float(affinity), quota) if quota else float(affinity),
        cores_host=os.cpu_count() or 1,
        cores_affinity=affinity,
        memory_limit_bytes=min(limit, memory.total) if limit else memory.total,
        memory_host_bytes=memory.total,
        memory_available_bytes=memory.available if room is None else min(room, memory.available),
        processor=_processor(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        tensorflow=tf.__version__,
        keras=getattr(sys.modules.get("keras"), "__version__", ""),
        devices=devices,
        device=_target(device, devices),
        load_average=os.getloadavg()[0],
        quota_cores=quota,
        affinity=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
    )


def reset_peak_rss() -> bool:
    """Makes `peak_rss_bytes` count from now on; False if the system does not support it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_rss_bytes() -> int:
    """The peak resident size of this process, in bytes, since it started or since `reset_peak_rss`."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return rss_bytes()


def rss_bytes() -> int:
    """The current resident size of this process, in bytes."""
    return int(psutil.Process().memory_info().rss)


def _target(device: str, devices: tuple[str, ...]) -> str:
    present = {"cpu"} | {
        kind for kind in ("gpu", "tpu") if any(f":{kind.upper()}:" in name for name in devices)
    }
    if device == "auto":
        return next((kind for kind in ("tpu", "gpu") if kind in present), "cpu")
    if device not in present:
        raise PipetuneError(
            f"The target device '{device}' is not there: TensorFlow sees {', '.join(devices)}.",
            hint="Use --device auto, or --step-time MS to tune here for an accelerator elsewhere.",
            exit_code=5,
        )
    return device


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
