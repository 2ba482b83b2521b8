"""The machine of a session: what the host has, what the container provides, what TensorFlow detects."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.believed import Believed


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
    believed: Believed | None = None  # resources detected by TensorFlow; None: not probed

    @property
    def cores_believed(self) -> int:
        """Cores that AUTOTUNE assumes: its own value if it reported one, else those of the affinity mask."""
        said = self.believed.autotune_cores if self.believed else None
        return max(1, round(said)) if said else self.cores_affinity
