"""Processes that take a core now and then, as other work on a machine does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_NEIGHBOUR = """
import os, random, sys, time
draw, parent = random.Random(int(sys.argv[1])), os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + draw.expovariate(1 / 1.5)
    while time.monotonic() < end:
        pass
    time.sleep(draw.expovariate(1 / 1.5))
"""


@contextmanager
def neighbours(seeds: Iterable[int]) -> Iterator[None]:
    """Context manager: runs a process for each seed that takes a core for a while and rests for a while.

    Each while has an exponential length with a mean of 1.5 s.
    """
    processes = [subprocess.Popen((sys.executable, "-c", _NEIGHBOUR, str(seed))) for seed in seeds]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
