"""Real A/A comparisons: decisions by the planned looks on a candidate that is the pipeline as it was written."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

from pipetune.bench import Say, loops
from pipetune.bench.keeping import Kept
from pipetune.capture.loop_consumer import StepConsumer
from pipetune.core.codec import decode, encode
from pipetune.core.edits import Plan, Rewrite, Safety, SetArgument
from pipetune.core.results import Outcome
from pipetune.core.time_plan import Part, SystemClock, TimePlan
from pipetune.measure import machine
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live
from pipetune.search.meter import Meter
from pipetune.search.race import decide
from pipetune.testing.recorded import UNITS
from pipetune.timing.iterators import shortened_pauses

WINDOW_SECONDS = 0.3  # that of the default budget

_ENDLESS_SECONDS = 1e6  # the looks end a comparison here, never the budget


@dataclass(frozen=True)
class Compared:
    """One comparison as it ended."""

    unit: str
    outcome: Outcome
    ratios: tuple[float, ...]
    seconds: float


def compare(count: int, *, seed: int, say: Say, kept: Kept) -> list[Compared]:
    """`count` comparisons, the input alone and the training step in turn; those in `kept` are not made again."""
    names = [f"comparison {number}" for number in range(count)]
    if any(name not in kept for name in names):
        bench = _Bench(seed)
        with shortened_pauses():
            for number, name in enumerate(names):
                if name not in kept:
                    say(f"A/A comparison {number + 1} of {count}")
                    kept[name] = encode(bench.compare(number))
    return [decode(Compared, kept[name]) for name in names]


class _Bench:
    """The pipeline, the runner, and the candidate that changes nothing."""

    def __init__(self, seed: int) -> None:
        loop = loops.photos(seed=seed)
        source = live.read(loop.dataset)
        self._seed = seed
        self._clock = SystemClock()
        self._runner = TensorFlowRunner(
            source,
            StepConsumer(lambda examples, labels: float(loop.step(examples, labels))),
            machine=machine.read_machine(),
            examples_per_element=loop.examples_per_element,
        )
        batch = next(node for node in source.pipeline if node.op == "batch")
        size = batch.argument("batch_size")
        # Replayed from the batch on, as a rewrite's plan is: another dataset with the same operators.
        self._same = Plan(
            "same", (Rewrite("same", batch.id, Safety.EXACT, (SetArgument(batch.id, "batch_size", size),), ""),)
        )
        self._steps = 0

    def compare(self, number: int) -> Compared:
        """One decision, by a budget that never ends it."""
        unit = UNITS[number % len(UNITS)]
        began = self._clock.now()
        meter = Meter(
            self._runner,
            self._clock,
            budget=TimePlan(_ENDLESS_SECONDS, self._clock),
            window_seconds=WINDOW_SECONDS,
        )
        base = Plan("defaults")
        if unit == "training":
            meter.choose_steps(base, steps=self._steps or None)
            self._steps = meter.steps
        draw = random.Random(self._seed * 1_000_003 + number)
        (trial,) = decide([self._same], base, meter, draw=draw, unit=unit, part=Part.SEARCH)
        return Compared(unit, trial.outcome, trial.ratios, round(self._clock.now() - began, 2))


def spread(compared: list[Compared]) -> float:
    """Median over the comparisons of the standard deviation of their ratios: how noisy the machine was."""
    return statistics.median(statistics.stdev(one.ratios) for one in compared)
