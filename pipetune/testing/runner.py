"""A fake clock and a runner with synthetic times, for tests of the search.

The noise is that of shared machines: slow drift, correlation between neighboring windows, rare spikes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pipetune.core.edits import Insert, Plan, Rewrite, Safety, SetArgument
from pipetune.core.results import Comparison, EqualityCheck, Pause, RunFailed, Window


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
