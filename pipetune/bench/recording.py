"""`python -m pipetune.bench.recording CONDITION SECONDS`: records real windows into the file tests replay.

Only for a new recording: the file is part of the package. "quiet" and "neighbour" want the machine to themselves,
"shared" wants others at work on it.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipetune.bench import loops
from pipetune.capture import loop_consumer
from pipetune.core.results import Window
from pipetune.measure import machine
from pipetune.testing import recorded
from pipetune.testing.recorded import SCALE, RecordedWindow, Recording, Series
from pipetune.timing import windows
from pipetune.timing.iterators import shortened_pauses

SLICES = 3
SLICE_SECONDS = 0.1
WARMUP_SECONDS, SETTLE_SECONDS = 0.15, 0.3  # those of the default budget
WARMUP_STEPS = 2  # as TensorFlowRunner asks of a training window

NEIGHBOUR = """
import random, sys, time
draw = random.Random(int(sys.argv[1]))
while True:
    time.sleep(draw.expovariate(1 / 6))
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass
"""
"""Takes a core for a second, every seven seconds on average."""

_Slices = list[tuple[float, float]]  # seconds and CPU seconds per step


def main(condition: str, seconds: float) -> None:
    """Adds or replaces the series of `condition`, half the time for each unit."""
    loop = loops.photos()
    with shortened_pauses(), _neighbour() if condition == "neighbour" else _nobody():
        taken = {"input": _input_windows(loop, seconds / 2), "training": _training_windows(loop, seconds / 2)}
    known = recorded.load().series if recorded.FILE.exists() else {}
    found = machine.read_machine()
    about = f"{found.cores_granted:g} cores of {found.processor}, TensorFlow {found.tensorflow}"
    made = {f"{unit}, {condition}": series for unit, series in taken.items()}
    recorded.save(Recording(about, {**known, **made}))
    for name, series in made.items():
        print(name, len(series.windows), "windows,", f"{series.step_seconds * 1e3:.2f} ms a step")


@contextmanager
def _nobody() -> Iterator[None]:
    yield


@contextmanager
def _neighbour() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, "0"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _input_windows(loop: loops.Loop, seconds: float) -> Series:
    """Windows as `TensorFlowRunner.input_window` takes them; the slices behind the first on the same iterator."""
    taken: list[tuple[float, _Slices, bool]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        slices: _Slices = []
        asked = time.perf_counter()

        def go_on(iterator: Any, slices: _Slices = slices) -> None:
            slices += (_time_slice(iterator) for _ in range(SLICES - 1))

        first: Window = windows.input_window(
            loop.dataset,
            seconds=SLICE_SECONDS,
            warmup_seconds=WARMUP_SECONDS,
            settle_seconds=SETTLE_SECONDS,
            on_end=go_on,
        )
        measured = first.wall_seconds + (SLICES - 1) * SLICE_SECONDS
        overhead = time.perf_counter() - asked - WARMUP_SECONDS - measured
        slices.insert(0, (first.step_seconds, first.cpu_seconds / first.steps))
        taken.append((overhead, slices, first.converged))
    return _series(taken, slice_steps=0)


def _time_slice(iterator: Any) -> tuple[float, float]:
    steps = 0
    cpu_started, started = time.process_time(), time.perf_counter()
    while time.perf_counter() - started < SLICE_SECONDS:
        next(iterator)
        steps += 1
    return (time.perf_counter() - started) / steps, (time.process_time() - cpu_started) / steps


def _training_windows(loop: loops.Loop, seconds: float) -> Series:
    """Windows of a step function, cut into slices of equally many steps by the clocks at each step's end."""
    stamps: list[tuple[float, float]] = []

    def step(examples: Any, labels: Any) -> None:
        float(loop.step(examples, labels))
        stamps.append((time.perf_counter(), time.process_time()))

    consumer = loop_consumer.StepConsumer(step)
    first = consumer.window(loop.dataset, steps=20, warmup=WARMUP_STEPS)
    slice_steps = max(2, round(SLICE_SECONDS / first.step_seconds))
    taken: list[tuple[float, _Slices, bool]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        stamps.clear()
        asked = time.perf_counter()
        window = consumer.window(loop.dataset, steps=SLICES * slice_steps, warmup=WARMUP_STEPS)
        overhead = time.perf_counter() - asked - window.wall_seconds
        edges = stamps[WARMUP_STEPS - 1 :: slice_steps]
        slices = [((b[0] - a[0]) / slice_steps, (b[1] - a[1]) / slice_steps) for a, b in itertools.pairwise(edges)]
        taken.append((overhead, slices, True))
    return _series(taken, slice_steps=slice_steps)


def _series(taken: list[tuple[float, _Slices, bool]], *, slice_steps: int) -> Series:
    wall = statistics.median(one for _, slices, _ in taken for one, _ in slices)
    cpu = statistics.median(one for _, slices, _ in taken for _, one in slices)
    return Series(
        step_seconds=round(wall, 6),
        cpu_step_seconds=round(cpu, 6),
        slice_steps=slice_steps,
        slice_seconds=round(slice_steps * wall, 4) if slice_steps else SLICE_SECONDS,
        windows=tuple(
            RecordedWindow(
                overhead_ms=max(0, round(1000 * overhead)),
                wall=tuple(max(1, round(SCALE * one / wall)) for one, _ in slices),
                cpu=tuple(max(1, round(SCALE * one / cpu)) for _, one in slices),
                converged=converged,
            )
            for overhead, slices, converged in taken
        ),
    )


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in recorded.CONDITIONS:
        sys.exit(f"usage: python -m pipetune.bench.recording {'|'.join(recorded.CONDITIONS)} SECONDS")
    main(sys.argv[1], float(sys.argv[2]))
