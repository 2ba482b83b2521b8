"""Simulation of several processes on one machine: closed forms, the model of one process, and properties."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.sharing import combined_rate, simulate
from pipetune.core.machine import Overheads
from pipetune.model.segments import Segment, Work
from pipetune.model.throughput import predict
from tests.words import parse


def segment(seconds: float, *, cpu: float | None = None, calls: float = 1) -> Segment:
    return Segment((Work("n0", seconds, seconds if cpu is None else cpu),), calls, calls > 1)


def rates(*segments: Segment, cores: float = 2, crowded_speed: float = 1.0) -> list[float]:
    """The rates of 1, 2 and 4 processes."""
    return [simulate(segments, processes=n, cores=cores, crowded_speed=crowded_speed) for n in (1, 2, 4)]


THREE = segment(0.004), segment(0.010), segment(0.002)  # 16 ms of work per element: two cores deliver 125 per second


@pytest.mark.parametrize(("segments", "cores", "expected", "error"), [
    pytest.param((), 2, (math.inf,) * 3, 0.0, id="no pipeline"),
    pytest.param((segment(0.0),), 2, (math.inf,) * 3, 0.0, id="no work"),
    pytest.param((segment(0.010),), 2, (100, 200, 200), 1e-6, id="one thread fills one core"),
    pytest.param((segment(0.010, calls=2),), 2, (200, 200, 200), 1e-6, id="parallel operator leaves no core"),
    pytest.param((segment(0.010, cpu=0.0),), 2, (100, 200, 400), 1e-6, id="waiting uses no core"),
    pytest.param((segment(0.010, cpu=0.001),), 1, (100, 200, 400), 0.02, id="four use less than half a core"),
    pytest.param(THREE, 8, (100, 200, 400), 1e-3, id="stages overlap and the slowest is the limit"),
    pytest.param(THREE, 2, (100, 125, 125), 0.02, id="stages overlap on the cores there are"),
    pytest.param((segment(0.010, cpu=0.020),), 2, (100, 100, 100), 1e-6, id="kernel uses both cores"),
    pytest.param((segment(0.010, cpu=0.020),), 4, (100, 200, 200), 1e-6, id="kernel uses two of four cores"),
])  # fmt: skip
def test_rates_of_processes(segments: tuple[Segment, ...], cores: float, expected: list[float], error: float) -> None:
    assert rates(*segments, cores=cores) == pytest.approx(list(expected), rel=error)


def test_crowded_cores_are_slower() -> None:
    assert rates(segment(0.010), crowded_speed=0.8) == pytest.approx([100, 160, 160])


@pytest.mark.parametrize("text", [
    "range cpu=0us | map random cpu=4ms | prefetch 2 cpu=0us",
    "range cpu=0us | map 2 cpu=4ms | prefetch 2 cpu=0us",
    "range cpu=1ms | map AUTOTUNE cpu=4ms | batch 4 cpu=1ms | prefetch 2 cpu=0us",
    "range cpu=0us | map 4 cpu=1ms waits=9ms | map random cpu=3ms | prefetch 2 cpu=0us",
])  # fmt: skip
@pytest.mark.parametrize("cores", [2, 8])
def test_simulation_of_one_process_agrees_with_model(text: str, cores: float) -> None:
    words = parse(text)
    for overheads in (Overheads(), Overheads(crowded_speed=0.7, next_seconds=1e-4)):
        profile = replace(words.profile, overheads=overheads)
        alone = combined_rate(words.pipeline, profile, cores, processes=1)
        assert alone == pytest.approx(predict(words.pipeline, profile, cores).rate, rel=0.08)


SEGMENT = st.builds(
    lambda seconds, share, calls: segment(seconds, cpu=share * seconds, calls=calls),
    st.floats(1e-4, 1e-1), st.floats(0.0, 1.5), st.integers(1, 4),
)  # fmt: skip


@settings(max_examples=25)
@given(st.lists(SEGMENT, min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 8))
def test_rate_of_processes_is_bounded(segments: list[Segment], processes: int, cores: int) -> None:
    one, more = (simulate(segments, processes=n, cores=cores, elements=240) for n in (processes, processes + 1))
    cpu_seconds = sum(work.cpu_seconds for each in segments for work in each.work)
    slowest = min(each.rate for each in segments)
    # Calls of equal length may synchronize: all work, then all wait, and more processes deliver up to a fifth less.
    # Besides, the count starts and ends within an element of each process, and with other buffers: of 240 elements, as
    # 24 of them may pass a tenth faster than the processors allow.
    assert more >= 0.7 * one
    assert more <= 1.1 * (processes + 1) * slowest
    assert cpu_seconds == 0 or more <= 1.1 * cores / cpu_seconds
