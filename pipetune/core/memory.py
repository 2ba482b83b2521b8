"""Memory held by a running pipeline, and its growth over time."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.measurement import Interval


@dataclass(frozen=True)
class Held:
    """Contents of the buffers of one kind of operator while the pipeline ran; `name` is the runtime's."""

    name: str
    elements: float
    bytes: float


@dataclass(frozen=True)
class Growth:
    """Slope of the process's resident memory over consumed elements, once all buffers are full."""

    bytes_per_element: Interval
    elements: int  # consumed during the observation
    grown_bytes: float  # from the first reading to the last
    steady: bool  # significant, large enough to matter, and not slowing down
    epoch_elements: int | None = None  # elements of the output per epoch, if known

    @property
    def epochs(self) -> float | None:
        """Epochs covered by the observation; None if their length is unknown."""
        return self.elements / self.epoch_elements if self.epoch_elements else None
