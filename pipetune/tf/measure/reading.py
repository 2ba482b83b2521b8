"""What a running pipeline reads: bytes by the kernel's counters of this process, and the files it has open."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetune.tf.measure import failures, windows

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

_LOOK_SECONDS = 0.005
_OWN = ("/proc/", "/sys/", "/dev/", sys.prefix + "/", sys.base_prefix + "/lib")  # not data
_NOT_DATA = (".py", ".pyc", ".so", ".log")


@dataclass(frozen=True)
class Counts:
    """Bytes that this process has read since it started (proc(5), /proc/pid/io)."""

    called: int  # rchar: by system calls, from memory or not
    fetched: int  # read_bytes: from storage


@dataclass(frozen=True)
class Reading:
    """What a running pipeline read in one period of time."""

    elements: int
    seconds: float
    bytes_per_element: float | None  # None if the system does not count
    storage_bytes_per_element: float | None
    opened: frozenset[str]  # regular files seen open for reading that were not open before


def counts(path: Path = Path("/proc/self/io")) -> Counts | None:
    """Returns the kernel's counters; None if it has none."""
    try:
        found = dict(line.split(": ") for line in path.read_text().splitlines())
        return Counts(int(found["rchar"]), int(found["read_bytes"]))
    except (OSError, ValueError, KeyError):
        return None


def observe(dataset: Any, *, seconds: float) -> Reading:
    """Runs `dataset`, repeated forever, for about `seconds` after its first elements, and counts what it reads.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    windows.settle()
    iterator: Any = None
    watch = OpenFiles()
    try:
        with failures.told(), watch:
            iterator = iter(windows.endless(dataset))
            started = time.perf_counter()
            next(iterator)
            filled = time.perf_counter()  # shuffle buffers are full now
            while time.perf_counter() < filled + min(seconds / 4, 2 * (filled - started)):
                next(iterator)
            before, started, elements = counts(), time.perf_counter(), 0
            while elements == 0 or time.perf_counter() < started + seconds:
                next(iterator)
                elements += 1
            spent, after = time.perf_counter() - started, counts()
    finally:
        del iterator
        windows.settle()
    read = None if before is None or after is None else Counts(
        after.called - before.called, after.fetched - before.fetched
    )  # fmt: skip
    return Reading(
        elements=elements,
        seconds=spent,
        bytes_per_element=None if read is None else read.called / elements,
        storage_bytes_per_element=None if read is None else read.fetched / elements,
        opened=frozenset(watch.seen),
    )


class OpenFiles:
    """Context manager that polls which data files this process has open for reading; collects them in `seen`."""

    def __init__(self, folder: Path = Path("/proc/self")) -> None:
        self._folder = folder
        self._before: set[str] = set()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self.seen: set[str] = set()

    def __enter__(self) -> OpenFiles:
        self._before = self.look()
        self._thread = threading.Thread(target=self._watch, name="pipetune-open-files", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> set[str]:
        """Returns the data files that are open for reading now and were not seen before."""
        found: set[str] = set()
        try:
            descriptors = os.listdir(self._folder / "fd")
        except OSError:
            return found
        for descriptor in descriptors:
            try:
                name = os.readlink(self._folder / "fd" / descriptor)
                if name in self._before or name in self.seen or not _may_be_data(name):
                    continue
                if stat.S_ISREG(os.stat(name).st_mode) and self._read_only(descriptor):
                    found.add(name)
            except OSError:
                continue  # closed meanwhile
        return found

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_SECONDS):
            self.seen |= self.look()

    def _read_only(self, descriptor: str) -> bool:
        for line in (self._folder / "fdinfo" / descriptor).read_text().splitlines():
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE == os.O_RDONLY
        return False


def _may_be_data(name: str) -> bool:
    return name.startswith("/") and not name.startswith(_OWN) and not name.endswith((*_NOT_DATA, " (deleted)"))
