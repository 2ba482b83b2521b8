"""What a machine and TensorFlow's runtime take beside the operators' own work."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class CallCost:
    """What a parallel call of some function takes beyond a serial one, in seconds of one thread.

    Not the same for every function: around a short one the threads fall asleep and have to be woken each time. What
    passes until they are awake is no work of a processor: another operator, or another process, can use it.
    """

    function_seconds: float  # a serial call of the function
    parallel_seconds: float  # more, in a parallel map
    fused_seconds: float  # more, in a map that is one operator with the batch behind it
    parallel_cpu_seconds: float | None = None  # of `parallel_seconds`, those of processors; None: all
    fused_cpu_seconds: float | None = None  # of `fused_seconds`

    def beyond(self, *, fused: bool) -> tuple[float, float]:
        """Seconds more of a thread, and of processors."""
        seconds = self.fused_seconds if fused else self.parallel_seconds
        cpu_seconds = self.fused_cpu_seconds if fused else self.parallel_cpu_seconds
        return seconds, seconds if cpu_seconds is None else min(seconds, cpu_seconds)


@dataclass(frozen=True)
class Overheads:
    """Measured once per process (`tf/measure/overheads.py`); the defaults are those of an ideal machine.

    Seconds are those of one thread.
    """

    next_seconds: float = 0.0  # per element of the output: taking it in Python, in the consumer's thread
    wake_seconds: float = 0.0  # per element through a buffer whose other side waits: waking that
    buffer_seconds: float = 0.0  # per element through a buffer, on either side: locking it, handing over
    interleave_seconds: float = 0.0  # per element of a parallel interleave: taking it from the threads that read
    calls: tuple[CallCost, ...] = ()  # of shorter functions first
    spin_seconds: float = 0.0  # CPU time per call that idle threads look for work, which they do not where all are busy
    crowded_speed: float = 1.0  # of a core while all that are granted are busy, over that of one alone

    def of_call(self, function_seconds: float, *, fused: bool) -> tuple[float, float]:
        """What a parallel call takes beyond a serial one of so many seconds: seconds of a thread, and of processors.

        Between the functions that were measured along a line.
        """
        known = [(cost.function_seconds, cost.beyond(fused=fused)) for cost in self.calls]
        if not known:
            return 0.0, 0.0
        for (short, less), (long, more) in itertools.pairwise(known):
            if function_seconds <= short:
                return less
            if function_seconds < long:
                share = (function_seconds - short) / (long - short)
                return less[0] + (more[0] - less[0]) * share, less[1] + (more[1] - less[1]) * share
        return known[-1][1]


IDEAL = Overheads()
