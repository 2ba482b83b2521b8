"""What a pipeline reads from files: which, how much, whether from memory, and how fast they can be read."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipetune.core.measurement import Interval


@dataclass(frozen=True)
class Level:
    """What so many parallel reads delivered."""

    parallel: int
    bytes_per_second: Interval | None = None
    elements_per_second: Interval | None = None  # of the pipeline's own source


class Reader(enum.StrEnum):
    """Who reads in a sweep."""

    FILES = "files"  # the named files' bytes, by threads of pipetune's own: what storage delivers
    SOURCE = "source"  # the pipeline's own source, nothing behind it


@dataclass(frozen=True)
class Sweep:
    """Reads at several parallelisms, in interleaved rounds, and where more of them gain nothing."""

    reader: Reader
    levels: tuple[Level, ...]
    node: str = ""  # the operator that reads, where it is the pipeline's own source
    cold: bool = False  # the page cache was dropped before each window
    knee: int | None = None  # parallel reads from which more gain nothing; None: still rising at the last level
    falling: bool = False  # more than that many make it slower
    ceiling: float | None = None  # bytes per second where the curve is highest; elements where bytes are unknown


@dataclass(frozen=True)
class Residency:
    """How much of the files was in the page cache, and what became of the wish to drop it."""

    share: float | None = None  # of the pages looked at, while measured; None where the system does not tell
    left: float | None = None  # of the pages, after dropping them; None: that was not asked for, or not seen
    why: str = ""  # why it is not known, or why pages stayed


SMALL_FILES, SMALL_FILE_BYTES = 1000, 256 << 10
"""So many files, or more, of so many bytes on average, or fewer: opening them may be what reading them costs."""


@dataclass(frozen=True)
class SmallFiles:
    """Seconds to read some of the files one by one, each file, and the same bytes from one TFRecord file."""

    files: int  # so many of them, from all places
    apart_seconds: float
    together_seconds: float


@dataclass(frozen=True)
class FileUse:
    """The files one pipeline reads, and how fast.

    Bytes per element are of the pipeline's output, read by system calls in its later epochs.
    """

    files: int = 0  # named by the pipeline and there
    bytes_total: int = 0  # their sizes together
    complete: bool = True  # False: there are more than could be looked at in time
    directory: str = ""  # the folder they have in common
    kinds: tuple[str, ...] = ()  # their suffixes, the commonest first
    remote: tuple[str, ...] = ()  # schemes of names that are not local: "gs", "s3"
    remote_files: int = 0
    opened: int = 0  # seen open while the pipeline ran, beside those it names
    filesystems: tuple[str, ...] = ()
    bytes_per_element: float | None = None
    storage_bytes_per_element: float | None = None  # that part of it which came from storage
    needed: float | None = None  # bytes per second that the model could take
    reached: float | None = None  # bytes per second with the input alone, as written
    reached_training: float | None = None  # bytes per second while training
    cold: bool = False  # --cold: dropped from the page cache before each window
    residency: Residency = Residency()
    sweeps: tuple[Sweep, ...] = ()
    small: SmallFiles | None = None  # None: they are few or large, or it was not measured
    notes: tuple[str, ...] = ()

    @property
    def many_small(self) -> bool:
        """Whether there are so many files, and so small, that opening them may count."""
        return self.files >= SMALL_FILES and self.bytes_total <= SMALL_FILE_BYTES * self.files

    @property
    def storage_bytes_per_second(self) -> float | None:
        """The most the files were seen to deliver; None where that was not measured."""
        return next((sweep.ceiling for sweep in self.sweeps if sweep.reader is Reader.FILES), None)
