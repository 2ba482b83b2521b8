"""The load on the cores: from fake kernel counters, and from the real ones of this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.measure import machine
from pipetune.timing import windows
from pipetune.timing.cpu_load import CpuCounters, LoadMeter, available_cores, throttling_counters
from tests.measure.test_cgroups import version_1, version_2

_TICKS = os.sysconf("SC_CLK_TCK")


def stat(folder: Path, *cores: tuple[int, ...]) -> Path:
    """/proc/stat of these cores: user nice system idle iowait irq softirq steal guest, in ticks."""
    lines = ["cpu  1 2 3 4 5 6 7 8 9 0", *(f"cpu{n} {' '.join(map(str, row))}" for n, row in enumerate(cores))]
    (folder / "stat").write_text("\n".join([*lines, "intr 12 13", "ctxt 7"]) + "\n")
    return folder


def cpu_stat(folder: Path, **counts: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "cpu.stat").write_text("".join(f"{name} {number}\n" for name, number in counts.items()))
    return folder


def test_only_available_cores_count_and_iowait_is_not_busy(tmp_path: Path) -> None:
    quiet = (0, 0, 0, 0, 0, 0, 0, 0, 0)
    meter = LoadMeter(cores=frozenset({1}), proc=stat(tmp_path, (900, 0, 0, 0, 0, 0, 0, 900, 0), quiet))
    assert meter.read() is not None and (meter.read() or CpuCounters(0, 1, 1, 0)).busy == 0
    stat(tmp_path, quiet, (10, 20, 30, 4000, 5000, 6, 7, 80, 9))
    found = meter.read()
    assert found.busy == pytest.approx((10 + 20 + 30 + 6 + 7) / _TICKS)
    assert found.stolen == pytest.approx(80 / _TICKS)


def test_shares_refer_to_available_cores_and_the_worst_window_is_kept() -> None:
    meter = LoadMeter(cores=frozenset({0, 1}))
    assert meter.load() is None
    meter.add(CpuCounters(10.0, 100.0, 5.0, 50.0), CpuCounters(11.0, 101.2, 5.1, 51.0))  # others: 0.2 of 2
    meter.add(CpuCounters(20.0, 200.0, 6.0, 60.0), CpuCounters(21.0, 202.0, 6.0, 60.8))  # others: 1.2 of 2
    load = meter.load()
    assert load is not None and (load.windows, load.cores, load.seconds) == (2, 2, 2.0)
    assert load.own_share == pytest.approx(1.8 / 4)
    assert load.others_share == pytest.approx(1.4 / 4)
    assert load.stolen_share == pytest.approx(0.1 / 4)
    assert load.worst_others_share == pytest.approx(0.6)
    assert load.quota_periods is None and load.throttled_share is None


def test_seconds_in_the_queue_are_those_of_all_threads(tmp_path: Path) -> None:
    def threads(**waited: float) -> None:
        for thread, seconds in waited.items():
            folder = tmp_path / "self" / "task" / thread.removeprefix("t")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "schedstat").write_text(f"1000 {int(seconds * 1e9)} 3\n")

    meter = LoadMeter(cores=frozenset({0}), proc=stat(tmp_path, (0,) * 9))
    meter.add(meter.read(), meter.read())
    assert meter.last_queued_seconds is None, "the kernel does not count"
    threads(t1=1.0, t2=5.0)
    before = meter.read()
    threads(t1=1.5, t2=5.25, t3=0.25)
    meter.add(before, meter.read())
    assert meter.last_queued_seconds == pytest.approx(1.0)


def test_share_of_others_is_never_negative_and_unknown_without_counters(tmp_path: Path) -> None:
    meter = LoadMeter(cores=frozenset({0}))
    meter.add(CpuCounters(0.0, 0.0, 0.0, 0.0), CpuCounters(1.0, 0.99, 0.0, 1.0))
    load = meter.load()
    assert load is not None and load.others_share == 0.0 and load.own_share == 1.0
    unknown = LoadMeter(cores=frozenset({0}), proc=tmp_path)
    with unknown.window():
        pass
    assert unknown.load() is None


def test_throttling_counters_of_both_cgroup_versions(tmp_path: Path) -> None:
    two = cpu_stat(tmp_path / "two", usage_usec=9, nr_periods=100, nr_throttled=7, throttled_usec=1_500_000)
    one = cpu_stat(tmp_path / "one", nr_periods=100, nr_throttled=7, throttled_time=1_500_000_000)
    assert throttling_counters(two) == throttling_counters(one) == (100, 7, 1.5)
    assert throttling_counters(cpu_stat(tmp_path / "none", usage_usec=9)) is None
    assert throttling_counters(tmp_path / "absent") is None and throttling_counters(None) is None


def test_throttling_is_counted_only_inside_windows(tmp_path: Path) -> None:
    folder = cpu_stat(tmp_path / "group", nr_periods=100, nr_throttled=7, throttled_usec=1_500_000)
    proc = stat(tmp_path, (0,) * 9)
    meter = LoadMeter(cores=frozenset({0}), proc=proc, cgroup=folder)
    with meter.window():
        cpu_stat(folder, nr_periods=120, nr_throttled=17, throttled_usec=2_000_000)
    cpu_stat(folder, nr_periods=500, nr_throttled=400, throttled_usec=90_000_000)
    with pytest.raises(KeyError), meter.window():
        cpu_stat(folder, nr_periods=510, nr_throttled=400, throttled_usec=90_000_000)
        raise KeyError
    load = meter.load()
    assert (load.quota_periods, load.throttled_periods, load.throttled_seconds) == (30, 10, 0.5)
    assert load.throttled_share == pytest.approx(1 / 3)


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="no /proc/stat")
def test_own_work_is_in_the_own_share() -> None:
    meter = LoadMeter()
    with meter.window():
        sum(number * number for number in range(3_000_000))
    load = meter.load()
    assert load is not None and load.windows == 1
    assert load.own_share > 0 and load.own_share + load.others_share <= 1.0 + 0.5


def test_throttling_group_is_the_one_with_the_smallest_quota(tmp_path: Path) -> None:
    counters = "nr_periods 9\nnr_throttled 2\nthrottled_usec 300000\n"
    nested = {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n", "a/cpu.stat": counters}
    root = version_2(tmp_path / "two", nested, path="/a/b")
    folder = machine.throttling_group(root)
    assert folder == root / "sys/fs/cgroup/a" and throttling_counters(folder) == (9, 2, 0.3)
    old = {
        "cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 300000000\n",
    }
    assert throttling_counters(machine.throttling_group(version_1(tmp_path / "one", old))) == (9, 2, 0.3)
    assert machine.throttling_group(version_2(tmp_path / "none", {"a/cpu.max": "max 100000\n"}, path="/a")) is None


def stopped() -> windows.WindowTimer:
    timer = windows.WindowTimer()
    timer.stop()
    return timer


def test_a_timer_tells_what_others_used_but_not_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([(100.0, 1.0), (101.5, 1.25)])
    monkeypatch.setattr(windows, "core_seconds", lambda _cores: next(used))
    timer = stopped()
    assert timer.others_seconds == pytest.approx(1.75 - timer.cpu_seconds) and timer.cores == len(available_cores())


def test_load_of_others_is_unknown_beside_children_and_without_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE)
    try:
        assert stopped().others_seconds is None, "the child may work for the pipeline"
    finally:
        child.communicate()
    monkeypatch.setattr(windows, "core_seconds", lambda _cores: None)
    assert stopped().others_seconds is None
