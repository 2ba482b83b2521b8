"""Resource limits of this process's control groups (cgroups), versions 1 and 2, nested or not.

A group may use no more than any of its ancestors, so the smallest limit from the process's own group up to the mount
applies. The path of the group is in `/proc/self/cgroup`, the mount point of its hierarchy in `/proc/self/mountinfo`
(Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/")

_NO_LIMIT = 1 << 60  # bytes; version 1 has no value for "no limit": it reports the largest multiple of the page size


@dataclass(frozen=True)
class Group:
    """One control group that contains this process."""

    folder: Path
    unified: bool  # cgroup version 2


def groups(controller: str, root: Path = ROOT) -> tuple[Group, ...]:
    """Returns the process's own group under `controller` ("cpu", "memory") and all its ancestors, its own first.

    Empty if no such hierarchy is mounted. `root` is the directory that contains proc and the mounts.
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
    """Cores that the CFS quota allows; None without a quota."""
    return min((cores for group in groups("cpu", root) if (cores := _quota(group)) is not None), default=None)


def braking_group(root: Path = ROOT) -> Path | None:
    """The directory of the group with the smallest CPU quota: its `cpu.stat` counts how often we were throttled."""
    quotas = [(cores, group.folder) for group in groups("cpu", root) if (cores := _quota(group)) is not None]
    return min(quotas, key=lambda quota: quota[0])[1] if quotas else None


def memory_limit(root: Path = ROOT) -> int | None:
    """Memory limit in bytes; None without a limit.

    `memory.high` counts too: above it the kernel slows the process down until it has released memory.
    """
    return min((limit for group in groups("memory", root) for limit in _limits(group)), default=None)


def memory_in_use(root: Path = ROOT) -> int | None:
    """Bytes charged to the process's own group, without page cache that can be dropped at once; None if unknown."""
    own = next(iter(groups("memory", root)), None)
    return None if own is None else _in_use(own)


def memory_room(root: Path = ROOT) -> int | None:
    """Bytes that can still be allocated before this group or an ancestor reaches its limit; None without a limit.

    Memory of other processes in the ancestor groups counts as used, since they share the limit.
    """
    rooms = [
        max(0, min(limits) - (_in_use(group) or 0))
        for group in groups("memory", root)
        if (limits := _limits(group))
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
    try:
        for line in (group.folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == droppable:
                return max(0, current - int(value))
    except (OSError, ValueError):
        pass
    return current


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max", or the file is missing
        return None


def _path(controller: str, unified: bool, root: Path) -> PurePosixPath | None:
    """Path of the process's group within its hierarchy; None if it is in none."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and not controllers) if unified else controller in controllers.split(","):
            return PurePosixPath(path)
    return None


def _mount(controller: str, unified: bool, root: Path) -> tuple[PurePosixPath, Path] | None:
    """The group that a hierarchy is mounted from, and the directory it is mounted on."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        right = kind[0] == "cgroup2" if unified else kind[0] == "cgroup" and controller in kind[2].split(",")
        if right:
            return PurePosixPath(_unescaped(fields[3])), root / _unescaped(fields[4]).lstrip("/")
    return None


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return


def _unescaped(text: str) -> str:
    """Decodes a path of mountinfo, in which blanks and similar characters are octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
