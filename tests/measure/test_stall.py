"""The verdict's measurement: invented steps, known shares."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from benchmarks.recorded import FakeClock
from pipetune.core.measurement import Pause, Window
from pipetune.measure.stall import ROUNDS, Stall, measure_stall


class Steps:
    """Training steps of a given length, with noise, on a fake clock."""

    def __init__(self, clock: FakeClock, seconds: float, *, noise: float = 0.0, seed: int = 0) -> None:
        self.clock, self.seconds, self.noise, self.draw = clock, seconds, noise, random.Random(seed)
        self.calls: list[int] = []

    def __call__(self, steps: int) -> Window:
        self.calls.append(steps)
        wall = steps * self.seconds * (1 + self.noise * self.draw.uniform(-1, 1))
        self.clock.advance(wall)
        return Window(steps=steps, examples=steps, wall_seconds=wall, cpu_seconds=wall, first_seconds=0.0)


def stall(
    real: float, bound: float, *, noise: float = 0.0, limit_seconds: float = 60, **more: Any
) -> tuple[Stall, list[int]]:
    """The measurement, and the lengths of its windows of real steps."""
    clock = FakeClock()
    steps = Steps(clock, real, noise=noise)
    found = measure_stall(
        steps, Steps(clock, bound, noise=noise, seed=1), clock=clock, limit_seconds=limit_seconds, seed=0, **more
    )
    return found, steps.calls


@pytest.mark.parametrize(
    ("real", "bound", "share"),
    [(0.040, 0.010, 0.75), (0.010, 0.0105, 0.0)],
)
def test_the_share_is_what_the_bound_leaves(real: float, bound: float, share: float) -> None:
    found, _ = stall(real, bound)
    assert found.share.median == pytest.approx(share, abs=1e-6)
    assert found.share.low == pytest.approx(found.share.high, abs=1e-6)


def test_a_clear_share_needs_only_the_first_look() -> None:
    found, _ = stall(0.04, 0.01, noise=0.02, limit_seconds=600)
    assert found.share.pairs == ROUNDS[0]
    assert found.share.low > 0.2


def test_a_possible_gain_at_the_threshold_is_looked_at_until_the_last() -> None:
    found, _ = stall(0.010, 0.0095, noise=0.1, limit_seconds=6000)
    assert found.share.pairs == ROUNDS[-1]
    assert found.share.low < 0.05 < found.share.high


def test_time_ends_it_after_two_pairs_at_the_earliest() -> None:
    assert stall(1.0, 0.5, limit_seconds=0.1)[0].share.pairs == 2


def test_where_there_seems_to_be_no_wait_a_second_look_follows_a_disturbed_pair() -> None:
    assert stall(0.025, 0.025, noise=0.1, limit_seconds=0.6)[0].share.pairs == ROUNDS[1]
    assert stall(0.025, 0.022, noise=0.1, limit_seconds=0.6)[0].share.pairs == ROUNDS[0], "trials may gain there"


def test_short_pairs_reach_the_first_look_where_time_is_short() -> None:
    """Two of them do not tell a wait of nothing from one of 5 %."""
    found, windows = stall(0.025, 0.025, noise=0.01, limit_seconds=0.6)
    assert found.share.pairs == ROUNDS[0] and found.share.high < 0.05
    assert sum(windows) * 0.025 < 0.8


@pytest.mark.parametrize(("seconds", "steps"), [(9.0, 2), (0.5, 5), (0.01, 70)])
def test_slow_steps_are_measured_in_short_windows(seconds: float, steps: int) -> None:
    _, windows = stall(seconds, seconds, limit_seconds=12)
    assert windows[1:] == [steps] * (len(windows) - 1)


def test_a_slow_input_counts_as_slow_steps_and_no_window_is_thrown_away() -> None:
    """The model alone is quick: that the steps are slow is known from the input."""
    clock = FakeClock()
    began = clock.now()
    real, bound = Steps(clock, 0.8), Steps(clock, 0.05)
    found = measure_stall(real, bound, clock=clock, limit_seconds=6, input_seconds=0.8, seed=0)
    assert set(real.calls) == {2} and found.share.pairs == len(real.calls)
    assert clock.now() - began < 6


@pytest.mark.parametrize(("epoch", "share"), [(None, 0.0), (10_000, 0.009), (100, 0.48), (5, 0.0)])
def test_the_start_of_an_epoch_counts_once_an_epoch(epoch: int | None, share: float) -> None:
    """Steps of 10 ms, and nearly a second until the first; a window of whole epochs has the starts inside."""
    clock = FakeClock()
    bound = Steps(clock, 0.010)

    def real(steps: int) -> Window:
        return replace(bound(steps), first_seconds=0.91).counting_start(epoch, more_seconds=0.03)

    found = measure_stall(real, bound, clock=clock, limit_seconds=60, steps=10, seed=0)
    assert found.share.median == pytest.approx(share, abs=0.002)
    assert found.start_seconds == pytest.approx(0.93 / epoch if share else 0.0)


@pytest.mark.parametrize(("epoch", "steps"), [(None, 70), (40, 40), (30, 60), (80, 70)])
def test_windows_longer_than_an_epoch_cover_whole_ones(epoch: int | None, steps: int) -> None:
    """One of an epoch and three quarters has one start inside."""
    found, counts = stall(0.010, 0.005, epoch_steps=epoch)
    assert found.steps == steps and set(counts[1:]) == {steps}


@pytest.mark.parametrize(("limit_seconds", "ahead", "steps", "share"), [
    (60.0, 0, 100, 0.545),  # windows with a pause of 1.2 s in each
    (4.0, 60, 50, 0.375),  # half as long: 12 ms of waiting beside each step of 10 ms, of which half is bridged
    (60.0, 200, 50, 0.0),
])  # fmt: skip
def test_windows_reach_the_pauses_of_the_input_or_allow_for_them(
    limit_seconds: float, ahead: int, steps: int, share: float
) -> None:
    clock = FakeClock()
    bound = Steps(clock, 0.010)

    def real(count: int) -> Window:
        pauses = 1.2 * (count // 100)
        clock.advance(1.2 + pauses)  # the first element takes as long
        window = bound(count)
        return replace(window, wall_seconds=window.wall_seconds + pauses)

    found = measure_stall(
        real,
        bound,
        clock=clock,
        limit_seconds=limit_seconds,
        pause=Pause(100, 1.2),
        ahead=ahead,
        seed=0,
        window_seconds=0.5,
    )
    assert found.steps == steps
    assert (found.share.low, found.share.high) == (pytest.approx(share, abs=1e-3), pytest.approx(share, abs=1e-3))
    assert found.real_seconds == pytest.approx(0.010 / (1 - share), rel=0.01)


def test_pauses_that_take_hardly_any_time_change_nothing() -> None:
    found, windows = stall(0.01, 0.01, pause=Pause(1000, 0.1))
    assert found.share.high < 0.01 and max(windows) == 70


def test_the_order_of_pairs_follows_the_seed() -> None:
    def orders(seed: int) -> list[str]:
        clock, seen = FakeClock(), []
        steps = {"real": Steps(clock, 0.04), "bound": Steps(clock, 0.01)}

        def take(name: str, count: int) -> Window:
            seen.append(name)
            return steps[name](count)

        real, bound = partial(take, "real"), partial(take, "bound")
        measure_stall(real, bound, clock=clock, limit_seconds=60, seed=seed)
        return seen

    assert orders(3) == orders(3)
    assert len({tuple(orders(seed)) for seed in range(8)}) > 1
