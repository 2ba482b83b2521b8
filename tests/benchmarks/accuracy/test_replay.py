"""Recorded windows and the runner that replays them: lengths, speeds and noise."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest

from benchmarks import recorded
from benchmarks.recorded import FakeClock, RecordedWindow, Recording, ReplayRunner, Series, rewrite
from pipetune.core.edits import Plan

BASE, FASTER = Plan("defaults"), Plan("tuned", (rewrite("useful"),))


def series(*walls: int, slice_steps: int = 0) -> Series:
    windows = tuple(RecordedWindow(50, (wall, wall, wall), (1000, 1000, 1000)) for wall in walls)
    return Series(0.01, 0.015, slice_steps, 0.1, windows)


def runner(*walls: int, gain: float = 1.0) -> ReplayRunner:
    both = series(*walls), series(*walls, slice_steps=10)
    return ReplayRunner(FakeClock(), *both, gain=lambda plan: gain if plan.rewrites else 1.0)


@pytest.mark.parametrize("seconds", [0.15, 1.2])
def test_input_window_has_requested_length_and_recorded_cost(seconds: float) -> None:
    made = runner(1000)
    before = made.clock.now()
    window = made.input_window(BASE, seconds=seconds, warmup_seconds=0.2)
    assert window.wall_seconds == pytest.approx(seconds, abs=0.01)
    assert window.step_seconds == pytest.approx(0.01)
    assert made.clock.now() - before == pytest.approx(0.05 + 0.2 + window.wall_seconds)


def test_training_window_has_requested_steps() -> None:
    window = runner(2000).training_window(BASE, steps=25)
    assert (window.steps, window.step_seconds) == (25, pytest.approx(0.02))
    assert window.cpu_seconds / window.steps == pytest.approx(0.015)


@pytest.mark.parametrize("unit", recorded.UNITS)
def test_gain_changes_the_rate(unit: str) -> None:
    made = runner(1000, gain=1.25)

    def seconds(plan: Plan) -> float:
        if unit == "training":
            return made.training_window(plan, steps=30).step_seconds
        return made.input_window(plan, seconds=0.3, warmup_seconds=0.1).step_seconds

    assert seconds(BASE) / seconds(FASTER) == pytest.approx(1.25)


def test_windows_are_replayed_in_recorded_order() -> None:
    made = runner(*range(1000, 1100))
    slowness = [round(made.input_window(BASE, seconds=0.3, warmup_seconds=0.1).step_seconds * 1e5) for _ in range(60)]
    following = [one + 1 == other for one, other in itertools.pairwise(slowness)]
    assert statistics.fmean(following) > 0.9  # but for the ends of the blocks


def test_recording_round_trips(tmp_path: Path) -> None:
    made = Recording("somewhere", {"input, quiet": series(900, 1100), "training, quiet": series(1, slice_steps=4)})
    recorded.save(made, tmp_path / "one.json")
    assert recorded.load(tmp_path / "one.json") == made
