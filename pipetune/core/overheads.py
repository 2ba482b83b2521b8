"""What a machine and TensorFlow's runtime take beside the operators' own work."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class CallCost:
    """What a parallel call of some function takes beyond a serial one, in seconds of one thread.

    Not the same for every function: around a short one the threads fall asleep and have to be woken each time.
    """

    function_seconds: float  # a serial call of the function
    parallel_seconds: float  # more, in a parallel map
    fused_seconds: float  # more, in a map that is one operator with the batch behind it


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

    def call_seconds(self, function_seconds: float, *, fused: bool) -> float:
        """What a parallel call takes beyond a serial one of so many seconds: between those measured, along a line."""
        known = [(cost.function_seconds, cost.fused_seconds if fused else cost.parallel_seconds) for cost in self.calls]
        if not known:
            return 0.0
        for (short, less), (long, more) in itertools.pairwise(known):
            if function_seconds <= short:
                return less
            if function_seconds < long:
                return less + (more - less) * (function_seconds - short) / (long - short)
        return known[-1][1]


IDEAL = Overheads()
