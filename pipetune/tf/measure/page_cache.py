"""The page cache of given files: how much of them it holds, and dropping only their pages.

`posix_fadvise(POSIX_FADV_DONTNEED)` drops clean pages that no process has mapped and does not report the rest, so
`mincore` checks whether they are gone (posix_fadvise(2), mincore(2)). Files are opened read-only and never changed.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_MAPPED_BYTES = 256 << 20  # mapped at a time; `mincore` returns one byte per page
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Pages:
    """Pages of files, and how many of them are in the page cache."""

    looked_at: int = 0
    resident: int = 0
    hidden: int = 0  # files whose residency only their owner may see
    unreadable: int = 0  # files that could not be opened
    complete: bool = True  # False: the time limit ended before the last file

    @property
    def share(self) -> float | None:
        return self.resident / self.looked_at if self.looked_at else None


def supported() -> bool:
    """Whether this system can inspect and drop its page cache: Linux can."""
    return sys.platform.startswith("linux") and hasattr(os, "posix_fadvise")


def look(paths: Iterable[str], *, limit_seconds: float = 1.0) -> Pages:
    """Counts the pages of these files that are in the page cache; stops after `limit_seconds`."""
    end = time.perf_counter() + limit_seconds
    looked_at = resident = hidden = unreadable = 0
    complete = True
    for path in paths:
        if time.perf_counter() > end:
            complete = False
            break
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            unreadable += 1
            continue
        try:
            if not _told(descriptor, path):
                hidden += 1
                continue
            for pages, held in _mapped(descriptor):
                looked_at += pages
                resident += held
        except OSError:
            unreadable += 1
        finally:
            os.close(descriptor)
    return Pages(looked_at, resident, hidden, unreadable, complete)


def drop(paths: Iterable[str], *, limit_seconds: float = 5.0) -> bool:
    """Asks the system to drop these files from its page cache; False if the time limit ended before the last.

    `look` tells whether they are gone.
    """
    end = time.perf_counter() + limit_seconds
    for path in paths:
        if time.perf_counter() > end:
            return False
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:  # a pipe, or a file system that does not support the advice
            pass
        finally:
            os.close(descriptor)
    return True


def filesystem(path: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds a file ("ext4", "tmpfs", "overlay"); "" if unknown."""
    best, kind = "", ""
    try:
        lines = mountinfo.read_text().splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two mounts on one point, the later hides the earlier
            best, kind = point, after.split(" ")[0]
    return kind


def _told(descriptor: int, path: str) -> bool:
    """Whether the kernel reveals which pages are resident: since 5.2 only to the owner and to those who may write."""
    owner = os.fstat(descriptor).st_uid
    return os.geteuid() in (0, owner) or os.access(path, os.W_OK)


def _mapped(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yields the number of pages and of resident pages, for one stretch of the file after another."""
    size, libc = os.fstat(descriptor).st_size, _libc()
    for start in range(0, size, _MAPPED_BYTES):
        length = min(_MAPPED_BYTES, size - start)
        answer = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
        # Python's own mmap does not expose the address of a read-only mapping.
        address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
        if address is None or address == _FAILED:
            raise OSError(ctypes.get_errno(), "mmap failed")
        try:
            if libc.mincore(address, length, answer.ctypes.data):
                raise OSError(ctypes.get_errno(), "mincore failed")
        finally:
            libc.munmap(address, length)
        yield len(answer), int((answer & 1).sum())


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return libc
