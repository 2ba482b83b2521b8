"""How long windows must be, known before the first candidate is tried; and, afterwards, the baselines' rates."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pipetune.core.edits import Plan
from pipetune.core.results import Outcome, OutOfBudget, Rate, RunFailed, Trial, Window
from pipetune.core.time_plan import Part
from pipetune.search.meter import FEWEST_STEPS, Meter, Refused
from pipetune.search.runner import Notify
from pipetune.search.statistics import USUAL_PAIRS

DEFAULTS = "defaults"
"""The baseline every gain is over: the pipeline as written, TensorFlow's default optimisations on."""

MOST_ROUNDS = 2  # they inform, and decide nothing
MOST_STEPS = 200
SHORTEST_WINDOW_SECONDS = 0.25


def rate_from(windows: Sequence[Window]) -> Rate:
    """The medians over windows of one plan, input alone."""
    return Rate(
        examples_per_second=statistics.median(window.examples_per_second for window in windows),
        batches_per_second=statistics.median(window.steps / window.wall_seconds for window in windows),
        cpu_us_per_example=1e6 * statistics.median(window.cpu_seconds_per_example for window in windows),
        first_batch_seconds=statistics.median(window.first_seconds for window in windows),
    )


def measure_baselines(
    baselines: Mapping[str, Plan], meter: Meter, *, draw: random.Random, notify: Notify
) -> tuple[dict[str, Rate], list[Trial]]:
    """The rate of each baseline, its windows interleaved with the others', in as many rounds as there is time for.

    A baseline that fails is a failed trial and has no rate.
    """
    windows: dict[str, list[Window]] = defaultdict(list)
    trials: dict[str, Trial] = {}
    for _ in range(MOST_ROUNDS):
        names = [name for name in baselines if name not in trials]
        if not meter.budget.affords(Part.INFORMATION, len(names) * meter.cost("input")):
            break
        for name in draw.sample(names, len(names)):
            try:
                windows[name].append(meter.window(baselines[name], "input", part=Part.INFORMATION))
            except (RunFailed, Refused) as problem:
                trials[name] = Trial(baselines[name], Outcome.FAILED, str(problem), kind="baseline")
                notify("trial", trial=trials[name])
            except OutOfBudget:
                break
    rates = {name: rate_from(windows[name]) for name in baselines if windows[name] and name not in trials}
    for name, rate in rates.items():
        notify("rate", baseline=name, rate=rate)
    return rates, list(trials.values())


def fit_windows(meter: Meter) -> None:
    """Shorten input windows, of which one was taken, where a usual race (8 pairs) does not fit into the search."""
    cost = meter.cost("input")
    room = 0.8 * meter.budget.left(Part.SEARCH)
    while 2 * USUAL_PAIRS * cost > room and meter.window_seconds / 2 >= SHORTEST_WINDOW_SECONDS:
        meter.window_seconds /= 2
        cost -= meter.window_seconds
        meter.expect("input", cost)


def choose_steps(base: Plan, meter: Meter, *, steps: int | None) -> None:
    """Set how many steps a training window has, from a first window that is itself thrown away (it warms up).

    Args:
        steps: what the user asked for; None for about as long as two input windows, fewer where a usual
            race (8 pairs) would not fit into what is left for the search, and whole epochs where they are short
            enough (`Meter.whole_epochs`).

    Raises:
        RunFailed: the consumer cannot be switched.
        OutOfBudget: no time for a training window.
    """
    meter.steps = steps or 2 * FEWEST_STEPS
    before = meter.clock.now()
    window = meter.window(base, "training", part=Part.SEARCH)
    if steps:
        return
    overhead = max(0.0, meter.clock.now() - before - window.wall_seconds)
    room = 0.7 * meter.budget.left(Part.SEARCH) / (2 * USUAL_PAIRS) - overhead
    seconds = min(2 * meter.window_seconds, room)
    fitting = min(max(math.ceil(seconds / window.step_seconds), FEWEST_STEPS), MOST_STEPS)
    meter.steps = meter.whole_epochs(fitting, most=max(fitting, math.ceil(room / window.step_seconds)))
    meter.expect("training", overhead + meter.steps * window.step_seconds)
