"""`python -m pipetune.bench.recording CONDITION SECONDS`: records real windows into the file tests replay.

Only for a new recording: the file is part of the package. "quiet" and "neighbour" want the machine to themselves,
"shared" wants others at work on it.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from typing import Any

from pipetune.bench import loops
from pipetune.capture import loop_consumer
from pipetune.core.results import Window
from pipetune.measure import machine
from pipetune.testing import recorded
from pipetune.testing.neighbours import neighbours
from pipetune.testing.recorded import SCALE, RecordedWindow, Recording, Series
from pipetune.timing import windows
from pipetune.timing.cpu_load import available_cores, core_seconds
from pipetune.timing.iterators import shortened_pauses

SLICES = 3
SLICE_SECONDS = 0.1
WARMUP_SECONDS, SETTLE_SECONDS = 0.15, 0.3  # those of the default budget
WARMUP_STEPS = 2  # as TensorFlowRunner asks of a training window

_Slices = list[tuple[float, float, float]]  # seconds and CPU seconds per step; the cores that others used


def main(condition: str, seconds: float) -> None:
    """Adds or replaces the series of `condition`, half the time for each unit."""
    loop = loops.photos()
    with shortened_pauses(), neighbours([0] if condition == "neighbour" else []):
        taken = {"input": _input_windows(loop, seconds / 2), "training": _training_windows(loop, seconds / 2)}
    known = recorded.load().series if recorded.FILE.exists() else {}
    found = machine.read_machine()
    about = f"{found.cores_granted:g} cores of {found.processor}, TensorFlow {found.tensorflow}"
    made = {f"{unit}, {condition}": series for unit, series in taken.items()}
    recorded.save(Recording(about, {**known, **made}))
    for name, series in made.items():
        print(name, len(series.windows), "windows,", f"{series.step_seconds * 1e3:.2f} ms a step")


def _input_windows(loop: loops.Loop, seconds: float) -> Series:
    """Windows as `TensorFlowRunner.input_window` takes them; the slices come behind it, on the same iterator."""
    taken: list[tuple[float, _Slices, bool]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        slices: _Slices = []
        started = time.perf_counter()

        def go_on(iterator: Any, slices: _Slices = slices) -> None:
            slices += (_time_slice(iterator) for _ in range(SLICES))

        first: Window = windows.input_window(
            loop.dataset,
            seconds=SLICE_SECONDS,
            warmup_seconds=WARMUP_SECONDS,
            settle_seconds=SETTLE_SECONDS,
            on_end=go_on,
        )
        measured = first.wall_seconds + SLICES * SLICE_SECONDS
        overhead = time.perf_counter() - started - WARMUP_SECONDS - measured
        taken.append((overhead, slices, first.converged))
    return _series(taken, slice_steps=0)


def _clocks() -> tuple[float, float, float]:
    """Seconds, CPU seconds of this process, and seconds that the cores ran anything."""
    used = core_seconds(available_cores())
    return time.perf_counter(), time.process_time(), sum(used) if used is not None else math.nan


def _slice(
    before: tuple[float, float, float], after: tuple[float, float, float], steps: int
) -> tuple[float, float, float]:
    wall, cpu, used = (later - earlier for earlier, later in zip(before, after, strict=True))
    return wall / steps, cpu / steps, (used - cpu) / wall


def _time_slice(iterator: Any) -> tuple[float, float, float]:
    steps = 0
    before = _clocks()
    while time.perf_counter() - before[0] < SLICE_SECONDS:
        next(iterator)
        steps += 1
    return _slice(before, _clocks(), steps)


def _training_windows(loop: loops.Loop, seconds: float) -> Series:
    """Windows of a step function, cut into slices of equally many steps by the clocks at each step's end."""
    taken_steps = 0
    slice_steps = 1
    edges: list[tuple[float, float, float]] = []  # the clocks at the end of the warm-up, then of each slice

    def step(examples: Any, labels: Any) -> None:
        nonlocal taken_steps
        float(loop.step(examples, labels))
        taken_steps += 1
        if taken_steps >= WARMUP_STEPS and (taken_steps - WARMUP_STEPS) % slice_steps == 0:
            edges.append(_clocks())

    consumer = loop_consumer.StepConsumer(step)
    first = consumer.window(loop.dataset, steps=20, warmup=WARMUP_STEPS)
    slice_steps = max(2, round(SLICE_SECONDS / first.step_seconds))
    taken: list[tuple[float, _Slices, bool]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        taken_steps = 0
        edges.clear()
        started = time.perf_counter()
        window = consumer.window(loop.dataset, steps=SLICES * slice_steps, warmup=WARMUP_STEPS)
        overhead = time.perf_counter() - started - window.wall_seconds
        slices = [_slice(before, after, slice_steps) for before, after in itertools.pairwise(edges)]
        taken.append((overhead, slices, True))
    return _series(taken, slice_steps=slice_steps)


def _series(taken: list[tuple[float, _Slices, bool]], *, slice_steps: int) -> Series:
    wall = statistics.median(one[0] for _, slices, _ in taken for one in slices)
    cpu = statistics.median(one[1] for _, slices, _ in taken for one in slices)
    return Series(
        step_seconds=round(wall, 6),
        cpu_step_seconds=round(cpu, 6),
        slice_steps=slice_steps,
        slice_seconds=round(slice_steps * wall, 4) if slice_steps else SLICE_SECONDS,
        windows=tuple(
            RecordedWindow(
                overhead_ms=max(0, round(1000 * overhead)),
                wall=tuple(max(1, round(SCALE * one[0] / wall)) for one in slices),
                cpu=tuple(max(1, round(SCALE * one[1] / cpu)) for one in slices),
                converged=converged,
                others=tuple(max(0, round(SCALE * one[2])) for one in slices),
            )
            for overhead, slices, converged in taken
        ),
    )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in recorded.CONDITIONS:
        sys.exit(f"usage: python -m pipetune.bench.recording {'|'.join(recorded.CONDITIONS)} SECONDS")
    main(sys.argv[1], float(sys.argv[2]))
