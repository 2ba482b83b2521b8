"""What `padded_batch` adds to elements of different lengths, and what batches of about one length would."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Padding:
    """Measured on a sample of the elements that a `padded_batch` gets, in their order.

    Shares are of the bytes of those components of a batch whose size varies.
    """

    share: float = 0.0  # that is padding, as written
    batches: int = 0  # whole ones in the sample
    why_not: str = ""  # why the elements cannot be put together by length, as the end of a sentence
    length_of: tuple[str | int, ...] = ()  # the way to the component whose first dimension is the length
    unpacked: bool = False  # whether an element is a tuple, which functions get as so many arguments
    boundaries: tuple[int, ...] = ()  # lengths at which the buckets after the first begin
    bucketed_share: float = 0.0  # that would be padding in these buckets

    @property
    def saved_share(self) -> float:
        """Of all bytes in the batches as written, those that buckets would leave out."""
        return 1 - (1 - self.share) / (1 - self.bucketed_share) if self.bucketed_share < 1 else 0.0
