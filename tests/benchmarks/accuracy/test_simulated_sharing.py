"""Simulation of several processes on one machine: closed forms, the model of one process, and properties."""

from __future__ import annotations

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


def test_empty_pipeline_takes_no_time() -> None:
    assert simulate((), processes=2, cores=2) == float("inf")
    assert simulate((segment(0.0),), processes=2, cores=2) == float("inf")


def test_one_thread_fills_one_core() -> None:
    assert rates(segment(0.010)) == pytest.approx([100, 200, 200])


def test_parallel_operator_leaves_no_cores_for_second_process() -> None:
    assert rates(segment(0.010, calls=2)) == pytest.approx([200, 200, 200])


def test_waiting_uses_no_core() -> None:
    assert rates(segment(0.010, cpu=0.0)) == pytest.approx([100, 200, 400])
    # 1 ms of work in 10 ms: four processes use less than half a core
    assert rates(segment(0.010, cpu=0.001), cores=1) == pytest.approx([100, 200, 400], rel=0.02)


def test_stages_overlap_and_slowest_is_the_limit() -> None:
    assert rates(segment(0.004), segment(0.010), segment(0.002), cores=8) == pytest.approx([100, 200, 400], rel=1e-3)
    # 16 ms of work per element: two cores deliver 125 per second
    assert rates(segment(0.004), segment(0.010), segment(0.002)) == pytest.approx([100, 125, 125], rel=0.02)


def test_crowded_cores_are_slower() -> None:
    assert rates(segment(0.010), crowded_speed=0.8) == pytest.approx([100, 160, 160])


def test_kernels_with_several_threads_use_several_cores() -> None:
    wide = segment(0.010, cpu=0.020)
    assert rates(wide) == pytest.approx([100, 100, 100])
    assert rates(wide, cores=4) == pytest.approx([100, 200, 200])


@pytest.mark.parametrize(
    "text",
    [
        "range cpu=0us | map random cpu=4ms | prefetch 2 cpu=0us",
        "range cpu=0us | map 2 cpu=4ms | prefetch 2 cpu=0us",
        "range cpu=1ms | map AUTOTUNE cpu=4ms | batch 4 cpu=1ms | prefetch 2 cpu=0us",
        "range cpu=0us | map 4 cpu=1ms waits=9ms | map random cpu=3ms | prefetch 2 cpu=0us",
    ],
)
@pytest.mark.parametrize("cores", [2, 8])
def test_simulation_of_one_process_agrees_with_model(text: str, cores: float) -> None:
    words = parse(text)
    for overheads in (Overheads(), Overheads(crowded_speed=0.7, next_seconds=1e-4)):
        profile = replace(words.profile, overheads=overheads)
        alone = combined_rate(words.pipeline, profile, cores, processes=1)
        assert alone == pytest.approx(predict(words.pipeline, profile, cores).rate, rel=0.08)


SEGMENTS = st.lists(
    st.builds(
        lambda seconds, share, calls: segment(seconds, cpu=share * seconds, calls=calls),
        st.floats(1e-4, 1e-1),
        st.floats(0.0, 1.5),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=25)
@given(SEGMENTS, st.integers(1, 3), st.integers(1, 8))
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
