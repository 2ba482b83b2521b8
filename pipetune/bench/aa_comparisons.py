"""Real A/A comparisons: decisions about a candidate that is identical to the original pipeline."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from functools import partial

from pipetune.bench import ProgressCallback, loops
from pipetune.bench.resumable import ResumableResults
from pipetune.capture.loop_consumer import StepConsumer
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

WINDOW_SECONDS = 0.3  # as with the default budget

_UNLIMITED_SECONDS = 1e6  # a comparison ends at one of its looks, never because of the budget


@dataclass(frozen=True)
class Comparison:
    """The outcome of one comparison."""

    outcome: Outcome
    ratios: tuple[float, ...]  # of the pairs


def run_comparisons(count: int, *, seed: int, progress: ProgressCallback, saved: ResumableResults) -> list[Comparison]:
    """Runs comparisons of the input alone and of the training step in turn, except those that are saved already.

    Args:
        count: number of comparisons.
        seed: seed of the pipeline and of the order of windows.
        progress: called before each comparison.
        saved: results of earlier comparisons; new ones are added.
    """
    subject = _Subject(seed)

    def compare(number: int) -> Comparison:
        progress(f"A/A comparison {number + 1} of {count}")
        return subject.compare(number)

    with shortened_pauses():
        return [saved.get(Comparison, f"comparison {number}", partial(compare, number)) for number in range(count)]


class _Subject:
    """A pipeline with a training step, and a candidate plan that changes nothing."""

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
        # Setting an argument to its value has the dataset replayed from there on, like any rewrite.
        self._candidate = Plan(
            "same", (Rewrite("same", batch.id, Safety.EXACT, (SetArgument(batch.id, "batch_size", size),), ""),)
        )
        self._steps = 0  # steps per training window; 0: not chosen yet

    def compare(self, number: int) -> Comparison:
        """Compares the candidate with the original until a decision is reached."""
        unit = UNITS[number % len(UNITS)]
        meter = Meter(
            self._runner,
            self._clock,
            budget=TimePlan(_UNLIMITED_SECONDS, self._clock),
            window_seconds=WINDOW_SECONDS,
        )
        base = Plan("defaults")
        if unit == "training":
            meter.choose_steps(base, steps=self._steps or None)
            self._steps = meter.steps
        draw = random.Random(self._seed * 1_000_003 + number)
        (trial,) = decide([self._candidate], base, meter, draw=draw, unit=unit, part=Part.SEARCH)
        return Comparison(trial.outcome, trial.ratios)


def median_spread(comparisons: list[Comparison]) -> float:
    """Returns the noise of the machine: the standard deviation of a comparison's ratios, median of all comparisons."""
    return statistics.median(statistics.stdev(one.ratios) for one in comparisons)
