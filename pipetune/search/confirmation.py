"""Confirmation: the final plan measured anew. The only numbers a user sees; none of them took part in
choosing.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, Outcome, Rate, RunFailed, Trial, Window
from pipetune.core.session import Training
from pipetune.core.settings import Settings
from pipetune.search.baselines import DEFAULTS, choose_steps, rate_from
from pipetune.search.budget import Budget, Part
from pipetune.search.meter import Meter, Refused, rate_of
from pipetune.search.result import SearchResult
from pipetune.search.runner import Clock, Notify, Runner, SystemClock, silent
from pipetune.search.statistics import ACCEPT_ABOVE, ratio_interval

AUTOTUNE = "autotune"
TUNED = "tuned"
FEWEST_ROUNDS, MOST_ROUNDS = 5, 16

PRECISION = 0.03
"""How far an interval should reach to either side: acceptance asks for +3 %, so a wider one says little."""

GOOD_ROUNDS = 12
"""Rounds of the unit that decides, however quiet the search was: the machine may be louder now (six pairs gave +-7 %
behind a search of +-2.4 %)."""

OVERRUN = 0.2
"""Share of the budget that rounds may take beyond it where the noise of the search asks for more of them."""


@dataclass(frozen=True)
class Confirmation:
    """What the fresh numbers say. Not confirmed means: no patch."""

    confirmed: bool
    why: str
    input_speedup: Interval | None = None  # tuned over defaults, input alone
    input_speedup_over_autotune: Interval | None = None
    training: Training | None = None
    rates: dict[str, Rate] = field(default_factory=dict)  # "defaults", "autotune", "tuned"
    trials: tuple[Trial, ...] = ()
    rounds: int = 0


def confirm(
    plan: Plan,
    runner: Runner,
    *,
    baselines: Mapping[str, Plan],
    settings: Settings,
    budget: Budget,
    found: SearchResult | None = None,
    pairs: int | None = None,
    clock: Clock | None = None,
    notify: Notify = silent,
    bound_step_seconds: float | None = None,
    memory_limit_bytes: float | None = None,
) -> Confirmation:
    """Measure `plan`, `defaults` and `autotune` in rounds of one fresh window each, in random order.

    One tuned window of a round serves both ratios. The number of rounds is fixed before the first (`pairs`,
    or what the time left allows, 5 to 16). Where the runner trains, rounds of training windows follow. Those of the
    unit that decides are `GOOD_ROUNDS`, or as many as bring the interval of the search to `PRECISION`, if `OVERRUN`
    allows.

    Confirmed: where the runner trains and shares processors with the model, or the plan gains inside the step
    only, the 95 % interval of the training speedup over `defaults` lies above 1; elsewhere that of the input
    speedup above `ACCEPT_ABOVE`.

    Args:
        found: the search's result, for the window lengths it settled on.
        budget: the one the search used; its confirmation part is what is left.
        bound_step_seconds: a step on one repeated batch, from the profile; shown beside the others.
    """
    clock = clock or SystemClock()
    meter = Meter(
        runner,
        clock,
        budget=_Unlimited(budget, clock),
        memory_limit_bytes=memory_limit_bytes,
        notify=notify,
    )
    if found is not None and found.window_seconds:
        meter.window_seconds, meter.warmup_seconds = found.window_seconds, found.warmup_seconds
        meter.steps = found.steps or meter.steps
        meter.restless += found.restless
        for name, seconds in found.window_costs.items():
            meter.expect(name, seconds)
    draw = random.Random(settings.seed + 1)
    contenders = {
        name: variant
        for name, variant in {
            DEFAULTS: baselines[DEFAULTS],
            AUTOTUNE: baselines.get(AUTOTUNE),
            TUNED: plan,
        }.items()
        if variant is not None
    }
    notes: list[str] = []
    units = ["input"]
    if runner.trains:
        try:
            if found is None or not found.steps:
                choose_steps(contenders[DEFAULTS], meter, steps=settings.steps)
            units.append("training")
        except RunFailed as problem:
            notes.append(str(problem))
    measured: dict[str, dict[str, list[Window]]] = {}
    inside = runner.trains and (runner.shares_processors or plan.only_training)
    for position, unit in enumerate(units):
        share = budget.left(Part.CONFIRMATION) / (len(units) - position)
        meter.shorten(unit, seconds=share / len(contenders) / FEWEST_ROUNDS)
        wanted = _rounds_wanted(found, unit) if unit == ("training" if inside else "input") else FEWEST_ROUNDS
        try:
            measured[unit] = _rounds(
                contenders,
                meter,
                unit,
                seconds=share,
                more_seconds=OVERRUN * budget.seconds,
                wanted=wanted,
                pairs=pairs,
                draw=draw,
                notify=notify,
            )
        except RunFailed as problem:
            if unit == "input":
                return Confirmation(False, f"The plan could not be measured again: {problem}.")
            notes.append(str(problem))
    inputs = measured["input"]
    over_defaults = _speedup(inputs, DEFAULTS, "input")
    over_autotune = _speedup(inputs, AUTOTUNE, "input")
    training = _training(measured.get("training"), bound_step_seconds, "; ".join(notes))
    decides = training.speedup if inside else over_defaults
    unit = "training" if decides is training.speedup else "input"
    above = 1.0 if unit == "training" else ACCEPT_ABOVE
    confirmed = decides is not None and decides.low > above
    if decides is None:
        why = "The training step could not be measured: " + "; ".join(notes)
    else:
        spoken = f"{decides.median:.2f} times as fast ({decides.low:.2f} to {decides.high:.2f}, {unit})"
        why = f"Confirmed with fresh measurements: {spoken}." if confirmed else f"Not confirmed: {spoken}."
    trials = tuple(
        Trial(
            plan,
            Outcome.ACCEPTED if confirmed else Outcome.REJECTED,
            why,
            gain=_speedup(windows, DEFAULTS, name),
            kind="confirmation",
            unit=name,
            ratios=_ratios(windows, DEFAULTS, name),
        )
        for name, windows in measured.items()
    )
    for trial in trials:
        notify("trial", trial=trial)
    return Confirmation(
        confirmed=confirmed,
        why=why,
        input_speedup=over_defaults,
        input_speedup_over_autotune=over_autotune,
        training=training,
        rates={name: rate_from(windows) for name, windows in inputs.items()},
        trials=trials,
        rounds=len(inputs[TUNED]),
    )


class _Unlimited(Budget):
    """The confirmation is never cut short: its rounds are fixed before it begins."""

    def __init__(self, budget: Budget, clock: Clock) -> None:
        super().__init__(budget.seconds, clock)

    def require(self, part: Part, seconds: float) -> None:
        return


def _rounds(
    contenders: Mapping[str, Plan],
    meter: Meter,
    unit: str,
    *,
    seconds: float,
    more_seconds: float,
    wanted: int,
    pairs: int | None,
    draw: random.Random,
    notify: Notify,
) -> dict[str, list[Window]]:
    """The windows of each contender, as many rounds as planned before the first.

    As many as `seconds` hold; up to `wanted` where `more_seconds` hold these too. Where the cost of a window is not
    known from the search, a first round is thrown away to learn it. A failing "autotune" leaves; any other failure
    is raised as `RunFailed`.
    """
    names = list(contenders)
    windows: dict[str, list[Window]] = defaultdict(list)
    if not meter.knows(unit):
        _round(names, contenders, windows, meter, unit, draw=draw, notify=notify)
        windows.clear()
    once = len(names) * meter.cost(unit)
    affordable = max(int(seconds / once), min(wanted, int((seconds + more_seconds) / once)))
    for _ in range(pairs or min(max(affordable, FEWEST_ROUNDS), MOST_ROUNDS)):
        _round(names, contenders, windows, meter, unit, draw=draw, notify=notify)
    return dict(windows)


def _rounds_wanted(found: SearchResult | None, unit: str) -> int:
    """Rounds after which the interval that the plan was accepted by would reach `PRECISION` to either side."""
    if found is None or found.gain is None or found.unit != unit:
        return FEWEST_ROUNDS
    reach = math.log(found.gain.high / found.gain.low) / 2
    return max(GOOD_ROUNDS, math.ceil(found.gain.pairs * (reach / PRECISION) ** 2))


def _round(
    names: list[str],
    contenders: Mapping[str, Plan],
    windows: dict[str, list[Window]],
    meter: Meter,
    unit: str,
    *,
    draw: random.Random,
    notify: Notify,
) -> None:
    """One window of each name still there, in random order."""
    draw.shuffle(names)
    for name in list(names):
        try:
            windows[name].append(meter.window(contenders[name], unit, part=Part.CONFIRMATION))
        except (RunFailed, Refused) as problem:
            if name != AUTOTUNE:
                raise RunFailed(f"{name}: {problem}") from problem
            names.remove(name)
            windows.pop(name, None)


def _ratios(windows: Mapping[str, list[Window]], over: str, unit: str) -> tuple[float, ...]:
    return tuple(
        rate_of(one, unit) / rate_of(other, unit)
        for one, other in zip(windows.get(TUNED, []), windows.get(over, []), strict=False)
    )


def _speedup(windows: Mapping[str, list[Window]], over: str, unit: str) -> Interval | None:
    sample = _ratios(windows, over, unit)
    return ratio_interval(sample) if len(sample) >= 2 else None


def _training(windows: Mapping[str, list[Window]] | None, bound: float | None, why: str) -> Training:
    bound_ms = None if bound is None else 1000 * bound
    if windows is None:
        return Training(bound_step_ms=bound_ms, why=why or "the consumer cannot be given another input")

    def step_ms(name: str) -> float | None:
        """The geometric mean: the interval of the speedup holds the ratio of two of them, of two medians it may not."""
        found = windows.get(name)
        return 1000 * statistics.geometric_mean(window.step_seconds for window in found) if found else None

    return Training(
        defaults_step_ms=step_ms(DEFAULTS),
        tuned_step_ms=step_ms(TUNED),
        bound_step_ms=bound_ms,
        autotune_step_ms=step_ms(AUTOTUNE),
        speedup=_speedup(windows, DEFAULTS, "training"),
        speedup_over_autotune=_speedup(windows, AUTOTUNE, "training"),
        why=why,
    )
