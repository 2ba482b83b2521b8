"""The files a pipeline reads: which ones, how much, whether from the page cache, and how fast."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipetune.core.measurement import Interval


@dataclass(frozen=True)
class Level:
    """Rate of a number of parallel reads."""

    parallel: int
    bytes_per_second: Interval | None = None
    elements_per_second: Interval | None = None  # of the pipeline's own source


class Reader(enum.StrEnum):
    """Who reads in a sweep."""

    FILES = "files"  # pipetune's own threads read the bytes of the files: the rate of storage
    SOURCE = "source"  # the pipeline's own source alone


@dataclass(frozen=True)
class Sweep:
    """Reads at several levels of parallelism, in interleaved rounds, and the level beyond which rates do not rise."""

    reader: Reader
    levels: tuple[Level, ...]
    node: str = ""  # the reading operator, if the reader is the pipeline's source
    cold: bool = False  # the page cache was dropped before each window
    knee: int | None = None  # parallel reads beyond which the rate does not rise; None: rises to the last level
    falling: bool = False  # the rate falls beyond the knee
    ceiling: float | None = None  # highest bytes per second of the curve; elements if bytes are unknown


@dataclass(frozen=True)
class Residency:
    """How much of the files was in the page cache, and the result of dropping them from it."""

    share: float | None = None  # of the inspected pages; None: the system cannot tell
    left: float | None = None  # share after dropping them; None: not requested, or unknown
    why: str = ""  # why a share is unknown, or why pages stayed


SMALL_FILES, SMALL_FILE_BYTES = 1000, 256 << 10
"""At least this many files of at most this many bytes on average: opening them may dominate the cost of reading."""


@dataclass(frozen=True)
class SmallFiles:
    """Seconds per file to read a sample of files individually, and to read the same bytes from one TFRecord file."""

    files: int  # size of the sample, spread over all files
    apart_seconds: float
    together_seconds: float


@dataclass(frozen=True)
class FileUse:
    """The files one pipeline reads, and how fast.

    Bytes per element are per output element, read by system calls in later epochs.
    """

    files: int = 0  # named by the pipeline and existing
    bytes_total: int = 0  # total size
    complete: bool = True  # False: there are more than could be inspected in time
    directory: str = ""  # their common folder
    kinds: tuple[str, ...] = ()  # their suffixes, the most common first
    remote: tuple[str, ...] = ()  # schemes of names that are not local: "gs", "s3"
    remote_files: int = 0
    opened: int = 0  # files seen open during the run, in addition to those named
    filesystems: tuple[str, ...] = ()
    bytes_per_element: float | None = None
    storage_bytes_per_element: float | None = None  # the part that came from storage
    needed: float | None = None  # bytes per second that the model could consume
    reached: float | None = None  # bytes per second of the original input alone
    reached_training: float | None = None  # bytes per second while training
    cold: bool = False  # --cold: files are dropped from the page cache before each window
    residency: Residency = Residency()
    sweeps: tuple[Sweep, ...] = ()
    small: SmallFiles | None = None  # None: files are few or large, or not measured
    notes: tuple[str, ...] = ()

    @property
    def many_small(self) -> bool:
        """Whether the files are so many and so small that opening them may matter."""
        return self.files >= SMALL_FILES and self.bytes_total <= SMALL_FILE_BYTES * self.files

    @property
    def storage_bytes_per_second(self) -> float | None:
        """The highest measured rate of reading the files; None if not measured."""
        return next((sweep.ceiling for sweep in self.sweeps if sweep.reader is Reader.FILES), None)
