"""Padding that `padded_batch` adds to elements of different lengths, and that of batches of similar lengths."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Padding:
    """Padding, measured on a sample of the input elements of a `padded_batch`, in their order.

    Shares refer to the bytes of the components of a batch whose size varies.
    """

    share: float = 0.0  # of padding, in the original pipeline
    batches: int = 0  # full batches in the sample
    why_not: str = ""  # why the elements cannot be bucketed by length, as the end of a sentence
    length_of: tuple[str | int, ...] = ()  # path to the component whose first dimension is the length
    unpacked: bool = False  # whether an element is a tuple, which functions receive as separate arguments
    boundaries: tuple[int, ...] = ()  # lower length bounds of the buckets after the first
    bucketed_share: float = 0.0  # of padding with these buckets

    @property
    def saved_share(self) -> float:
        """Share of the bytes of the original batches that buckets would save."""
        return 1 - (1 - self.share) / (1 - self.bucketed_share) if self.bucketed_share < 1 else 0.0
