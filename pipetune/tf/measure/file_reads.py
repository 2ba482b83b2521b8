"""Reads the bytes of given files with several threads at once: the throughput of storage or of the page cache."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from pipetune.core.storage import Reader, Sweep
from pipetune.tf.measure.sweep import Rates, sweep

SEGMENT_BYTES = 8 << 20
"""Bytes of one file that a thread reads sequentially before it takes the next segment."""

_BLOCK_BYTES = 1 << 20

Segment = tuple[str, int, int]
"""A stretch of a file: path, offset of its first byte, length in bytes."""


def sweep_files(
    paths: Sequence[str], *, limit_seconds: float, seed: int = 0, before: Callable[[], None] | None = None
) -> Sweep | None:
    """Measures the rate of reading these files with 1 to 32 threads; None if there is nothing to read.

    The arguments are as in `sweep`. Small files are opened one after another, a large one is read at several offsets.
    """
    found = segments(paths)
    if not found:
        return None
    random.Random(seed).shuffle(found)
    again = InTurn(found)

    def window(parallel: int, seconds: float) -> Rates:
        # Once read, a file is in the page cache: a cold window ends with the last segment and does not start over.
        return Rates(bytes=read(InTurn(found, once=True) if before is not None else again, parallel, seconds))

    return sweep(
        Reader.FILES,
        window,
        limit_seconds=limit_seconds,
        seed=seed,
        before=before,
    )


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


class InTurn:
    """Distributes segments one after another, starting over after the last; thread-safe."""

    def __init__(self, found: Sequence[Segment], *, once: bool = False) -> None:
        """With `once`, it does not start over."""
        self._segments, self._once, self._next, self._lock = found, once, 0, threading.Lock()

    def take(self) -> Segment | None:
        with self._lock:
            if self._once and self._next >= len(self._segments):
                return None
            taken = self._segments[self._next % len(self._segments)]
            self._next += 1
        return taken


def read(stretches: InTurn, parallel: int, seconds: float) -> float:
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
                time.sleep(0.001)  # the file was removed meanwhile: continue with the others

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
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            count = os.preadv(descriptor, [block[: end - start]], start)
            if count == 0:
                break
            yield count
            start += count
    finally:
        os.close(descriptor)
