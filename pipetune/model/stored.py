"""What elements are of on storage, and what a worker reads there to get its own; keys as in `coverage`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stored:
    """The files that the data comes from, and the bytes of them that each element is of.

    What a reader fetches ahead of its records is in neither.
    """

    of_key: Mapping[int, float]  # bytes that one element with this key is of; elements that share a file, evenly
    files: tuple[int, ...]  # bytes of each, by its number
    file_bits: int | None = None  # a key without so many lower bits is the number of its file; None: it tells none
    ends_early: bool = False  # reading stops once enough elements have come

    def used(self, given: Mapping[int, int]) -> int | None:
        """Bytes that these elements are of, an element counted as often as it comes; None where one is not known."""
        if not given.keys() <= self.of_key.keys():
            return None
        return round(sum(count * self.of_key[key] for key, count in given.items()))

    def read(self, wanted: Mapping[int, int], given: Mapping[int, int], *, everything: bool) -> int | None:
        """Bytes that a worker reads to get the elements `given` of all that are `wanted`; None where it is not known.

        Args:
            everything: it reads all of the data; else the files that its own elements lie in. One from which nothing
                comes, because all of it is left out, then counts for nobody.
        """
        if everything:
            return self.used(wanted) if self.ends_early else sum(self.files)
        if self.file_bits is None or not given.keys() <= self.of_key.keys():
            return None
        if self.ends_early:
            return self.used(dict.fromkeys(given, 1))
        return sum(self.files[number] for number in {key >> self.file_bits for key in given})
