"""Simulates several processes that run the same pipeline on one machine, to predict their combined rate.

Each process has the segments of the pipeline (`model.segments`) one after another, with a buffer in front of each. A
thread takes an element, works on it, waits if the operator waits, and passes it on when there is room. All working
threads share the cores evenly; a core is slower while the others are busy (`Overheads`). Work takes its measured
time: nothing is random, so a simulation gives the same result each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipetune.core.machine import IDEAL
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.model.segments import Segment, split_into_segments

BUFFER_ELEMENTS = 2
"""Room between one segment and the next, in elements of the output, besides the calls in flight."""

_ELEMENTS = 48  # elements that each process delivers; the rate is that of the second half


def combined_rate(pipeline: Pipeline, profile: Profile, cores: float, *, processes: int) -> float:
    """Returns the combined rate of several processes in elements of the output per second, without a storage bound.

    Args:
        pipeline: the pipeline that each process runs.
        profile: its measured costs.
        cores: cores of the machine; AUTOTUNE in every process assumes that it has all of them.
        processes: number of processes.
    """
    overheads = profile.overheads or IDEAL
    segments = split_into_segments(pipeline, profile, cores, overheads=overheads)
    return simulate(segments, processes=processes, cores=cores, crowded_speed=overheads.crowded_speed)


def simulate(
    segments: Sequence[Segment], *, processes: int, cores: float, crowded_speed: float = 1.0, elements: int = _ELEMENTS
) -> float:
    """Returns the combined rate of all processes in elements per second; infinite if nothing takes time.

    Args:
        segments: segments of one process, sources first. CPU time beyond the wall time is that of further threads.
        processes: number of processes.
        cores: cores that they share.
        crowded_speed: speed of a core while all cores are busy, relative to one alone.
        elements: elements that each process delivers before it ends.
    """
    stages = [_SimulatedSegment.of(segment) for segment in segments if segment.seconds > 0 or _cpu_seconds(segment) > 0]
    if not stages:
        return float("inf")
    longest = max(stage.work_seconds + stage.wait_seconds for stage in stages)
    # Staggered starts: otherwise all processes would work and wait in lockstep.
    running = [_Process(stages, start_delay_seconds=longest * place / processes) for place in range(processes)]
    now, half, counted_from = 0.0, processes * (elements // 2), 0.0
    delivered = 0
    while delivered < processes * elements:
        for process in running:
            process.start_calls()
        calls = [call for process in running for call in process.calls]
        pace = _cpu_seconds_per_core_second(calls, cores, crowded_speed)
        step = min(call.left(pace) for call in calls if not call.done)
        now += step
        for call in calls:
            call.advance(step, pace)
        before, delivered = delivered, delivered + sum(process.pass_on() for process in running)
        if before < half <= delivered:
            half, counted_from = delivered, now
    return (delivered - half) / (now - counted_from)


@dataclass(frozen=True)
class _SimulatedSegment:
    """Cost of one call of a segment, and how many calls run at once."""

    work_seconds: float  # CPU time
    wait_seconds: float  # time without using a CPU
    cores: float  # cores that one call keeps busy while it works
    parallel_calls: int

    @classmethod
    def of(cls, segment: Segment) -> _SimulatedSegment:
        cpu_seconds = _cpu_seconds(segment)
        wide = cpu_seconds / segment.seconds if cpu_seconds > segment.seconds > 0 else 1.0
        waits = max(0.0, segment.seconds - cpu_seconds)
        return cls(cpu_seconds, waits, wide, max(1, round(segment.parallelism)))


@dataclass
class _Call:
    """The processing of one element in a segment."""

    stage: int
    work: float
    wait: float
    cores: float

    @property
    def working(self) -> bool:
        return self.work > 0

    @property
    def done(self) -> bool:
        return self.work <= 0 and self.wait <= 0

    def left(self, pace: float) -> float:
        """Seconds until its work or, after that, its waiting ends; `pace` is CPU seconds per second and core."""
        return self.work / (pace * self.cores) if self.working else self.wait

    def advance(self, seconds: float, pace: float) -> None:
        if self.working:
            spent = seconds * pace * self.cores
            self.work = 0.0 if spent >= self.work * (1 - 1e-12) else self.work - spent
        elif self.wait > 0:
            self.wait = 0.0 if seconds >= self.wait * (1 - 1e-12) else self.wait - seconds


@dataclass
class _Process:
    """One process: elements in the buffer in front of each stage, and calls in flight."""

    stages: Sequence[_SimulatedSegment]
    start_delay_seconds: float = 0.0  # by which its first element is delayed
    calls: list[_Call] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)  # elements in front of each stage; unused for the first

    def __post_init__(self) -> None:
        self.ready = [0] * len(self.stages)

    def start_calls(self) -> None:
        """Starts every call that has an element and a free thread."""
        for index, stage in enumerate(self.stages):
            busy = sum(call.stage == index for call in self.calls)
            free = stage.parallel_calls - busy if index == 0 else min(stage.parallel_calls - busy, self.ready[index])
            self.ready[index] -= free if index else 0
            waits = stage.wait_seconds + self.start_delay_seconds
            self.calls += [_Call(index, stage.work_seconds, waits, stage.cores) for _ in range(free)]
            self.start_delay_seconds = 0.0

    def pass_on(self) -> int:
        """Moves finished elements to the next buffer with room, last stages first; returns how many left the last."""
        left = 0
        for call in sorted((call for call in self.calls if call.done), key=lambda call: -call.stage):
            following = call.stage + 1
            if following == len(self.stages):
                left += 1
            elif self.ready[following] < BUFFER_ELEMENTS + self.stages[following].parallel_calls - 1:
                self.ready[following] += 1
            else:
                continue
            self.calls.remove(call)
        return left


def _cpu_seconds_per_core_second(calls: Sequence[_Call], cores: float, crowded_speed: float) -> float:
    """CPU seconds per second that a working call gets for each core that it can use."""
    demand = sum(call.cores for call in calls if call.working)
    if demand <= 0:
        return 1.0
    busy = min(demand, cores)
    fall = (1 - crowded_speed) / (cores - 1) if cores > 1 else 0.0
    return busy * (1 - fall * max(0.0, busy - 1)) / demand


def _cpu_seconds(segment: Segment) -> float:
    return sum(work.cpu_seconds for work in segment.work)
