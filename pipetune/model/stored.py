"""The bytes on storage behind the elements, and what a worker reads to get its own; keys as in `coverage`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stored:
    """The files that the data comes from, and the number of bytes in them for each element.

    Read-ahead of the readers is included in neither.
    """

    of_key: Mapping[int, float]  # bytes of one element with this key; elements share a file evenly
    files: tuple[int, ...]  # size of each file in bytes, by file index
    file_bits: int | None = None  # key >> file_bits is the index of the file; None: keys do not contain it
    ends_early: bool = False  # reading stops once enough elements were read

    def used(self, given: Mapping[int, int]) -> int | None:
        """Bytes of these elements, repeated elements counted each time; None if one of them is unknown."""
        if not given.keys() <= self.of_key.keys():
            return None
        return round(sum(count * self.of_key[key] for key, count in given.items()))

    def read(self, wanted: Mapping[int, int], given: Mapping[int, int], *, everything: bool) -> int | None:
        """Bytes that a worker reads to get the elements `given` out of `wanted`, all of the data; None if unknown.

        Args:
            wanted: all elements of the data.
            given: the elements that the worker received.
            everything: whether it reads all of the data, or only the files that contain its own elements. In the second
                case, a file from which every element is left out is counted for no worker.
        """
        if everything:
            return self.used(wanted) if self.ends_early else sum(self.files)
        if self.file_bits is None or not given.keys() <= self.of_key.keys():
            return None
        if self.ends_early:
            return self.used(dict.fromkeys(given, 1))
        return sum(self.files[number] for number in {key >> self.file_bits for key in given})
