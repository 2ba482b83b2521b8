"""Reads the machine: its hardware, the limits of the container, the resources TensorFlow detects, and its load."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil
import tensorflow as tf

from pipetune.core.errors import PipetuneError
from pipetune.core.machine import DetectedResources, Machine
from pipetune.timing import windows
from pipetune.timing.cpu_load import available_cores
from pipetune.timing.iterators import iterating

ROOT = Path("/")

_NO_LIMIT = 1 << 60  # bytes; version 1 has no value for "no limit": it reports the largest multiple of the page size


@dataclass(frozen=True)
class Group:
    """One control group that contains this process."""

    folder: Path
    unified: bool  # cgroup version 2


def groups(controller: str, root: Path = ROOT) -> tuple[Group, ...]:
    """Returns the process's own group under `controller` ("cpu", "memory") and all its ancestors, its own first.

    Empty if no such hierarchy is mounted. `root` is the directory that contains `proc` and the mounts.
    """
    for unified in (False, True):  # where both are mounted, a controller attached to version 1 is not in version 2
        path, mount = _path(controller, unified, root), _mount(controller, unified, root)
        if path is None or mount is None:
            continue
        top, point = mount
        below = path.relative_to(top) if path.is_relative_to(top) and ".." not in path.parts else PurePosixPath()
        folders = [point.joinpath(*below.parts[:depth]) for depth in range(len(below.parts), -1, -1)]
        return tuple(Group(folder, unified) for folder in folders if folder.is_dir())
    return ()


def cpu_quota(root: Path = ROOT) -> float | None:
    """Returns the number of cores that the CFS quota allows; None without a quota."""
    return min((cores for group in groups("cpu", root) if (cores := _quota(group)) is not None), default=None)


def throttling_group(root: Path = ROOT) -> Path | None:
    """Returns the directory of the group with the smallest CPU quota, whose `cpu.stat` counts throttling."""
    quotas = [(cores, group.folder) for group in groups("cpu", root) if (cores := _quota(group)) is not None]
    return min(quotas, key=lambda quota: quota[0])[1] if quotas else None


def memory_limit(root: Path = ROOT) -> int | None:
    """Returns the memory limit in bytes; None without a limit.

    `memory.high` counts too: above it the kernel slows the process down until it has released memory.
    """
    return min((limit for group in groups("memory", root) for limit in _limits(group)), default=None)


def memory_room(root: Path = ROOT) -> int | None:
    """Returns the bytes that can be allocated before this group or an ancestor reaches its limit; None without one.

    Memory of other processes in the ancestor groups counts as used, since they share the limit.
    """
    rooms = [
        max(0, min(limits) - (_in_use(group) or 0)) for group in groups("memory", root) if (limits := _limits(group))
    ]
    return min(rooms, default=None)


def _quota(group: Group) -> float | None:
    try:
        if group.unified:
            quota, period = (group.folder / "cpu.max").read_text().split()
        else:
            quota = (group.folder / "cpu.cfs_quota_us").read_text()
            period = (group.folder / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _limits(group: Group) -> list[int]:
    names = ("memory.max", "memory.high") if group.unified else ("memory.limit_in_bytes",)
    found = [_number(group.folder / name) for name in names]
    return [limit for limit in found if limit is not None and limit < _NO_LIMIT]


def _in_use(group: Group) -> int | None:
    current = _number(group.folder / ("memory.current" if group.unified else "memory.usage_in_bytes"))
    if current is None:
        return None
    droppable = "inactive_file" if group.unified else "total_inactive_file"
    values = dict(line.split(" ", 1) for line in _lines(group.folder / "memory.stat") if " " in line)
    try:
        return max(0, current - int(values.get(droppable, 0)))
    except ValueError:
        return current


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max", or the file is missing
        return None


def _path(controller: str, unified: bool, root: Path) -> PurePosixPath | None:
    """Returns the path of the process's group within its hierarchy; None if it is in none."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and not controllers) if unified else controller in controllers.split(","):
            return PurePosixPath(path)
    return None


def _mount(controller: str, unified: bool, root: Path) -> tuple[PurePosixPath, Path] | None:
    """Returns the group that a hierarchy is mounted from, and the directory it is mounted on."""
    for mount in mounts(root / "proc/self/mountinfo"):
        if mount.kind == "cgroup2" if unified else mount.kind == "cgroup" and controller in mount.options.split(","):
            return PurePosixPath(mount.top), root / mount.point.lstrip("/")
    return None


@dataclass(frozen=True)
class Mount:
    """A mounted file system (proc(5), mountinfo)."""

    top: str  # the directory of the file system that is mounted
    point: str  # the directory that it is mounted on
    kind: str  # its type: "ext4", "cgroup2"
    options: str  # of the file system


def mounts(mountinfo: Path) -> Iterator[Mount]:
    """Yields the mounted file systems in the order in which they were mounted; none if they cannot be read."""
    for line in _lines(mountinfo):
        before, _, after = line.partition(" - ")
        place, kind = before.split(" "), after.split(" ")
        if len(place) >= 5 and len(kind) >= 3:
            yield Mount(_unescaped(place[3]), _unescaped(place[4]), kind[0], kind[2])


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text(errors="surrogateescape").splitlines()  # names of mounts are bytes
    except OSError:
        return


def _unescaped(text: str) -> str:
    """Decodes a path of mountinfo, in which blanks and similar characters are octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


_PATIENCE_SECONDS = 0.5  # for AUTOTUNE's first run, by judgement: on a busy machine a shorter wait may miss it
_POLL_SECONDS = 0.01  # between two readings: AUTOTUNE optimizes every 10 ms at first


def detect_resources(*, patience_seconds: float = _PATIENCE_SECONDS) -> DetectedResources:
    """Returns the cores, bytes and threads that tf.data assumes if a pipeline sets no option.

    Runs a pipeline of one number for some milliseconds, at most `patience_seconds`. Its runtime model holds AUTOTUNE's
    budgets, and the largest parallelism that AUTOTUNE may give one operator is the size tf.data assumes for its thread
    pool. This starts TensorFlow's runtime, after which a script can no longer configure it: do not call this before
    the user's script has created its first tensor.
    """
    inter, intra = _configured("inter_op", "TF_NUM_INTEROP_THREADS"), _configured("intra_op", "TF_NUM_INTRAOP_THREADS")
    cores, buffers, pool = _autotune(patience_seconds)
    seen = len(available_cores())
    return DetectedResources(
        autotune_cores=cores,
        autotune_buffer_bytes=buffers,
        pool_threads=pool,
        inter_op_threads=_pool_size(_count_threads("tf_Compute"), inter or seen),
        intra_op_threads=intra or seen,
        inter_op_configured=inter,
        intra_op_configured=intra,
    )


def _configured(name: str, variable: str) -> int:
    """Returns the threads requested by `tf.config.threading`, else by the environment; 0 if TensorFlow chooses."""
    configured = int(getattr(tf.config.threading, f"get_{name}_parallelism_threads")())
    if configured > 0:
        return configured
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _pool_size(counted: int, expected: int) -> int:
    """Returns the threads of one pool; a session or server adds another of the same name and size."""
    return counted if counted % expected else expected


def _count_threads(name: str) -> int:
    """Returns the number of threads of this process with this name; 0 if the system does not list them."""
    found = 0
    for task in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # the thread has exited in the meantime
            found += task.read_text().strip() == name
    return found


def _autotune(patience_seconds: float) -> tuple[float | None, int | None, int | None]:
    """Returns AUTOTUNE's cpu_budget (cores), its ram_budget (bytes), and the highest parallelism of a map."""
    dataset = tf.data.Dataset.range(1).repeat().map(lambda number: number + 1, num_parallel_calls=tf.data.AUTOTUNE)
    cores: float | None = None
    buffers: int | None = None
    pool: int | None = None
    # Without a model the fields stay None.
    with suppress(tf.errors.OpError, ValueError), iterating(dataset.prefetch(1)) as iterator:
        end = time.perf_counter() + patience_seconds
        while time.perf_counter() < end:
            next(iterator)
            model = tf.data.experimental.get_model_proto(iterator)
            pool = max((int(one.max) for node in model.nodes.values() for one in node.parameters
                        if one.name == "parallelism" and one.tunable), default=None)  # fmt: skip
            if model.HasField("optimization_params"):  # filled in when AUTOTUNE has run once
                cores = float(model.optimization_params.cpu_budget) or None
                buffers = int(model.optimization_params.ram_budget) or None
            if cores is not None:
                break
            time.sleep(_POLL_SECONDS)
    return cores, buffers, pool


def read_machine(device: str = "auto", *, root: Path = ROOT) -> Machine:
    """Returns the machine with the resources available to this process.

    Args:
        device: the target device: "auto", "cpu", "gpu" or "tpu".
        root: as in `groups`.

    Raises:
        PipetuneError: `device` is requested and absent (exit code 5).
    """
    affinity, quota = available_cores(), cpu_quota(root)
    cores = len(affinity)
    memory, limit = psutil.virtual_memory(), memory_limit(root)
    devices = tuple(found.name for found in tf.config.list_physical_devices())
    return Machine(
        cores_granted=min(float(cores), quota) if quota else float(cores),
        cores_host=os.cpu_count() or 1,
        cores_affinity=cores,
        memory_limit_bytes=min(limit, memory.total) if limit else memory.total,
        memory_host_bytes=memory.total,
        memory_available_bytes=available_bytes(root),
        processor=_processor(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        tensorflow=tf.__version__,
        keras=getattr(sys.modules.get("keras"), "__version__", ""),
        devices=devices,
        device=_target(device, devices),
        load_average=os.getloadavg()[0],
        quota_cores=quota,
        affinity=tuple(sorted(affinity)),
    )


def available_bytes(root: Path = ROOT) -> int:
    """Returns the bytes of memory that this process can still get, as far as its control groups allow."""
    available, room = psutil.virtual_memory().available, memory_room(root)
    return available if room is None else min(room, available)


def reset_peak_rss() -> bool:
    """Makes `peak_rss_bytes` count from now on; returns False if the system does not support it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_rss_bytes() -> int:
    """Returns the peak resident size of this process, in bytes, since it started or since `reset_peak_rss`."""
    peaks = (int(line.split()[1]) * 1024 for line in _lines(Path("/proc/self/status")) if line.startswith("VmHWM:"))
    return next(peaks, None) or rss_bytes()


def peak_gpu_mib() -> float | None:
    """Returns the most memory that TensorFlow has allocated on a GPU, or None where that is not all that was.

    What CUDA keeps for itself is not in it. PyTorch and JAX allocate beside TensorFlow; they count once they use their
    devices, as other libraries import them wherever they are installed.
    """
    if windows.started_jax() is not None or windows.started_cuda() is not None:
        return None
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    return max((tf.config.experimental.get_memory_info(name)["peak"] / 2**20 for name in gpus), default=None)


def rss_bytes() -> int:
    """Returns the current resident size of this process, in bytes."""
    return int(psutil.Process().memory_info().rss)


def _target(device: str, devices: tuple[str, ...]) -> str:
    present = {"cpu"} | {kind for kind in ("gpu", "tpu") if any(f":{kind.upper()}:" in name for name in devices)}
    if device == "auto":
        return next((kind for kind in ("tpu", "gpu") if kind in present), "cpu")
    if device not in present:
        raise PipetuneError(
            f"The target device '{device}' is not available: TensorFlow sees {', '.join(devices)}.",
            hint="Use --device auto, or --step-time MS to tune on this machine for an accelerator on another one.",
            exit_code=5,
        )
    return device


def _processor() -> str:
    names = (line.split(":", 1)[1].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
