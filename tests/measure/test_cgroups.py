"""Limits of nested control groups of both versions, read from fake proc and cgroup folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetune.measure import machine

MIB = 2**20

V1_MOUNTS = """\
25 1 0:20 / /proc rw,nosuid - proc proc rw
31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs rw,mode=755
32 31 0:29 {top} /sys/fs/cgroup/cpu,cpuacct ro,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 {top} /sys/fs/cgroup/memory ro,relatime shared:10 master:2 - cgroup cgroup rw,memory
"""
V1_GROUPS = "12:pids:{path}\n5:cpu,cpuacct:{path}\n4:memory:{path}\n1:name=systemd:{path}\n"
V2_MOUNTS = "30 25 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def tree(root: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    everything = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts}
    everything |= {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in everything.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def version_2(root: Path, files: dict[str, str], *, path: str = "/", top: str = "/") -> Path:
    return tree(root, f"0::{path}\n", V2_MOUNTS.format(top=top), files)


def version_1(root: Path, files: dict[str, str], *, path: str = "/", top: str = "/") -> Path:
    return tree(root, V1_GROUPS.format(path=path), V1_MOUNTS.format(top=top), files)


@pytest.mark.parametrize(("files", "cores"), [
    ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"}, 2.0),  # the parent's limit applies
    ({"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "200000 100000\n"}, 0.5),
    ({"a/b/cpu.max": "nonsense\n"}, None),
    ({"other/cpu.max": "50000 100000\n"}, None),  # not a group of this process
])  # fmt: skip
def test_cpu_quota_of_nested_groups_in_version_2(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    assert machine.cpu_quota(version_2(tmp_path, files, path="/a/b")) == cores


@pytest.mark.parametrize(("quota", "cores"), [("50000", 0.5), ("-1", None)])
def test_cpu_quota_in_version_1(tmp_path: Path, quota: str, cores: float | None) -> None:
    """The job's group has none of its own: that of the group around it applies."""
    files = {
        "cpu,cpuacct/batch/cpu.cfs_quota_us": f"{quota}\n",
        "cpu,cpuacct/batch/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/batch/job/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/batch/job/cpu.cfs_period_us": "50000",
    }
    assert machine.cpu_quota(version_1(tmp_path, files, path="/batch/job")) == cores


V1_LIMITS = {"memory/memory.limit_in_bytes": f"{512 * MIB}\n", "memory/job/memory.limit_in_bytes": f"{128 * MIB}\n"}
PARENTS = {"pod/memory.max": f"{300 * MIB}", "pod/box/memory.max": f"{400 * MIB}", "pod/box/job/memory.max": "max"}
HIGH = {"memory.max": "max\n", "memory.high": "268435456\n"}  # above this the group is throttled
UNLIMITED = {"memory/memory.limit_in_bytes": "9223372036854771712\n"}


@pytest.mark.parametrize(("groups", "files", "path", "top", "limit"), [
    # Docker without a cgroup namespace: proc has the host's path, the mount begins at the container's group
    (version_1, V1_LIMITS, "/docker/abc/job", "/docker/abc", 128 * MIB),
    (version_1, V1_LIMITS, "/docker/abc", "/docker/abc", 512 * MIB),
    (version_1, UNLIMITED, "/", "/", None),
    (version_2, {"memory.max": "536870912\n"}, "/docker/abc", "/", 512 * MIB),  # outside of the mount
    (version_2, {"memory.max": "536870912\n"}, "/../../elsewhere", "/", 512 * MIB),
    (version_2, {"memory.max": "max\n"}, "/", "/", None),
    (version_2, HIGH, "/", "/", 256 * MIB),
    (version_2, PARENTS, "/pod/box/job", "/", 300 * MIB),  # the smallest
])  # fmt: skip
def test_memory_limit(tmp_path: Path, groups, files, path, top, limit) -> None:
    assert machine.memory_limit(groups(tmp_path, files, path=path, top=top)) == limit


STAT = f"anon {100 * MIB}\ninactive_file {80 * MIB}\nactive_file {20 * MIB}\n"
USED = {"memory.max": f"{300 * MIB}", "memory.current": f"{200 * MIB}", "memory.stat": STAT}
V1_USED = {
    "memory/memory.limit_in_bytes": f"{300 * MIB}",
    "memory/memory.usage_in_bytes": f"{200 * MIB}",
    "memory/memory.stat": f"inactive_file 7\ntotal_inactive_file {50 * MIB}\n",
}
BESIDE = {"pod/memory.max": f"{1000 * MIB}", "pod/memory.current": f"{900 * MIB}"}  # most of it used by a sibling
BESIDE |= {"pod/box/memory.max": f"{600 * MIB}", "pod/box/memory.current": f"{300 * MIB}"}


@pytest.mark.parametrize(("groups", "files", "path", "room"), [
    (version_2, USED, "/", 180 * MIB),  # page cache that can be reclaimed counts as free
    (version_1, V1_USED, "/", 150 * MIB),
    (version_2, BESIDE, "/pod/box", 100 * MIB),  # that of the tightest group
    (version_2, {"memory.current": "5"}, "/", None),
    (version_2, {"memory.max": "100", "memory.current": "150"}, "/", 0),
])  # fmt: skip
def test_memory_room(tmp_path: Path, groups, files, path, room) -> None:
    assert machine.memory_room(groups(tmp_path, files, path=path)) == room


HYBRID = V1_GROUPS.format(path="/job") + "0::/job\n"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
BLANK = "30 25 0:26 / /sys/fs/cgroup/my\\040groups rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(("groups", "mounts", "file"), [
    # systemd's hybrid layout: controllers in version 1, and an empty version 2 hierarchy
    (HYBRID, V1_MOUNTS.format(top="/") + UNIFIED, "memory/job/memory.limit_in_bytes"),
    (HYBRID, V2_MOUNTS.format(top="/job"), "memory.max"),  # hierarchies of version 1 that are not mounted
    ("0::/\n", BLANK, "my groups/memory.max"),
])  # fmt: skip
def test_mounts_are_read(tmp_path: Path, groups: str, mounts: str, file: str) -> None:
    files = {file: "4096", "unified/job/cgroup.procs": ""}
    assert machine.memory_limit(tree(tmp_path, groups, mounts, files)) == 4096


def test_mount_whose_name_is_no_text_is_passed_over(tmp_path: Path) -> None:
    root = version_2(tmp_path, {"memory.max": "4096"})
    mounts = root / "proc/self/mountinfo"
    mounts.write_bytes(b"29 25 8:1 / /mnt/caf\xe9 rw - ext4 /dev/sda1 rw\n" + mounts.read_bytes())
    assert machine.memory_limit(root) == 4096


def test_machine_without_groups_has_no_limits(tmp_path: Path) -> None:
    assert machine.groups("memory", tmp_path) == ()
    assert machine.cpu_quota(tmp_path) is None and machine.memory_limit(tmp_path) is None
    assert machine.memory_room(tmp_path) is None
