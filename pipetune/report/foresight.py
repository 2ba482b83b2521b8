"""What the cost model foresaw: predicted beside measured rates, and what would bind if something else were given."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipetune.core.results import PredictedRate, Rate, Scenario, mean_error
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.places import Places
from pipetune.report.values import Figure, figure

_BINDS = {
    "cores": "every core is busy, most of all with",
    "segment": "one thread, most of all",
    "parallel": "all parallel calls of",
    "storage": "the bytes storage delivers to",
}


@dataclass(frozen=True)
class PredictedRow:
    """One plan, its input alone."""

    label: str
    predicted: Figure  # examples per second
    measured: Figure
    error: Figure


@dataclass(frozen=True)
class Point:
    """A plan in the plot of predicted against measured, in percent of width and of height from below."""

    label: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class ScenarioRow:
    """One change of the circumstances."""

    label: str
    input: Figure  # examples per second the input can deliver at most
    step: Figure  # the least time a training step takes
    binds: str


@dataclass(frozen=True)
class Foresight:
    """Both tables; empty where there is nothing to tell."""

    rows: tuple[PredictedRow, ...]
    points: tuple[Point, ...]
    ticks: tuple[tuple[float, str], ...]  # of both axes
    mean_error: Figure
    sentence: str
    scenarios: tuple[ScenarioRow, ...]
    no_scenarios: str  # why the table is missing
    short: str = ""  # one line of the second table: what more cores would bring


def foresight(result: DatasetResult, places: Places) -> Foresight:
    rates = _with_confirmed(result)
    missing = dict.fromkeys(words.clean(rate.why) for rate in rates if rate.predicted is None and rate.why)
    known = [rate for rate in rates if rate.predicted and rate.measured]
    error = mean_error(tuple(rates))
    low, high = _ends([value for rate in known for value in (rate.predicted, rate.measured) if value])
    per_element = result.profile.examples_per_element if result.profile else 1.0
    told = [one for one in result.what_if if not one.why]
    return Foresight(
        rows=tuple(_row(rate) for rate in rates),
        points=tuple(
            Point(_label(rate), _place(rate.measured, low, high), _place(rate.predicted, low, high)) for rate in known
        ),
        ticks=_ticks(low, high) if known else (),
        mean_error=figure(error, words.percent, why="nothing was both predicted and measured"),
        sentence=_sentence(known, error, list(missing)),
        scenarios=tuple(_scenario(one, result, places, per_element) for one in told),
        no_scenarios=next((words.clean(one.why) for one in result.what_if if one.why), ""),
        short=_more_cores(told, result, per_element),
    )


def _more_cores(scenarios: list[Scenario], result: DatasetResult, per_element: float) -> str:
    """What more cores would bring; '' where the input delivers as much on those there are."""
    row = next((one for one in scenarios if one.name.endswith("times the cores")), None)
    now = result.rates.get("defaults" if result.plan is None else "tuned", Rate()).examples_per_second
    if row is None or row.input_rate is None or row.input_rate * per_element <= (now or 0):
        return ""
    could = words.rate(row.input_rate * per_element)
    return f"with {words.clean(row.name)} the input could give {could}, by the cost model"


def _with_confirmed(result: DatasetResult) -> list[PredictedRate]:
    """Every plan once; the confirmed one with its confirmed rate, which took no part in choosing."""
    rates = list(result.predictions)
    tuned, plan = result.rates.get("tuned"), result.plan
    if not rates or tuned is None or plan is None or tuned.examples_per_second is None:
        return rates
    predicted = result.predicted.examples_per_second if result.predicted else None
    earlier = next((rate for rate in rates if rate.plan == plan.key), PredictedRate(plan.key, ""))
    if predicted is None or earlier.why:
        predicted = None
    confirmed = PredictedRate(plan.key, "the plan", predicted, tuned.examples_per_second, earlier.why)
    return [*(rate for rate in rates if rate.plan != plan.key), confirmed]


def _label(rate: PredictedRate) -> str:
    return words.clean(rate.name)


def _row(rate: PredictedRate) -> PredictedRow:
    why = f"not predicted: {words.clean(rate.why)}" if rate.why else "not predicted"
    return PredictedRow(
        label=_label(rate),
        predicted=figure(rate.predicted, words.rate, why=why),
        measured=figure(rate.measured, words.rate, why="it was not run alone"),
        error=figure(rate.error, _signed, why="it needs both figures"),
    )


def _signed(share: float) -> str:
    return f"{'+' if share >= 0 else '-'}{words.percent(abs(share))}"


def _sentence(known: list[PredictedRate], error: float | None, missing: list[str]) -> str:
    parts = []
    if error is not None:
        many = words.count(len(known), "plan")
        parts.append(f"The cost model was off by {words.percent(error)} on average over {many}, the input alone.")
    if missing:
        parts.append(f"Not predicted: {words.joined(missing)}.")
    return " ".join(parts)


def _scenario(one: Scenario, result: DatasetResult, places: Places, per_element: float) -> ScenarioRow:
    return ScenarioRow(
        label=words.clean(one.name),
        input=figure(
            None if one.input_rate is None else one.input_rate * per_element, words.rate, why="nothing bounds it"
        ),
        step=figure(
            1 / one.training_rate if one.training_rate else None,
            words.seconds,
            why="the training step alone was not measured",
        ),
        binds="the model" if one.binds == "model" else _what_binds(one, result, places),
    )


def _what_binds(one: Scenario, result: DatasetResult, places: Places) -> str:
    if one.bound == "consumer":
        return "taking elements one by one"
    pipeline = result.tuned or result.pipeline
    if one.node is None or one.node not in pipeline:
        return "the input"
    node = pipeline[one.node]
    where = places.location(node.location)
    return f"{_BINDS.get(one.bound, 'the input:')} {words.clean(node.title)}{f' ({where})' if where else ''}"


def _ends(values: list[float]) -> tuple[float, float]:
    """A logarithmic axis that holds all of them, with some room."""
    if not values:
        return 1.0, 10.0
    return min(values) / 1.3, max(values) * 1.3


def _place(value: float | None, low: float, high: float) -> float:
    assert value is not None
    return 100 * math.log(value / low) / math.log(high / low)


def _ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Round rates whose labels do not touch."""
    found: list[tuple[float, str]] = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for step in (1, 2, 5):
            value = step * 10.0**power
            place = _place(value, low, high)
            if 0 <= place <= 100 and all(abs(place - other) >= 12 for other, _ in found):
                found.append((place, words.rate(value)))
    return tuple(found)
