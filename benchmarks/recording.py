"""`python -m benchmarks.recording CONDITION SECONDS`: records real windows for simulations and tests.

The recording is part of the package (`testing.recorded`), so this is needed only to replace it. "quiet" and "neighbour"
need an otherwise idle machine, "shared" one that other users work on.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from typing import Any

from benchmarks import loops, recorded
from benchmarks.neighbours import neighbours
from benchmarks.recorded import SCALE, RecordedWindow, Recording, Series
from pipetune.capture import loop_consumer
from pipetune.core.measurement import Window
from pipetune.measure import machine
from pipetune.timing import windows
from pipetune.timing.cpu_load import available_cores, core_seconds
from pipetune.timing.iterators import shortened_pauses

SLICES = 3
SLICE_SECONDS = 0.1
WARMUP_SECONDS, SETTLE_SECONDS = 0.15, 0.3  # as with the default budget
WARMUP_STEPS = 2  # as in a training window of TensorFlowRunner

_Slices = list[tuple[float, float, float]]  # seconds and CPU seconds per step; cores used by other processes
_Measured = list[tuple[float, _Slices, bool]]  # overhead in seconds, slices, and whether the window converged


def main(condition: str, seconds: float) -> None:
    """Adds or replaces the series of a condition: the input alone for half of `seconds`, then training."""
    loop = loops.photos()
    with shortened_pauses(), neighbours([0] if condition == "neighbour" else []):
        measured = {"input": _input_windows(loop, seconds / 2), "training": _training_windows(loop, seconds / 2)}
    existing = recorded.load().series if recorded.FILE.exists() else {}
    here = machine.read_machine()
    about = f"{here.cores_granted:g} cores of {here.processor}, TensorFlow {here.tensorflow}"
    new = {f"{unit}, {condition}": series for unit, series in measured.items()}
    recorded.save(Recording(about, {**existing, **new}))
    for name, series in new.items():
        print(name, len(series.windows), "windows,", f"{series.step_seconds * 1e3:.2f} ms a step")


def _input_windows(loop: loops.Loop, seconds: float) -> Series:
    """Measures windows like `TensorFlowRunner.input_window`, and after each of them slices of the same iterator."""
    measured: _Measured = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        slices: _Slices = []
        started = time.perf_counter()

        def measure_slices(iterator: Any, slices: _Slices = slices) -> None:
            slices += (_time_slice(iterator) for _ in range(SLICES))

        first: Window = windows.input_window(
            loop.dataset,
            seconds=SLICE_SECONDS,
            warmup_seconds=WARMUP_SECONDS,
            settle_seconds=SETTLE_SECONDS,
            on_end=measure_slices,
        )
        window_seconds = first.wall_seconds + SLICES * SLICE_SECONDS
        overhead = time.perf_counter() - started - WARMUP_SECONDS - window_seconds
        measured.append((overhead, slices, first.converged))
    return _series(measured, slice_steps=0)


def _clocks() -> tuple[float, float, float]:
    """Returns the time, the CPU time of this process, and that of all processes, in seconds."""
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
    """Measures windows of a step function, divided into slices of the same number of steps."""
    step_count = 0
    slice_steps = 1
    edges: list[tuple[float, float, float]] = []  # clocks at the end of the warm-up and of each slice

    def step(examples: Any, labels: Any) -> None:
        nonlocal step_count
        float(loop.step(examples, labels))
        step_count += 1
        if step_count >= WARMUP_STEPS and (step_count - WARMUP_STEPS) % slice_steps == 0:
            edges.append(_clocks())

    consumer = loop_consumer.StepConsumer(step)
    first = consumer.window(loop.dataset, steps=20, warmup=WARMUP_STEPS)
    slice_steps = max(2, round(SLICE_SECONDS / first.step_seconds))
    measured: _Measured = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        step_count = 0
        edges.clear()
        started = time.perf_counter()
        window = consumer.window(loop.dataset, steps=SLICES * slice_steps, warmup=WARMUP_STEPS)
        overhead = time.perf_counter() - started - window.wall_seconds
        slices = [_slice(before, after, slice_steps) for before, after in itertools.pairwise(edges)]
        measured.append((overhead, slices, True))
    return _series(measured, slice_steps=slice_steps)


def _series(measured: _Measured, *, slice_steps: int) -> Series:
    wall = statistics.median(one[0] for _, slices, _ in measured for one in slices)
    cpu = statistics.median(one[1] for _, slices, _ in measured for one in slices)
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
            for overhead, slices, converged in measured
        ),
    )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in recorded.CONDITIONS:
        sys.exit(f"usage: python -m benchmarks.recording {'|'.join(recorded.CONDITIONS)} SECONDS")
    main(sys.argv[1], float(sys.argv[2]))
