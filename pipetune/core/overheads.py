"""Overheads of the machine and of TensorFlow's runtime, in addition to the operators' own work."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class CallCost:
    """Extra time of a parallel call of a function compared with a serial call, in thread seconds.

    It depends on the function: with a short one, the threads fall asleep between calls and have to be woken each time.
    The time until they are awake is not CPU time: another operator, or another process, can use it.
    """

    function_seconds: float  # of a serial call of the function
    parallel_seconds: float  # extra time in a parallel map
    fused_seconds: float  # extra time in a map that is fused with the batch after it
    parallel_cpu_seconds: float | None = None  # the CPU time in `parallel_seconds`; None: all of it
    fused_cpu_seconds: float | None = None  # the CPU time in `fused_seconds`; None: all of it

    def beyond(self, *, fused: bool) -> tuple[float, float]:
        """Returns the extra thread seconds and the extra CPU seconds."""
        seconds = self.fused_seconds if fused else self.parallel_seconds
        cpu_seconds = self.fused_cpu_seconds if fused else self.parallel_cpu_seconds
        return seconds, seconds if cpu_seconds is None else min(seconds, cpu_seconds)


@dataclass(frozen=True)
class Overheads:
    """Overheads, measured once per process (`tf/measure/overheads.py`); the defaults are those of an ideal machine.

    Seconds are thread seconds.
    """

    next_seconds: float = 0.0  # per output element: fetching it in Python, in the consumer's thread
    wake_seconds: float = 0.0  # per element through a buffer: waking the thread that waits on its other side
    buffer_seconds: float = 0.0  # per element through a buffer, on either side: locking and transfer
    interleave_seconds: float = 0.0  # per element of a parallel interleave: taking it from the reader threads
    calls: tuple[CallCost, ...] = ()  # shorter functions first
    spin_seconds: float = 0.0  # CPU time per call of idle threads that spin for work; none if all are busy
    crowded_speed: float = 1.0  # speed of a core while all available cores are busy, relative to one alone

    def of_call(self, function_seconds: float, *, fused: bool) -> tuple[float, float]:
        """Returns the extra thread and CPU seconds of a parallel call, given the time of a serial call.

        Interpolates linearly between the measured functions.
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
