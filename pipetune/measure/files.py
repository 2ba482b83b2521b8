"""How fast the files of a pipeline can be read: from its own source, from the files alone, with a cold page cache."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import mmap
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core import files
from pipetune.core.measurement import percent
from pipetune.core.storage import PageCacheResidency, SmallFileCosts, Sweep, SweepReader
from pipetune.measure import machine
from pipetune.measure.source_reads import Rates, sweep
from pipetune.timing import windows

SEGMENT_BYTES = 8 << 20
"""Bytes of one file that a thread reads sequentially before it takes the next segment, chosen by judgement."""

_BLOCK_BYTES = 1 << 20  # per system call, by judgement: smaller blocks cost more calls, larger ones delay the end

Segment = tuple[str, int, int]
"""A stretch of a file: path, offset of its first byte, length in bytes."""


def sweep_files(
    paths: Sequence[str], *, limit_seconds: float, seed: int = 0, before: Callable[[], None] | None = None
) -> Sweep | None:
    """Returns the rates of reading these files with 1 to 32 threads; None if there is nothing to read.

    Small files are opened one after another, a large one is read at several offsets.

    Args:
        paths: the files.
        limit_seconds: as in `sweep`.
        seed: as in `sweep`, and for the order of segments.
        before: as in `sweep`; if given, no segment is read twice in a window.
    """
    found = segments(paths)
    if not found:
        return None
    random.Random(seed).shuffle(found)
    again = SegmentQueue(found)

    def window(parallel: int, seconds: float) -> Rates:
        # Once read, a file is in the page cache: a cold window ends with the last segment and does not start over.
        stretches = SegmentQueue(found, once=True) if before is not None else again
        return Rates(bytes=read_rate(stretches, parallel, seconds))

    return sweep(SweepReader.FILES, window, limit_seconds=limit_seconds, seed=seed, before=before)


def segments(paths: Sequence[str]) -> list[Segment]:
    """Returns the segments of the files, in order; missing and empty files have none."""
    found = []
    for path in paths:
        try:
            size = os.path.getsize(path)
        except OSError:
            continue
        found += [(path, start, min(SEGMENT_BYTES, size - start)) for start in range(0, size, SEGMENT_BYTES)]
    return found


class SegmentQueue:
    """Distributes segments one after another, starting over after the last unless `once`; thread-safe."""

    def __init__(self, found: Sequence[Segment], *, once: bool = False) -> None:
        self._segments: Iterator[Segment] = iter(found) if once else itertools.cycle(found)
        self._lock = threading.Lock()

    def take(self) -> Segment | None:
        """Returns the next segment; None if none is left."""
        with self._lock:
            return next(self._segments, None)


def read_rate(stretches: SegmentQueue, parallel: int, seconds: float) -> float:
    """Returns the bytes per second that `parallel` threads read in about `seconds`, or until no segment is left."""
    totals = [0] * parallel
    ready, stop = threading.Barrier(parallel + 1), threading.Event()

    def work(number: int) -> None:
        block = memoryview(bytearray(_BLOCK_BYTES))
        ready.wait()
        while not stop.is_set():
            segment = stretches.take()
            if segment is None:
                break
            try:
                for count in _blocks(segment, block):
                    if stop.is_set():
                        break
                    totals[number] += count
            except OSError:
                time.sleep(0.001)  # the file was removed in the meantime: continue with the others

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(parallel)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join(max(0.0, started + seconds - time.perf_counter()))
    total, spent = sum(totals), time.perf_counter() - started
    stop.set()
    for thread in threads:
        thread.join()
    return total / spent


def _blocks(segment: Segment, block: memoryview) -> Iterator[int]:
    """Reads one segment and yields the number of bytes of each block."""
    path, start, length = segment
    end = start + length
    with open(path, "rb", buffering=0) as file:
        while start < end:
            count = os.preadv(file.fileno(), [block[: end - start]], start)
            if count == 0:
                break
            yield count
            start += count


_FILES = 256  # in the sample, from all over the data
_ROUNDS = 3  # of both ways, alternately
_MOST_BYTES = 64 << 20  # of the sample, by judgement: it is copied once, and read twice in each round


def compare(paths: Sequence[str], *, folder: str = "") -> SmallFileCosts | None:
    """Returns the costs of reading a sample of files individually and from one TFRecord file, in one thread.

    None if a file cannot be read or the sample is too large.

    Args:
        paths: paths of all files; a sample spread over all of them is read.
        folder: directory for the temporary TFRecord file; if it does not exist, the system's temporary directory.
    """
    chosen = list(paths[:: max(1, len(paths) // _FILES)])[:_FILES]
    with files.temporary_folder("files", within=folder if os.path.isdir(folder) else None) as place:
        together = os.path.join(place, "all.tfrecord")
        try:
            if not chosen or sum(map(os.path.getsize, chosen)) > _MOST_BYTES:
                return None
            with tf.io.TFRecordWriter(together) as writer:
                for path in chosen:
                    with open(path, "rb") as file:
                        writer.write(file.read())
            both = (tf.data.Dataset.from_tensor_slices(chosen).map(tf.io.read_file), tf.data.TFRecordDataset(together))
            rounds = [[_seconds(variant) for variant in both] for _ in range(_ROUNDS)]
        except (OSError, tf.errors.OpError):
            return None
    separate, as_one = (statistics.median(seconds) / len(chosen) for seconds in zip(*rounds, strict=True))
    return SmallFileCosts(len(chosen), separate, as_one)


def _seconds(dataset: Any) -> float:
    """Returns the seconds for one pass over all elements, which are consumed inside TensorFlow."""
    plain = windows.without_optimizations(dataset)
    started = time.perf_counter()
    plain.reduce(0, lambda total, content: total + tf.strings.length(content)).numpy()
    return time.perf_counter() - started


_MAPPED_BYTES = 256 << 20  # mapped at a time; `mincore` returns one byte per page
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Pages:
    """Pages of files, and how many of them are in the page cache."""

    pages: int = 0
    resident: int = 0
    hidden: int = 0  # files whose residency only their owner may see
    unreadable: int = 0  # files that could not be opened

    @property
    def share(self) -> float | None:
        """Share of the pages that are in the page cache; None if there are no pages."""
        return self.resident / self.pages if self.pages else None


def count_resident(paths: Iterable[str], *, limit_seconds: float = 1.0) -> Pages:
    """Returns how many pages of these files are in the page cache; stops after `limit_seconds`."""
    end = time.perf_counter() + limit_seconds
    looked_at = resident = hidden = unreadable = 0
    for path in paths:
        if time.perf_counter() > end:
            break
        try:
            with open(path, "rb", buffering=0) as file:
                if not _residency_visible(file.fileno(), path):
                    hidden += 1
                    continue
                for pages, held in _mapped(file.fileno()):
                    looked_at += pages
                    resident += held
        except OSError:
            unreadable += 1
    return Pages(looked_at, resident, hidden, unreadable)


def drop_from_page_cache(paths: Iterable[str], *, limit_seconds: float = 5.0) -> None:
    """Asks the system to drop these files from its page cache, as far as the time suffices.

    The system may keep pages: `count_resident` counts them.
    """
    end = time.perf_counter() + limit_seconds
    for path in paths:
        if time.perf_counter() > end:
            return
        # Some files cannot be opened, are pipes, or are on a file system that does not support the advice.
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def filesystem(path: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """Returns the type of the file system that holds a file ("ext4", "tmpfs", "overlay"); "" if unknown."""
    best, kind = "", ""
    real = os.path.realpath(path)
    for mount in machine.mounts(mountinfo):
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if inside and len(mount.point) >= len(best):  # of two mounts on one point, the later hides the earlier
            best, kind = mount.point, mount.kind
    return kind


def _residency_visible(descriptor: int, path: str) -> bool:
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


MOST_RESIDENT_SHARE = 0.05
"""Share of the pages: with more than this still in the page cache, a window was not cold."""

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_OWN_CACHE = frozenset({"zfs", "nfs", "nfs4", "cifs", "9p", "virtiofs", "fuse", "ceph", "glusterfs", "lustre"})
_LOOK_SECONDS = 0.5  # to count resident pages, by judgement: in less time fewer files are inspected


def residency(paths: Sequence[str], *, cold: bool) -> PageCacheResidency:
    """Returns how much of these files is in the page cache; with `cold`, also how much stays after dropping them."""
    if not paths:
        return PageCacheResidency(why="the pipeline names no local file")
    before = count_resident(paths, limit_seconds=_LOOK_SECONDS)
    if not cold:
        return PageCacheResidency(share=before.share, why="" if before.share is not None else _unknown(before))
    drop_from_page_cache(paths)
    after = count_resident(paths, limit_seconds=_LOOK_SECONDS)
    return PageCacheResidency(share=before.share, left=after.share, why=_why(paths, after))


def filesystems(paths: Iterable[str]) -> tuple[str, ...]:
    """Returns the types of these files' file systems, each once; checks one file per folder, up to 100 folders."""
    folders = {path.rpartition("/")[0]: path for path in paths}
    return tuple(sorted({kind for path in list(folders.values())[:100] if (kind := filesystem(path))}))


def _why(paths: Sequence[str], after: Pages) -> str:
    kinds = filesystems(paths)
    in_memory = [kind for kind in kinds if kind in _IN_MEMORY]
    if in_memory:
        return f"files on {in_memory[0]} are held in memory and can never be cold"
    if after.share is None:
        return _unknown(after)
    if after.share > MOST_RESIDENT_SHARE:
        return (
            f"{percent(after.share)} of the pages stayed in the page cache: they were just written, or "
            "another process has mapped them"
        )
    beyond = [kind for kind in kinds if kind.partition(".")[0] in _OWN_CACHE]
    if beyond:
        return f"{beyond[0]} has its own cache, or one on its server, that cannot be dropped from this machine"
    return ""


def _unknown(pages: Pages) -> str:
    if pages.hidden:
        return "only the owner of the files may see how much of them is in memory"
    return "the files could not be opened" if pages.unreadable else "the files are empty"
