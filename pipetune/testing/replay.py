"""A runner that replays the noise of recorded real windows, to simulate whole sessions.

The windows of a series are served in the order recorded, from an offset drawn for each runner, in blocks of random
length (the stationary bootstrap of Politis and Romano, 1994). This preserves autocorrelation, spikes, drift and the
seconds in which a neighbor process takes one of the cores, and no two sessions are alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from pipetune.core.comparison import Check, Comparison
from pipetune.core.edits import Plan
from pipetune.core.measurement import RunFailed, Window
from pipetune.testing.recorded import SCALE, RecordedWindow, Series
from pipetune.testing.runner import FakeClock

BLOCK_WINDOWS = 40
"""Mean length of a block: about half a minute, longer than the correlation between neighboring windows."""


@dataclass
class ReplayRunner:
    """A runner whose speeds vary as recorded, and by the `gain` of a plan.

    Args:
        clock: the clock that windows advance.
        input: the series that input windows are taken from.
        training: the series of training windows; None if the consumer cannot be switched.
        seed: seed of offsets and block lengths.
        gain: the true speedup of a plan.
        compare_seconds: duration of one equality proof; every plan is found equal.
        batch: examples per step.
    """

    clock: FakeClock
    input: Series
    training: Series | None = None
    seed: int = 0
    gain: Callable[[Plan], float] = lambda plan: 1.0
    compare_seconds: float = 2.0
    batch: int = 16
    _tapes: dict[int, _Tape] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    @property
    def trains(self) -> bool:
        return self.training is not None

    @property
    def shares_processors(self) -> bool:
        return self.trains

    @property
    def epoch_steps(self) -> int | None:
        return None

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        slices = max(1, round(seconds / self.input.slice_seconds))
        return self._window(plan, self.input, slices, seconds / slices, warmup_seconds)

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        if self.training is None:
            raise RunFailed("the consumer cannot be switched")
        slices = max(1, round(steps / self.training.slice_steps))
        return self._window(plan, self.training, slices, None, 0.0, steps=steps)

    def compare(self, plan: Plan) -> Comparison:
        self.clock.advance(self.compare_seconds)
        return Comparison(plan.safety, (Check("values", True), Check("epochs", True)), elements=64, epochs=3)

    def predicted_bytes(self, plan: Plan) -> float:
        return 0.0

    def _window(
        self,
        plan: Plan,
        series: Series,
        slices: int,
        slice_seconds: float | None,
        warmup_seconds: float,
        *,
        steps: int = 0,
    ) -> Window:
        """Builds a window of `slices` slices; if a recorded window has too few, continues with those of the next."""
        tape = self._tapes.setdefault(id(series), _Tape(series, self._draw))
        first = tape.next()
        wall, cpu = list(first.wall[:slices]), list(first.cpu[:slices])
        while len(wall) < slices:
            more = tape.next()
            wall += more.wall[: slices - len(wall)]
            cpu += more.cpu[: slices - len(cpu)]
        speed = self.gain(plan) / series.step_seconds
        if slice_seconds is not None:  # fixed duration: how many steps fit into each slice?
            done = sum(slice_seconds * speed * SCALE / one for one in wall)
            steps = max(1, round(done))
            seconds = steps * slices * slice_seconds / done
            weights = [1 / one for one in wall]
        else:  # fixed number of steps: how many seconds do they take?
            seconds = steps / speed * sum(wall) / slices / SCALE
            weights = [1.0] * slices
        cpu_share = sum(w * one for w, one in zip(weights, cpu, strict=True)) / sum(weights) / SCALE
        self.clock.advance(first.overhead_ms / 1000 + warmup_seconds + seconds)
        return Window(
            steps=steps,
            examples=steps * self.batch,
            wall_seconds=seconds,
            cpu_seconds=steps * series.cpu_step_seconds * cpu_share / self.gain(plan),
            first_seconds=first.overhead_ms / 1000,
            converged=first.converged,
        )


class _Tape:
    """Reads a series cyclically in blocks of random length, each from a random position."""

    def __init__(self, series: Series, draw: random.Random) -> None:
        self._windows = series.windows
        self._draw = draw
        self._at = draw.randrange(len(series.windows))

    def next(self) -> RecordedWindow:
        window = self._windows[self._at]
        if self._draw.random() < 1 / BLOCK_WINDOWS:
            self._at = self._draw.randrange(len(self._windows))
        else:
            self._at = (self._at + 1) % len(self._windows)
        return window
