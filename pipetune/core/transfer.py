"""The copy of one element from host memory to an accelerator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Transfer:
    """Copies of one element to `device`, timed individually and synchronously."""

    device: str  # TensorFlow's name: "/GPU:0"
    element_bytes: int  # of the components that can be copied (not strings)
    seconds: float  # median of the copies
    copies: int
    equal: bool  # whether the last copy, copied back, had the same bytes

    @property
    def gigabytes_per_second(self) -> float:
        return self.element_bytes / self.seconds / 1e9 if self.seconds > 0 else 0.0
