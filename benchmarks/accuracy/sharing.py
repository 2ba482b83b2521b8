"""The accuracy of predictions for several processes on one machine: 1, 2 and 4 that read the same example.

One process is profiled as in an analysis. From that profile, a simulation predicts the combined rate of several
processes. Then that many real processes read at the same time, each with its own TensorFlow.

In the simulation, each process has the segments of the pipeline (`model.segments`) one after another, with a buffer in
front of each. A thread takes an element, works on it, waits if the operator waits, and passes it on when there is room.
All working threads share the cores evenly; a core is slower while the others are busy (`Overheads`). Work takes its
measured time: nothing is random, so a simulation gives the same result each time.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import CLONE, ProgressCallback
from benchmarks.claims import Claim
from benchmarks.dataset_study import create_study, measure_facts
from benchmarks.examples import training_dataset
from benchmarks.resumable import ResumableResults
from pipetune.core.machine import IDEAL
from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.model.segments import Segment, split_into_segments
from pipetune.model.throughput import no_prediction_reason

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


PROCESSES = (1, 2, 4)
EXAMPLES, QUICK_EXAMPLES = ("csv", "table"), ("table",)
ROUNDS, QUICK_ROUNDS = 3, 1
WINDOW_SECONDS, WARMUP_SECONDS = 3.0, 1.5
_LIMIT_SECONDS = 240.0  # for all measurements of one example; then its processes are killed


@dataclass(frozen=True)
class SharingRow:
    """One example with a number of processes; rates are combined, in elements of the output per second."""

    example: str
    processes: int
    predicted: float
    measured: float  # median of the rounds
    low: float  # slowest round
    high: float  # fastest round

    @property
    def error(self) -> float:
        """The relative error: predicted / measured - 1."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Sharing:
    """The figure. Errors are relative: 0.1 is 10 %; None if nothing was measured."""

    runs: int  # pairs of an example and a number of processes
    mean_abs_error: float | None
    max_abs_error: float | None
    rows: tuple[SharingRow, ...] = ()
    notes: tuple[str, ...] = ()


def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> Sharing:
    """Predicts and measures every example whose data exist."""
    rows: list[SharingRow] = []
    notes = []
    for name in QUICK_EXAMPLES if quick else EXAMPLES:
        folder = CLONE / "examples" / name
        if (folder / "make_data.py").exists() and not (folder / "data").exists():
            notes.append(f"{name} was left out: its data have not been generated.")
            continue
        try:
            rounds = QUICK_ROUNDS if quick else ROUNDS
            run = partial(measure_example, folder, rounds=rounds, seed=seed, progress=progress)
            rows += saved.get(tuple[SharingRow, ...], name, run)
        except RunFailed as failure:
            notes.append(f"{name} could not be run: {failure}")
    return summarize(rows, notes=tuple(notes))


def summarize(rows: Sequence[SharingRow], *, notes: tuple[str, ...] = ()) -> Sharing:
    """Returns the figure with the errors of these rows."""
    errors = [abs(row.error) for row in rows]
    mean = statistics.fmean(errors) if errors else None
    return Sharing(len(rows), mean, max(errors, default=None), tuple(rows), notes)


def claims(result: Sharing, *, quick: bool) -> Sequence[Claim]:
    """Returns the errors, and predicted and measured rates of each run; there are no targets."""
    runs = [
        Claim(
            f"{row.example}, {row.processes} process{'es' if row.processes > 1 else ''} at once",
            f"{row.predicted:.0f} batches/s predicted, {row.measured:.0f} measured ({row.low:.0f} to {row.high:.0f})",
        )
        for row in result.rows
    ]
    if result.mean_abs_error is None or result.max_abs_error is None:
        return [Claim("mean error of several processes at once", "not measured")]
    error = f"{result.mean_abs_error:.1%}, at most {result.max_abs_error:.1%}"
    return [Claim(f"mean error, {result.runs} runs", error), *runs]


def measure_example(folder: Path, *, rounds: int, seed: int, progress: ProgressCallback) -> tuple[SharingRow, ...]:
    """Profiles an example, predicts its rates, and then measures them.

    Args:
        folder: the folder of the example.
        rounds: how often each number of processes is measured.
        seed: seed of the order in each round.
        progress: called before each measurement.

    Raises:
        RunFailed: the example cannot be run, or the model cannot predict its rate.
    """
    progress(f"{folder.name}: profile")
    predicted = predict_rates(folder)
    rates: dict[int, list[float]] = {count: [] for count in PROCESSES}
    draw = random.Random(seed)
    with start_readers(folder, max(PROCESSES)) as readers:
        for number in range(rounds):
            for count in draw.sample(PROCESSES, len(PROCESSES)):
                progress(f"{folder.name}: {count} at once, round {number + 1} of {rounds}")
                rates[count].append(measure_combined_rate(readers[:count]))
    return tuple(
        SharingRow(folder.name, count, predicted[count], statistics.median(measured), min(measured), max(measured))
        for count, measured in rates.items()
    )


def predict_rates(folder: Path) -> dict[int, float]:
    """Predicts the combined rate in elements per second, by number of processes, from a profile of one process.

    Raises:
        RunFailed: the example cannot be run, or the model cannot predict its rate.
    """
    study = create_study(training_dataset(folder))
    try:
        pipeline = study.subject.source.pipeline
        profile = measure_facts(study).profile
        assert profile is not None
        if reason := no_prediction_reason(pipeline, profile):
            raise RunFailed(f"not predicted: {reason}")
        cores = study.machine.cores_granted
        return {count: combined_rate(pipeline, profile, cores, processes=count) for count in PROCESSES}
    finally:
        study.runner.close()


Reader = subprocess.Popen[str]
"""A running `reading_process`."""


@contextmanager
def start_readers(folder: Path, count: int) -> Iterator[tuple[Reader, ...]]:
    """Starts processes that have built the dataset of an example and wait for requests; kills them at the end.

    Raises:
        RunFailed: a process did not start.
    """
    command = [sys.executable, "-m", "benchmarks.accuracy.reading_process", str(folder)]
    with tempfile.TemporaryFile("w+") as errors:
        readers = tuple(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            for _ in range(count)
        )

        def kill_all() -> None:
            for reader in readers:
                reader.kill()

        limit = threading.Timer(_LIMIT_SECONDS, kill_all)  # if one hangs: killing it ends the wait for its answer
        limit.start()
        try:
            for reader in readers:
                if _read_line(reader).strip() != "ready":
                    errors.seek(0)
                    raise RunFailed(f"a process did not start: {errors.read()[-500:]}")
            yield readers
        finally:
            limit.cancel()
            kill_all()
            for reader in readers:
                reader.communicate()


def measure_combined_rate(readers: Sequence[Reader]) -> float:
    """Lets processes read at the same time and returns their combined rate in elements per second.

    Raises:
        RunFailed: a process exited without an answer.
    """
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write(f"{WARMUP_SECONDS} {WINDOW_SECONDS}\n")
        reader.stdin.flush()
    rate = 0.0
    for reader in readers:
        answer = _read_line(reader)
        if not answer:
            raise RunFailed("a process exited during a window")
        window = json.loads(answer)
        rate += window["elements"] / window["seconds"]
    return rate


def _read_line(reader: Reader) -> str:
    assert reader.stdout is not None
    return reader.stdout.readline()
