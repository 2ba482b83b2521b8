"""What the machine grants beside what TensorFlow believes, and what to set where they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.machine import CpuLoad, Machine
from pipetune.report import words
from pipetune.report.values import Fact

_NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Side:
    """One quantity, both ways."""

    label: str
    granted: str
    believed: str
    differs: bool = False


def sides(machine: Machine) -> tuple[Side, ...]:
    """Cores, memory and threads, as granted and as TensorFlow takes them."""
    believed = machine.believed
    granted = words.plain(machine.cores_granted)
    quota = "no quota" if machine.quota_cores is None else f"quota {words.plain(machine.quota_cores)}"
    share = machine.memory_limit_bytes // 2
    buffers = believed.autotune_buffer_bytes if believed else None
    intra = believed.intra_op_threads if believed else None
    pool = believed.pool_threads if believed else None
    inter = believed.inter_op_threads if believed else None
    return (
        Side(
            "cores",
            f"{granted} of {machine.cores_host} ({quota})",
            f"{machine.cores_detected} (cpu_budget)" if believed else f"{machine.cores_detected} (affinity)",
            _exceeds(machine.cores_detected, machine),
        ),
        Side(
            "memory",
            f"{words.byte_size(machine.memory_limit_bytes)} of {words.byte_size(machine.memory_host_bytes)}",
            f"{words.byte_size(machine.memory_host_bytes)} (the host's)",
            _memory_differs(machine),
        ),
        Side(
            "for AUTOTUNE's buffers",
            f"{words.byte_size(share)} (half)",
            _NOT_ASKED if buffers is None else f"{words.byte_size(buffers)} (ram_budget)",
            buffers is not None and buffers > machine.memory_limit_bytes,
        ),
        Side("calls of one operator", granted, _threads(pool, 0), _exceeds(pool, machine)),
        Side(
            "inter-op threads",
            granted,
            _threads(inter, believed.inter_op_configured if believed else 0),
            _exceeds(inter, machine),
        ),
        Side(
            "intra-op threads",
            granted,
            _threads(intra, believed.intra_op_configured if believed else 0),
            _exceeds(intra, machine),
        ),
    )


def settings(machine: Machine) -> Iterator[Fact]:
    """What to set where they differ, the strongest first: the line to write, and what it does."""
    number = max(1, round(machine.cores_granted))
    believed = machine.believed
    pools = [believed.intra_op_threads, believed.inter_op_threads] if believed else []
    if _exceeds(machine.cores_detected, machine):
        chosen = ",".join(map(str, machine.affinity[:number])) or ("0" if number == 1 else f"0-{number - 1}")
        yield Fact(
            f"taskset -c {chosen} python train.py",
            f"everything sees {words.count(number, 'core')}: TensorFlow reads the affinity mask, not the quota",
        )
        yield Fact(f"options.autotune.cpu_budget = {number}", "AUTOTUNE shares out the cores that are granted")
        yield Fact(
            f"options.threading.private_threadpool_size = {number}",
            "functions of the pipeline run in so many threads, and no operator gets more calls",
        )
    if any(_exceeds(pool, machine) for pool in pools):
        yield Fact(
            f"TF_NUM_INTRAOP_THREADS={number} TF_NUM_INTEROP_THREADS={number} python train.py",
            "the model's own threads: no more than can run",
        )
    buffers = believed.autotune_buffer_bytes if believed else None
    if _memory_differs(machine) and (buffers or 0) > machine.memory_limit_bytes // 2:
        yield Fact(
            f"options.autotune.ram_budget = {machine.memory_limit_bytes // 2}",
            "AUTOTUNE's buffers stay within half of the memory granted",
        )
    if _exceeds(machine.cores_detected, machine):
        yield Fact(
            "pipetune analyze train.py",
            "its trials keep to the cores granted; numbers it proves take AUTOTUNE's place in the plan",
        )


def load_fact(load: CpuLoad | None) -> Fact | None:
    """Who used the cores while measuring: "other processes took 12 %"."""
    if load is None:
        return None
    cores = words.count(load.cores, "core")
    parts = [f"over {words.seconds(load.seconds)} of windows on {cores}; we took {words.percent(load.own_share)}"]
    if load.worst_others_share > load.others_share:
        parts.append(f"at worst they took {words.percent(load.worst_others_share)} of one window")
    if load.stolen_share >= 0.005:
        parts.append(f"the hypervisor took {words.percent(load.stolen_share)}")
    if load.throttled_share:
        stopped = f"the quota stopped us in {words.percent(load.throttled_share)} of its periods"
        if load.throttled_seconds:
            stopped += f", {words.seconds(load.throttled_seconds)} in all"
        parts.append(stopped)
    note = "; ".join(parts)
    return Fact("load while measuring", f"other processes took {words.percent(load.others_share)}", note)


def _exceeds(threads: float | None, machine: Machine) -> bool:
    """Whether TensorFlow counts on more than is granted; a fraction of a core still needs a whole thread."""
    return threads is not None and threads > max(1, math.ceil(machine.cores_granted))


def _memory_differs(machine: Machine) -> bool:
    return machine.memory_limit_bytes < 0.95 * machine.memory_host_bytes


def _threads(number: int | None, configured: int) -> str:
    if number is None:
        return _NOT_ASKED
    return f"{number} (configured)" if configured else str(number)
