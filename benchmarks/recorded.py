"""A fake clock and runners for tests of the search, with synthetic times or on recorded windows.

The noise of synthetic times is that of shared machines: slow drift, correlation between neighboring windows, rare
spikes. Recorded windows are how long real steps took, slice by slice. The file `recorded_windows.json` in this folder
holds series of consecutive windows of a real pipeline, alone ("input") and inside a real training step ("training"),
each on a fresh iterator, on two cores: with nothing else running ("quiet"), with a process that takes a core for half
of the time ("neighbour"), and with test suites and compilers of other users ("shared").
`python -m benchmarks.recording` creates it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pipetune.core.codec import decode, encode
from pipetune.core.edits import Insert, Plan, Rewrite, Safety, SetArgument, inserted_caches
from pipetune.core.files import write_text
from pipetune.core.measurement import Pause, RunFailed, Window
from pipetune.core.results import Comparison, EqualityCheck


class FakeClock:
    """A clock that only advances by calls of `advance`."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Returns the time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advances the clock."""
        self._now += seconds


@dataclass
class Noise:
    """A random factor on the duration of windows; `spread`, `wander` and `drift` are those of its logarithm.

    `spread`: standard deviation of independent noise, for a window of one second (longer windows average it out).
    `wander`: standard deviation of a first-order autoregressive process with time constant `wander_seconds`. `drift`:
    change per 100 seconds. A share of `spike_share` of the windows takes `spike` times as long.
    """

    spread: float = 0.03
    wander: float = 0.0
    wander_seconds: float = 5.0
    drift: float = 0.0
    spike_share: float = 0.0
    spike: float = 1.6
    seed: int = 0
    _state: float = field(default=0.0, init=False)
    _at: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def factor(self, now: float, seconds: float) -> float:
        """Returns the factor on the duration of a window of `seconds` that begins at `now`."""
        if self._at is None:
            self._state = self._draw.gauss(0, self.wander)
        else:
            kept = math.exp(-(now - self._at) / self.wander_seconds)
            self._state = kept * self._state + self._draw.gauss(0, self.wander * math.sqrt(1 - kept * kept))
        self._at = now
        logarithm = self._state + self._draw.gauss(0, self.spread / math.sqrt(max(seconds, 0.05)))
        logarithm += self.drift * now / 100
        if self._draw.random() < self.spike_share:
            logarithm += math.log(self.spike)
        return math.exp(logarithm)


def rewrite(
    name: str, *, safety: Safety = Safety.EXACT, group: str = "", number: int | None = None, node: str = "n1"
) -> Rewrite:
    """Returns a synthetic rewrite.

    Args:
        name: of its rule, and of the operator that it inserts.
        safety: its safety class.
        group: as in `Rewrite`.
        number: the `num_parallel_calls` that it sets instead of inserting an operator; None to insert one.
        node: the operator that it changes, or after which it inserts.
    """
    if number is None:
        return Rewrite(name, node, safety, (Insert(node, name, f"{name}@{node}"),), f"does {name}", group=group)
    return Rewrite(name, node, safety, (SetArgument(node, "num_parallel_calls", number),), f"does {name}", group=group)


@dataclass
class FakeRunner:
    """A `Runner` with synthetic speeds.

    Args:
        clock: the clock that windows advance.
        gain: speedup of the input under a plan, e.g. from the names of its rewrites.
        cpu: factor by which a plan reduces CPU seconds per example.
        noise: noise of the windows' durations.
        fails: by rewrite key, the message of the failure that its windows raise.
        unequal_keys: keys of rewrites that change the data.
        unprovable: whether values cannot be compared under any plan.
        predicted_bytes_by_key: by rewrite key, predicted bytes.
        warm_up_needed: by rewrite key, the seconds of warm-up below which its windows have not converged.
        step_seconds: step time of the model alone; None if the consumer cannot be switched.
        epoch_steps: as in `Runner`.
        pause: as in `Runner`; a training window that is as long as from one to the next contains one.
    """

    clock: FakeClock
    gain: Callable[[Plan], float] = lambda plan: 1.0
    cpu: Callable[[Plan], float] = lambda plan: 1.0
    noise: Noise = field(default_factory=Noise)
    fails: Mapping[str, str] = field(default_factory=dict)
    unequal_keys: frozenset[str] = frozenset()
    unprovable: bool = False
    predicted_bytes_by_key: Mapping[str, float] = field(default_factory=dict)
    warm_up_needed: Mapping[str, float] = field(default_factory=dict)
    shares_processors: bool = False
    step_seconds: float | None = None
    epoch_steps: int | None = None
    pause: Pause | None = None
    batch: int = 32
    batch_seconds: float = 0.02
    first_seconds: float = 0.2
    compare_seconds: float = 1.0
    windows: list[tuple[str, str]] = field(default_factory=list)  # unit and plan key, in the order requested
    warm_ups: list[tuple[str, float]] = field(default_factory=list)  # plan key and warm-up seconds of input windows
    compared: list[str] = field(default_factory=list)

    @property
    def trains(self) -> bool:
        """Whether the consumer can be switched."""
        return self.step_seconds is not None

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        """Returns a synthetic window of the input, and advances the clock."""
        self.windows.append(("input", plan.key))
        self.warm_ups.append((plan.key, warmup_seconds))
        self._fail(plan)
        self.clock.advance(self.first_seconds + warmup_seconds)
        each = self.batch_seconds / self.gain(plan) * self.noise.factor(self.clock.now(), seconds)
        steps = max(1, round(seconds / each))
        self.clock.advance(steps * each)
        settled = all(warmup_seconds >= self.warm_up_needed.get(part.key, 0.0) for part in plan.rewrites)
        return self._window(plan, steps, steps * each, converged=settled)

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        """Returns a synthetic training window, and advances the clock.

        Raises:
            RunFailed: the consumer cannot be switched, or a rewrite of the plan is one of `fails`.
        """
        self.windows.append(("training", plan.key))
        if self.step_seconds is None:
            raise RunFailed("the consumer cannot be switched")
        self._fail(plan)
        self.clock.advance(self.first_seconds)
        each = max(self.step_seconds, self.batch_seconds / self.gain(plan))
        each *= self.noise.factor(self.clock.now(), steps * each)
        pauses = self.pause.seconds * (steps // self.pause.elements) if self.pause else 0.0
        wall = steps * each + pauses / self.gain(plan)
        self.clock.advance(wall)
        return self._window(plan, steps, wall)

    def compare(self, plan: Plan) -> Comparison:
        """Returns whether the plan is equal, according to `unequal_keys` and `unprovable`, after `compare_seconds`."""
        self.compared.append(plan.key)
        self.clock.advance(self.compare_seconds)
        wrong = [part.key for part in plan.rewrites if part.key in self.unequal_keys]
        if self.unprovable:
            check = EqualityCheck("values", None, "not compared: the pipeline cannot be serialized")
            return Comparison(plan.safety, (EqualityCheck("spec", True), check), elements=0, epochs=0)
        check = EqualityCheck("values", not wrong, f"element 3 differs under {wrong[0]}" if wrong else "")
        return Comparison(plan.safety, (check, EqualityCheck("epochs", not wrong)), elements=64, epochs=3)

    def seconds_to_fill(self, plan: Plan, epoch_seconds: float | None) -> float | None:
        """Returns an epoch for the caches that a plan inserts."""
        return epoch_seconds if inserted_caches(plan.edits) else 0.0

    def predicted_bytes(self, plan: Plan) -> float:
        """Returns the sum of `predicted_bytes_by_key` over the plan's rewrites."""
        return sum(self.predicted_bytes_by_key.get(part.key, 0.0) for part in plan.rewrites)

    def _fail(self, plan: Plan) -> None:
        for part in plan.rewrites:
            if part.key in self.fails:
                self.clock.advance(0.5)
                raise RunFailed(self.fails[part.key])

    def _window(self, plan: Plan, steps: int, seconds: float, *, converged: bool = True) -> Window:
        examples = steps * self.batch
        return Window(
            steps=steps,
            examples=examples,
            wall_seconds=seconds,
            cpu_seconds=examples * 1e-3 / self.cpu(plan),
            first_seconds=self.first_seconds,
            converged=converged,
        )


FILE = Path(__file__).with_name("recorded_windows.json")

CONDITIONS = ("quiet", "neighbour", "shared")
UNITS = ("input", "training")

CORES = 2  # of the machine of the recording

SCALE = 1000
"""Durations are stored in thousandths of the median of the series: 1000 is the median."""


@dataclass(frozen=True)
class RecordedWindow:
    """One window: its startup overhead, then its slices in order.

    Seconds and CPU seconds per step of each slice are relative to the median of the series, in thousandths.
    """

    overhead_ms: int  # from the request to the first counted step, without the warm-up
    wall: tuple[int, ...]
    cpu: tuple[int, ...]
    converged: bool = True
    others: tuple[int, ...] = ()  # thousandths of a core that other processes used in each slice; empty: not recorded


@dataclass(frozen=True)
class Series:
    """Consecutive windows of one pipeline under one condition."""

    step_seconds: float  # median over all slices
    cpu_step_seconds: float
    slice_steps: int  # steps of one slice of a training window; 0 if slices have a fixed duration
    slice_seconds: float  # of a slice at the median
    windows: tuple[RecordedWindow, ...]


@dataclass(frozen=True)
class Recording:
    """All series, by "unit, condition"; `about` describes the machine they were recorded on."""

    about: str
    series: Mapping[str, Series]

    def series_for(self, unit: str, condition: str) -> Series:
        """Returns the series of one of `UNITS` under one of `CONDITIONS`."""
        return self.series[f"{unit}, {condition}"]


def save(recording: Recording, path: Path = FILE) -> None:
    """Writes a recording compactly, with one line per window."""
    data = encode(recording)
    assert isinstance(data, dict)
    for series in data["series"].values():
        series["windows"] = [list(window.values()) for window in series["windows"]]
    lines = json.dumps(data, separators=(",", ":")).replace("[[", "[\n[").replace("],[", "],\n[")
    write_text(path, lines.replace("]]},", "]]},\n") + "\n")


@cache
def load(path: Path = FILE) -> Recording:
    """Returns a recording that `save` wrote.

    Raises:
        MalformedData: the file is damaged.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    names = ("overhead_ms", "wall", "cpu", "converged", "others")
    for series in data["series"].values():
        series["windows"] = [dict(zip(names, window, strict=True)) for window in series["windows"]]
    return decode(Recording, data)


MEAN_BLOCK_WINDOWS = 40
"""Mean length of a block: about half a minute, longer than the correlation between neighboring windows."""


@dataclass
class ReplayRunner:
    """A `Runner` whose speeds vary as recorded, and by the `gain` of a plan.

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
        """Whether there is a series of training windows."""
        return self.training is not None

    @property
    def shares_processors(self) -> bool:
        """Whether model and input share processors; assumed of all training windows."""
        return self.trains

    @property
    def epoch_steps(self) -> int | None:
        """None: the recorded data has no epochs."""
        return None

    @property
    def pause(self) -> Pause | None:
        """None: the recorded data has no pauses."""
        return None

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        """Returns a window of recorded slices of the input, and advances the clock."""
        slices = max(1, round(seconds / self.input.slice_seconds))
        return self._window(plan, self.input, slices, seconds / slices, warmup_seconds)

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        """Returns a window of recorded training slices, and advances the clock.

        Raises:
            RunFailed: there is no series of training windows.
        """
        if self.training is None:
            raise RunFailed("the consumer cannot be switched")
        slices = max(1, round(steps / self.training.slice_steps))
        return self._window(plan, self.training, slices, None, 0.0, steps=steps)

    def compare(self, plan: Plan) -> Comparison:
        """Returns that the plan is equal, after `compare_seconds`."""
        self.clock.advance(self.compare_seconds)
        return Comparison(
            plan.safety, (EqualityCheck("values", True), EqualityCheck("epochs", True)), elements=64, epochs=3
        )

    def seconds_to_fill(self, plan: Plan, epoch_seconds: float | None) -> float | None:
        """Returns 0: nothing is filled."""
        return 0.0

    def predicted_bytes(self, plan: Plan) -> float:
        """Returns 0: no plan exceeds a memory limit."""
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
        wall, cpu, others = list(first.wall[:slices]), list(first.cpu[:slices]), list(first.others[:slices])
        while len(wall) < slices:
            more = tape.next()
            others += more.others[: slices - len(wall)]
            wall += more.wall[: slices - len(wall)]
            cpu += more.cpu[: slices - len(cpu)]
        speed = self.gain(plan) / series.step_seconds
        if slice_seconds is not None:  # fixed duration: how many steps fit into each slice?
            done = sum(slice_seconds * speed * SCALE / one for one in wall)
            steps = max(1, round(done))
            seconds = steps * slices * slice_seconds / done
            weights = [1 / one for one in wall]
            lengths = [1.0] * slices
        else:  # fixed number of steps: how many seconds do they take?
            seconds = steps / speed * sum(wall) / slices / SCALE
            weights = [1.0] * slices
            lengths = [float(one) for one in wall]
        others_share = sum(w * one for w, one in zip(lengths, others, strict=False)) / sum(lengths) / SCALE
        cpu_share = sum(w * one for w, one in zip(weights, cpu, strict=True)) / sum(weights) / SCALE
        self.clock.advance(first.overhead_ms / 1000 + warmup_seconds + seconds)
        return Window(
            steps=steps,
            examples=steps * self.batch,
            wall_seconds=seconds,
            cpu_seconds=steps * series.cpu_step_seconds * cpu_share / self.gain(plan),
            first_seconds=first.overhead_ms / 1000,
            converged=first.converged,
            others_seconds=others_share * seconds if others else None,
            cores=CORES,
        )


class _Tape:
    """Reads a series cyclically in blocks of random length, each from a random position."""

    def __init__(self, series: Series, draw: random.Random) -> None:
        self._windows = series.windows
        self._draw = draw
        self._at = draw.randrange(len(series.windows))

    def next(self) -> RecordedWindow:
        window = self._windows[self._at]
        if self._draw.random() < 1 / MEAN_BLOCK_WINDOWS:
            self._at = self._draw.randrange(len(self._windows))
        else:
            self._at = (self._at + 1) % len(self._windows)
        return window
