"""The resources that TensorFlow detects on this machine, and the CPU load during the measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Believed:
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
class Load:
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
