"""Who used the available cores during windows (this process, others, the hypervisor), waits of threads, throttling."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipetune.core.machine import CpuLoad

_PROC = Path("/proc")
_SHORTEST_SECONDS = 0.2  # a single shorter window cannot be resolved with ticks of 10 ms


@dataclass(frozen=True)
class CpuCounters:
    """The counters at one moment, in seconds."""

    wall: float  # monotonic clock
    busy: float  # CPU time of all processes on the watched cores, since boot
    stolen: float  # CPU time the hypervisor took from the watched cores, since boot
    own: float  # CPU time of this process and of the children it has waited for
    queued: Mapping[str, float] = field(default_factory=dict)  # by thread: ready, but without a processor


class LoadMeter:
    """Adds up the load over many windows.

    A window costs two readings of /proc/stat (some tens of microseconds, a few hundred on a machine with a hundred
    cores) and of one small file per thread (20 microseconds each), all outside what the window itself times. On a
    system without /proc the meter stays empty.
    """

    def __init__(self, *, cores: frozenset[int] | None = None, proc: Path = _PROC, cgroup: Path | None = None) -> None:
        """Creates the meter.

        Args:
            cores: indices of the cores to observe; None: those of the affinity mask.
            proc: directory of the proc file system.
            cgroup: directory with `cpu.stat`, for throttling; None: not observed.
        """
        cores = available_cores() if cores is None else cores
        self._cores, self._proc, self._cgroup = cores, proc, cgroup
        self._seconds = self._own = self._others = self._stolen = self._worst = 0.0
        self._windows = 0
        self._throttled = (0, 0, 0.0) if throttling_counters(cgroup) is not None else None
        self.last_queued_seconds: float | None = None  # that its threads waited for a processor; None: unknown

    @contextmanager
    def window(self) -> Iterator[None]:
        """Context manager: adds the load of its block, even if that raises."""
        before, braked = self.read(), throttling_counters(self._cgroup)
        try:
            yield
        finally:
            self.add(before, self.read())
            after = throttling_counters(self._cgroup)
            if self._throttled is not None and braked is not None and after is not None:
                periods, throttled, seconds = self._throttled
                self._throttled = (
                    periods + after[0] - braked[0],
                    throttled + after[1] - braked[1],
                    seconds + after[2] - braked[2],
                )

    def read(self) -> CpuCounters | None:
        """Returns the current counters; None if the system does not expose them."""
        used = core_seconds(self._cores, self._proc)
        if used is None:
            return None
        busy, stolen = used
        times = os.times()
        own = time.process_time() + times.children_user + times.children_system
        queued = {thread: waited for thread, (_, waited) in thread_seconds(self._proc).items()}
        return CpuCounters(time.monotonic(), busy, stolen, own, queued)

    def add(self, before: CpuCounters | None, after: CpuCounters | None) -> None:
        """Adds the load between two readings."""
        self.last_queued_seconds = None
        if before is None or after is None or after.wall <= before.wall:
            return
        seconds, own = after.wall - before.wall, after.own - before.own
        others = after.busy - before.busy - own  # sometimes a tick below zero, which evens out in the sum
        if after.queued:
            self.last_queued_seconds = sum(
                max(0.0, seconds - before.queued.get(thread, 0.0)) for thread, seconds in after.queued.items()
            )
        self._windows += 1
        self._seconds += seconds
        self._own += own
        self._others += others
        self._stolen += after.stolen - before.stolen
        if seconds >= _SHORTEST_SECONDS and self._cores:
            self._worst = max(self._worst, others / (seconds * len(self._cores)))

    def load(self) -> CpuLoad | None:
        """Returns the load so far; None if nothing was observed."""
        granted = self._seconds * len(self._cores)
        if granted <= 0:
            return None
        periods, throttled, seconds = self._throttled or (None, None, None)
        return CpuLoad(
            seconds=self._seconds,
            windows=self._windows,
            cores=len(self._cores),
            own_share=_share(self._own / granted),
            others_share=_share(self._others / granted),
            stolen_share=_share(self._stolen / granted),
            worst_others_share=_share(self._worst),
            quota_periods=periods,
            throttled_periods=throttled,
            throttled_seconds=seconds,
        )


def available_cores() -> frozenset[int]:
    """Returns the indices of the cores that this process may run on."""
    return frozenset(os.sched_getaffinity(0))


def core_seconds(cores: frozenset[int], proc: Path = _PROC) -> tuple[float, float] | None:
    """Returns the CPU seconds since boot that these cores ran processes, and that the hypervisor took from them.

    None if the system does not expose them.
    """
    try:
        text = (proc / "stat").read_text()
    except OSError:
        return None
    tick = 1.0 / os.sysconf("SC_CLK_TCK")
    busy = stolen = 0.0
    for line in text.splitlines():
        name, *numbers = line.split()
        if not name.startswith("cpu") or not name[3:].isdigit() or int(name[3:]) not in cores:
            continue
        # user nice system idle iowait irq softirq steal; guest time is counted within user.
        counts = [int(number) for number in numbers[:8]] + [0] * 8
        busy += sum(counts[place] for place in (0, 1, 2, 5, 6)) * tick
        stolen += counts[7] * tick
    return busy, stolen


def has_children() -> bool:
    """Whether this process has started processes that have not been waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def thread_seconds(proc: Path = _PROC) -> dict[str, tuple[float, float]]:
    """Returns, by thread id, the seconds that each thread of this process has run, and waited for a processor, so far.

    From the kernel's schedstat files (sched-stats.rst); empty if the kernel does not count.
    """
    found = {}
    for thread in (proc / "self" / "task").glob("*"):
        try:
            ran, waited = (thread / "schedstat").read_text().split()[:2]
        except (OSError, ValueError):  # it has ended, or the kernel does not count
            continue
        found[thread.name] = int(ran) / 1e9, int(waited) / 1e9
    return found


def throttling_counters(cgroup: Path | None) -> tuple[int, int, float] | None:
    """Returns the number of quota periods, of throttled periods, and the seconds throttled; None without a quota.

    From cpu.stat: `throttled_usec` (cgroup version 2) or `throttled_time` in nanoseconds (version 1).
    """
    if cgroup is None:
        return None
    try:
        pairs = [line.split() for line in (cgroup / "cpu.stat").read_text().splitlines()]
        counts = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    except (OSError, ValueError):
        return None
    if "nr_periods" not in counts:
        return None
    seconds = counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / 1e9
    return counts["nr_periods"], counts.get("nr_throttled", 0), seconds


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
