"""The machine of a session: what the host has, what the container provides, what TensorFlow detects; overheads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceTransfer:
    """Copies of one element to `device`, timed individually and synchronously."""

    device: str  # TensorFlow's name: "/GPU:0"
    element_bytes: int  # of the components that can be copied (not strings)
    seconds: float  # median of the copies
    copies: int
    equal: bool  # whether the last copy, copied back, had the same bytes

    @property
    def gigabytes_per_second(self) -> float:
        """Rate of the copies, in 10^9 bytes per second; 0 if they took no measurable time."""
        return self.element_bytes / self.seconds / 1e9 if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class CallCost:
    """Extra time of a parallel call of a function compared with a serial call, in thread seconds.

    It depends on the function: with a short one, the threads fall asleep between calls and have to be woken each time.
    The time until they are awake is not CPU time: another operator, or another process, can use it.
    """

    function_seconds: float  # of a serial call of the function
    parallel_seconds: float  # extra time in a parallel map
    fused_seconds: float  # extra time in a map that is fused with the batch after it
    parallel_cpu_seconds: float | None = None  # the CPU time in `parallel_seconds`; None: all of it
    fused_cpu_seconds: float | None = None  # the CPU time in `fused_seconds`; None: all of it

    def extra_seconds(self, *, fused: bool) -> tuple[float, float]:
        """Returns the extra thread seconds and the extra CPU seconds."""
        seconds = self.fused_seconds if fused else self.parallel_seconds
        cpu_seconds = self.fused_cpu_seconds if fused else self.parallel_cpu_seconds
        return seconds, seconds if cpu_seconds is None else min(seconds, cpu_seconds)


@dataclass(frozen=True)
class Overheads:
    """Overheads, measured once per process (`measure/epochs.py`); the defaults are those of an ideal machine.

    Seconds are thread seconds.
    """

    next_seconds: float = 0.0  # per output element: fetching it in Python, in the consumer's thread
    wake_seconds: float = 0.0  # per element through a buffer: waking the thread that waits at its other end
    notify_seconds: float = 0.0  # per output element: what the consumer takes to wake a thread that waits for it
    buffer_seconds: float = 0.0  # per element through a buffer, on either side: locking and transfer
    interleave_seconds: float = 0.0  # per element of a parallel interleave: taking it from the reader threads
    calls: tuple[CallCost, ...] = ()  # shorter functions first
    spin_seconds: float = 0.0  # CPU time per call of idle threads that spin for work; none if all are busy
    crowded_speed: float = 1.0  # speed of a core while all available cores are busy, relative to one alone

    def extra_call_seconds(self, function_seconds: float, *, fused: bool) -> tuple[float, float]:
        """Returns the extra thread and CPU seconds of a parallel call, given the time of a serial call.

        Interpolates linearly between the measured functions.
        """
        known = [(cost.function_seconds, cost.extra_seconds(fused=fused)) for cost in self.calls]
        if not known:
            return 0.0, 0.0
        for (short, less), (long, more) in itertools.pairwise(known):
            if function_seconds <= short:
                return less
            if function_seconds < long:
                share = (function_seconds - short) / (long - short)
                return less[0] + (more[0] - less[0]) * share, less[1] + (more[1] - less[1]) * share
        return known[-1][1]


IDEAL = Overheads()


@dataclass(frozen=True)
class DetectedResources:
    """The resources that TensorFlow detects if the script configures nothing.

    TensorFlow counts the cores of the affinity mask and the free memory of the host; it reads neither a CFS quota
    nor a cgroup's memory limit (`port::NumSchedulableCPUs`, `port::AvailableRam`). None if a value could not be read.
    """

    autotune_cores: float | None = None  # AUTOTUNE's cpu_budget
    autotune_buffer_bytes: int | None = None  # AUTOTUNE's ram_budget: half of the free memory it detects
    pool_threads: int | None = None  # upper limit of AUTOTUNE for the parallel calls of one operator
    inter_op_threads: int | None = None  # in effect; tf.data functions use this pool unless tf.data has a private one
    intra_op_threads: int | None = None  # in effect; within one kernel
    inter_op_configured: int = 0  # by `tf.config.threading` or the environment; 0: left to TensorFlow
    intra_op_configured: int = 0


@dataclass(frozen=True)
class CpuLoad:
    """Usage of the available cores during the windows, from the kernel's counters before and after each window.

    Shares are of `cores` times `seconds`. Others are all other processes on these cores; stolen is the time taken by
    the hypervisor. Throttling is by the container's own CFS quota, over the same windows.
    """

    seconds: float  # total length of the observed windows
    windows: int
    cores: int  # in the affinity mask; their counters were read
    own_share: float
    others_share: float
    stolen_share: float = 0.0
    worst_others_share: float = 0.0  # in the window with the highest load by others
    quota_periods: int | None = None  # None: there is no quota, or its counters are not readable
    throttled_periods: int | None = None
    throttled_seconds: float | None = None

    @property
    def throttled_share(self) -> float | None:
        """Share of the quota periods in which this container was throttled."""
        if not self.quota_periods or self.throttled_periods is None:
            return None
        return self.throttled_periods / self.quota_periods


@dataclass(frozen=True)
class Machine:
    """Cores and memory available to this process, and those of the host."""

    cores_granted: float  # the smaller of CFS quota and affinity
    cores_host: int
    cores_affinity: int
    memory_limit_bytes: int  # limit of the container, or the host's memory
    memory_host_bytes: int
    memory_available_bytes: int
    processor: str
    system: str
    python: str
    tensorflow: str
    keras: str
    devices: tuple[str, ...]  # TensorFlow's device types and names
    device: str  # the target: "cpu", "gpu", "tpu"
    load_average: float | None = None
    quota_cores: float | None = None  # CFS quota only; None: no quota
    affinity: tuple[int, ...] = ()  # indices of the cores in the affinity mask; empty: unknown
    believed: DetectedResources | None = None  # resources detected by TensorFlow; None: not probed

    @property
    def cores_detected(self) -> int:
        """Cores that AUTOTUNE assumes: its own value if it reported one, else those of the affinity mask."""
        detected = self.believed.autotune_cores if self.believed else None
        return max(1, round(detected)) if detected else self.cores_affinity

    def difference(self, other: Machine) -> str:
        """Returns the first difference that keeps figures of both from being compared; "" if there is none."""
        for name, ours, theirs in (
            ("processor", self.processor, other.processor),
            ("cores", self.cores_granted, other.cores_granted),
            ("device", self.device, other.device),
            ("TensorFlow", self.tensorflow, other.tensorflow),
        ):
            if ours != theirs:
                return f"{name}: {ours} instead of {theirs}"
        return ""
