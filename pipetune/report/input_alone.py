"""The input alone: rates and memory, measured and predicted, what would limit it, and what TensorFlow itself does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.machine import Machine
from pipetune.core.measurement import Rate
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import BufferContents, MemoryGrowth
from pipetune.core.results import (
    BUFFER_SIZE,
    PARALLELISM,
    AutotuneValues,
    PredictedRate,
    Scenario,
    TunedValue,
    mean_error,
)
from pipetune.core.session import DatasetResult
from pipetune.model.memory import by_operator
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Facts, Row, Sentence, Table, number_cell, numbers
from pipetune.report.places import Places
from pipetune.report.words import Fact, interval

_BINDS = {
    "cores": "every core is busy, most of all with",
    "segment": "one thread, most of all",
    "parallel": "all parallel calls of",
    "storage": "the bytes storage delivers to",
}

_SAME = 0.02  # relative difference of rates below which a condition changes nothing


def predictions(result: DatasetResult, places: Places) -> Iterator[Block]:
    """Predicted and measured rates, and what would limit training; nothing where nothing was predicted."""
    rates = _as_shown(result)
    if rates:
        yield from _sentence(rates)
        yield Table(
            "The input alone, by plan",
            (Column("Plan"), *numbers("Predicted", "Measured", "Error")),
            tuple(_row(rate) for rate in rates),
        )
    known = [one for one in result.what_if if not one.why]
    different = [one for one in known if _differs(one, known)]
    if different:
        per_element = result.profile.examples_per_element if result.profile else 1.0
        planned = "" if result.plan is None else ", with the plan"
        yield Table(
            f"If there were ...{planned}, by the cost model",
            (Column("Condition"), *numbers("Input delivers", "Step takes"), Column("Limit")),
            tuple(_scenario(one, result, places, per_element) for one in different),
        )


def _as_shown(result: DatasetResult) -> list[PredictedRate]:
    """Every plan once, with the rate that the table of throughput shows where it has one."""
    variants = {label: name for name, label in words.VARIANTS.items()}
    found = []
    for rate in result.predictions:
        if result.plan is not None and rate.plan == result.plan.key:
            continue
        shown = result.rates.get(variants.get(rate.name, ""))
        if shown is not None and shown.examples_per_second is not None:
            rate = replace(rate, measured=shown.examples_per_second)
        found.append(rate)
    tuned = result.rates.get("tuned")
    if found and tuned is not None and result.plan is not None and tuned.examples_per_second is not None:
        key = result.plan.key
        earlier = next((one for one in result.predictions if one.plan == key), PredictedRate(key, ""))
        predicted = result.predicted.examples_per_second if result.predicted and not earlier.why else None
        found.append(PredictedRate(key, "tuned", predicted, tuned.examples_per_second, earlier.why))
    return found


def _sentence(rates: list[PredictedRate]) -> Iterator[Sentence]:
    known = [rate for rate in rates if rate.predicted and rate.measured]
    error = mean_error(tuple(rates))
    if error is not None:
        many = words.count(len(known), "plan")
        yield Sentence(f"The cost model was off by {words.percent(error)} on average over {many}, the input alone.")
    missing = list(dict.fromkeys(words.clean(rate.why) for rate in rates if rate.predicted is None and rate.why))
    if missing:
        yield Sentence(f"Not predicted: {words.joined(missing)}.", quiet=True)


def _row(rate: PredictedRate) -> Row:
    why = f"not predicted: {words.clean(rate.why)}" if rate.why else "not predicted"
    cells = (
        Cell(words.clean(rate.name)),
        number_cell(rate.predicted, words.rate, why=why),
        number_cell(rate.measured, words.rate, why="it was not run alone"),
        number_cell(rate.error, _signed, why="it needs both figures"),
    )
    return Row(cells)


def _signed(share: float) -> str:
    return f"{'+' if share >= 0 else '-'}{words.percent(abs(share))}"


def _differs(one: Scenario, known: list[Scenario]) -> bool:
    """Whether a condition changes what training can reach; the first one is how things are."""
    first = known[0]
    if one is first:
        return any(_differs(other, known) for other in known[1:])
    pairs = ((one.input_rate, first.input_rate), (one.training_rate, first.training_rate))
    return any(a and b and abs(a / b - 1) > _SAME for a, b in pairs)


def _scenario(one: Scenario, result: DatasetResult, places: Places, per_element: float) -> Row:
    rate = None if one.input_rate is None else one.input_rate * per_element
    cells = (
        Cell(words.clean(one.name)),
        number_cell(rate, words.rate, why="nothing limits it"),
        number_cell(1 / one.training_rate if one.training_rate else None, words.seconds),
        Cell("the model" if one.binds == "model" else _limit(one, result, places)),
    )
    return Row(cells)


def _limit(one: Scenario, result: DatasetResult, places: Places) -> str:
    if one.bound == "consumer":
        return "taking elements one by one"
    pipeline = result.tuned or result.pipeline
    if one.node is None or one.node not in pipeline:
        return "the input"
    node = pipeline[one.node]
    where = places.location(node.location)
    return f"{_BINDS.get(one.bound, 'the input:')} {words.clean(node.title)}{f' ({where})' if where else ''}"


_NOTES = {
    "off": "TensorFlow's own graph optimizations switched off",
    "defaults": "the script as it is",
    "autotune": "AUTOTUNE for every parallelism, and a final prefetch",
    "tuned": "with the plan",
}


def _known(result: DatasetResult, name: str) -> bool:
    if name == "tuned" and result.plan is None:
        return False  # its rate would stand for something that is not recommended
    return name in result.rates and result.rates[name].examples_per_second is not None


def throughput(result: DatasetResult) -> Iterator[Block]:
    """One row per variant that was measured; nothing if there is none."""
    rows = [_throughput_row(name, result.rates[name]) for name in words.VARIANTS if _known(result, name)]
    if not rows:
        return
    yield Table(
        "Each variant of the input alone, consumed as fast as it delivers",
        (Column("Variant"), *numbers("Examples", "Batches", "CPU per example", "First batch", "Peak memory")),
        tuple(rows),
    )
    facts = [
        Fact(label, interval(gain, words.ratio).text, words.count(gain.pairs, "pair"))
        for label, gain in (
            ("tuned over current", result.input_speedup),
            ("tuned over AUTOTUNE everywhere", result.input_speedup_over_autotune),
        )
        if gain is not None
    ]
    if facts:
        yield Facts(tuple(facts))
    if result.plan is not None and not _known(result, "tuned"):
        yield Sentence("The tuned input was not run alone.", quiet=True)


def _throughput_row(name: str, rate: Rate) -> Row:
    cells = (
        Cell(words.VARIANTS[name], note=_NOTES[name]),
        number_cell(rate.examples_per_second, words.rate),
        number_cell(rate.batches_per_second, words.rate),
        number_cell(rate.cpu_us_per_example, lambda value: words.seconds(value / 1e6)),
        number_cell(rate.first_batch_seconds, words.seconds),
        number_cell(rate.peak_rss_mib, words.mebibytes),
    )
    return Row(cells)


_PARAMETERS = {PARALLELISM: "parallel calls", BUFFER_SIZE: "buffered elements"}


def tensorflow_work(result: DatasetResult, places: Places) -> Iterator[Block]:
    """Graph passes and AUTOTUNE's values; nothing where they were not looked at."""
    found = result.optimisations
    if found is not None:
        if not found.passes and not found.note:
            yield Sentence("None of TensorFlow's graph passes changes this pipeline.")
        for one in found.passes:
            changes = "; ".join(words.clean(change) for change in one.changes)
            yield Sentence(f"{words.clean(one.name)}: {changes}" if changes else words.clean(one.name))
        if found.note:
            yield Sentence(words.clean(found.note), quiet=True)
    readings = [(name, result.autotuned[name]) for name in ("defaults", "autotune") if name in result.autotuned]
    rows = [
        _autotuned_row(name, value, result.pipeline, places)
        for name, reading in readings
        for value in reading.values
        if value.parameter in _PARAMETERS and value.tunable
    ]
    if rows:
        yield Table(
            "Values that AUTOTUNE chose",
            (Column("Variant"), Column("Operator"), Column("Source"), *numbers("Value"), Column("Range")),
            tuple(rows),
        )
    yield from (Sentence(_settled(name, reading), quiet=True) for name, reading in readings)


def _autotuned_row(name: str, value: TunedValue, pipeline: Pipeline, places: Places) -> Row:
    node = next((node for node in pipeline if node.id == value.node), None)
    most = "no limit" if value.high > 2**53 else words.plain(value.high)  # the runtime's largest number
    cells = (
        Cell(words.VARIANTS[name]),
        Cell(words.clean(node.title) if node else "added by TensorFlow", note=words.clean(value.kernel)),
        Cell(place=places.place_of(node.location)) if node else Cell(),
        Cell(words.plain(value.value), note=_PARAMETERS[value.parameter], sort=value.value),
        Cell(f"{words.plain(value.low)} to {most}"),
    )
    return Row(cells)


def _settled(name: str, reading: AutotuneValues) -> str:
    who = words.sentence(words.VARIANTS[name]).rstrip(".")
    if reading.note:
        return f"{who}: {words.clean(reading.note)}"
    if not any(value.tunable for value in reading.values):
        return f"{who}: no value is left to AUTOTUNE."
    watched = words.seconds(reading.seconds)
    if reading.converged:
        return f"{who}: parallelism did not change at the end of {watched} of observation."
    return f"{who}: AUTOTUNE had not settled after {watched}; the values are those of that moment."


_MOST_BUFFERS = 4  # named


def memory(result: DatasetResult, machine: Machine | None, places: Places) -> Iterator[Block]:
    """Peaks and buffers; nothing where no peak is known."""
    profile, rates = result.profile, result.rates
    cores = max(1.0, machine.cores_granted) if machine else 1.0
    most = by_operator(result.pipeline, profile, cores=cores) if profile else {}
    defaults, tuned = rates.get("defaults"), rates.get("tuned")
    peak = defaults.peak_rss_mib if defaults else None
    peak = profile.peak_rss_mib if peak is None and profile else peak
    facts = []
    if peak is not None:
        facts.append(Fact("current", words.mebibytes(peak), _memory_error(sum(most.values()) / 2**20 or None, peak)))
    if tuned is not None and tuned.peak_rss_mib is not None and result.plan is not None:
        predicted = result.predicted.peak_rss_mib if result.predicted else None
        facts.append(Fact("tuned", words.mebibytes(tuned.peak_rss_mib), _memory_error(predicted, tuned.peak_rss_mib)))
    if not facts:
        return
    if machine is not None:
        facts.append(Fact("available", words.byte_size(machine.memory_limit_bytes)))
    yield Sentence("Peaks of the input alone, above the level of a process before its first element.", quiet=True)
    yield Facts(tuple(facts))
    for sentence in (_growth(profile.growth if profile else None), _held(profile.held if profile else ())):
        if sentence:
            yield Sentence(sentence)
    rows = []
    for operator in profile.operators if profile else ():
        most_bytes = max(most.get(operator.node, 0.0), operator.buffered_bytes or 0.0)  # a prediction may be too low
        if most_bytes and operator.node in result.pipeline:
            node = result.pipeline[operator.node]
            cells = (
                Cell(words.clean(node.title)),
                Cell(place=places.place_of(node.location)),
                number_cell(operator.buffered_elements, words.significant, why="not counted"),
                number_cell(operator.buffered_bytes, words.byte_size, why="the runtime counts none"),
                number_cell(most_bytes, words.byte_size),
            )
            rows.append(Row(cells))
    if rows:
        yield Table(
            "Buffers of the current pipeline at parallelism 1, and the most each may hold",
            (Column("Operator"), Column("Source"), *numbers("Elements", "Size", "At most")),
            tuple(rows),
        )


def _memory_error(predicted: float | None, measured: float) -> str:
    """How far the prediction is from the measurement; "" without one."""
    if predicted is None or not measured:
        return ""
    off = predicted / measured - 1
    return f"predicted {words.mebibytes(predicted)}, {words.percent(abs(off))} {'above' if off >= 0 else 'below'}"


def _held(buffers: tuple[BufferContents, ...]) -> str:
    """The largest buffers of the pipeline as it runs, those that TensorFlow adds among them."""
    if not buffers:
        return ""
    parts = [
        f"{words.clean(one.name)} {words.byte_size(one.bytes)} ({words.count(round(one.elements), 'element')})"
        for one in buffers[:_MOST_BUFFERS]
    ]
    total = words.byte_size(sum(one.bytes for one in buffers))
    return f"With what TensorFlow adds, the buffers of the current pipeline held {total}: {words.joined(parts)}."


def _growth(found: MemoryGrowth | None) -> str:
    if found is None:
        return ""
    unit = found.epoch_elements or 1000
    slope = found.bytes_per_element
    low, median, high = (words.byte_size(one * unit) for one in (slope.low, slope.median, slope.high))
    watched = f"{words.plain(found.epochs)} epochs" if found.epochs is not None else f"{found.elements:,} elements"
    per = "epoch" if found.epoch_elements is not None else "1,000 elements"
    end = "and does not stop" if found.steady else "which is not steady growth"
    return f"Over {watched} of the input alone memory changed by {median} per {per} ({low} to {high}), {end}."
