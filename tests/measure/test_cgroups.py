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


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"a/b/cpu.max": "150000 100000\n"}, 1.5),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"}, 2.0),  # the parent's limit applies
        ({"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "200000 100000\n"}, 0.5),
        ({"a/b/cpu.max": "nonsense\n"}, None),
        ({"other/cpu.max": "50000 100000\n"}, None),  # not a group of this process
    ],
)
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


def test_host_path_is_resolved_against_the_mounted_group(tmp_path: Path) -> None:
    """Docker without a cgroup namespace: proc has the host's path, the mount begins at the container's group."""
    files = {"memory/memory.limit_in_bytes": f"{512 * MIB}\n", "memory/job/memory.limit_in_bytes": f"{128 * MIB}\n"}
    inside = version_1(tmp_path / "inside", files, path="/docker/abc/job", top="/docker/abc")
    assert machine.memory_limit(inside) == 128 * MIB
    own = version_1(tmp_path / "own", files, path="/docker/abc", top="/docker/abc")
    assert machine.memory_limit(own) == 512 * MIB


@pytest.mark.parametrize("path", ["/docker/abc", "/../../elsewhere"])
def test_group_outside_the_mount_falls_back_to_the_mounted_group(tmp_path: Path, path: str) -> None:
    assert machine.memory_limit(version_2(tmp_path, {"memory.max": f"{512 * MIB}"}, path=path)) == 512 * MIB


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "536870912\n"}, 512 * MIB),
        ({"memory.max": "max\n"}, None),
        ({"memory.max": "max\n", "memory.high": "268435456\n"}, 256 * MIB),  # above this the group is throttled
    ],
)
def test_memory_limit_in_version_2(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    assert machine.memory_limit(version_2(tmp_path, files)) == limit


def test_smallest_memory_limit_of_the_parents_applies(tmp_path: Path) -> None:
    files = {"pod/memory.max": f"{300 * MIB}", "pod/box/memory.max": f"{400 * MIB}", "pod/box/job/memory.max": "max"}
    assert machine.memory_limit(version_2(tmp_path, files, path="/pod/box/job")) == 300 * MIB


def test_version_1_value_for_unlimited_is_no_limit(tmp_path: Path) -> None:
    assert machine.memory_limit(version_1(tmp_path, {"memory/memory.limit_in_bytes": "9223372036854771712\n"})) is None


def test_reclaimable_page_cache_counts_as_free(tmp_path: Path) -> None:
    stat = f"anon {100 * MIB}\ninactive_file {80 * MIB}\nactive_file {20 * MIB}\n"
    files = {"memory.max": f"{300 * MIB}", "memory.current": f"{200 * MIB}", "memory.stat": stat}
    assert machine.memory_room(version_2(tmp_path / "2", files)) == 180 * MIB
    files = {
        "memory/memory.limit_in_bytes": f"{300 * MIB}",
        "memory/memory.usage_in_bytes": f"{200 * MIB}",
        "memory/memory.stat": f"inactive_file 7\ntotal_inactive_file {50 * MIB}\n",
    }
    assert machine.memory_room(version_1(tmp_path / "1", files)) == 150 * MIB


def test_memory_room_is_that_of_the_tightest_group(tmp_path: Path) -> None:
    files = {
        "pod/memory.max": f"{1000 * MIB}",
        "pod/memory.current": f"{900 * MIB}",  # most of it used by a sibling
        "pod/box/memory.max": f"{600 * MIB}",
        "pod/box/memory.current": f"{300 * MIB}",
    }
    assert machine.memory_room(version_2(tmp_path / "pod", files, path="/pod/box")) == 100 * MIB
    assert machine.memory_room(version_2(tmp_path / "free", {"memory.current": "5"})) is None
    full = {"memory.max": "100", "memory.current": "150"}
    assert machine.memory_room(version_2(tmp_path / "full", full)) == 0


def test_hybrid_host_reads_version_1_controllers(tmp_path: Path) -> None:
    """systemd's hybrid layout: controllers in version 1, and an empty version 2 hierarchy."""
    groups = V1_GROUPS.format(path="/job") + "0::/job\n"
    mounts = V1_MOUNTS.format(top="/") + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    files = {"memory/job/memory.limit_in_bytes": f"{64 * MIB}", "unified/job/cgroup.procs": ""}
    assert machine.memory_limit(tree(tmp_path, groups, mounts, files)) == 64 * MIB


def test_unmounted_version_1_hierarchies_are_ignored(tmp_path: Path) -> None:
    groups = V1_GROUPS.format(path="/job") + "0::/job\n"
    root = tree(tmp_path, groups, V2_MOUNTS.format(top="/job"), {"memory.max": f"{64 * MIB}"})
    assert machine.memory_limit(root) == 64 * MIB


def test_mount_with_a_space_in_its_name_is_read(tmp_path: Path) -> None:
    mounts = "30 25 0:26 / /sys/fs/cgroup/my\\040groups rw - cgroup2 cgroup2 rw\n"
    root = tree(tmp_path, "0::/\n", mounts, {"my groups/memory.max": "4096"})
    assert machine.memory_limit(root) == 4096


def test_mount_whose_name_is_no_text_is_passed_over(tmp_path: Path) -> None:
    root = version_2(tmp_path, {"memory.max": "4096"})
    mounts = root / "proc/self/mountinfo"
    mounts.write_bytes(b"29 25 8:1 / /mnt/caf\xe9 rw - ext4 /dev/sda1 rw\n" + mounts.read_bytes())
    assert machine.memory_limit(root) == 4096


def test_machine_without_groups_has_no_limits(tmp_path: Path) -> None:
    assert machine.groups("memory", tmp_path) == ()
    assert machine.cpu_quota(tmp_path) is None and machine.memory_limit(tmp_path) is None
    assert machine.memory_room(tmp_path) is None
