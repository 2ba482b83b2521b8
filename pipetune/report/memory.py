"""Memory: peaks measured and predicted, and what the operators' buffers hold."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.machine import Machine
from pipetune.core.profile import BufferContents, MemoryGrowth
from pipetune.core.session import DatasetResult
from pipetune.model.memory import by_operator
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Facts, Row, Sentence, Table, number_cell, numbers
from pipetune.report.places import Places
from pipetune.report.words import Fact

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
        facts.append(Fact("current", words.mebibytes(peak), _error(sum(most.values()) / 2**20 or None, peak)))
    if tuned is not None and tuned.peak_rss_mib is not None and result.plan is not None:
        predicted = result.predicted.peak_rss_mib if result.predicted else None
        facts.append(Fact("tuned", words.mebibytes(tuned.peak_rss_mib), _error(predicted, tuned.peak_rss_mib)))
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
        predicted_bytes = most.get(operator.node, 0.0)
        if (operator.buffered_bytes or predicted_bytes) and operator.node in result.pipeline:
            node = result.pipeline[operator.node]
            cells = (
                Cell(words.clean(node.title)),
                Cell(place=places.place_of(node.location)),
                number_cell(operator.buffered_elements, words.significant, why="not counted"),
                number_cell(operator.buffered_bytes, words.byte_size, why="the runtime counts none"),
                number_cell(predicted_bytes, words.byte_size),
            )
            rows.append(Row(cells))
    if rows:
        yield Table(
            "Buffers of the current pipeline at parallelism 1, and the most each may hold",
            (Column("Operator"), Column("Source"), *numbers("Elements", "Size", "At most")),
            tuple(rows),
        )


def _error(predicted: float | None, measured: float) -> str:
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
    per_epoch = found.epoch_elements is not None
    unit = found.epoch_elements or 1000
    slope = found.bytes_per_element
    low, median, high = (words.byte_size(one * unit) for one in (slope.low, slope.median, slope.high))
    watched = f"{words.plain(found.epochs)} epochs" if found.epochs is not None else f"{found.elements:,} elements"
    per = "epoch" if per_epoch else "1,000 elements"
    end = "and does not stop" if found.steady else "which is not steady growth"
    return f"Over {watched} of the input alone memory changed by {median} per {per} ({low} to {high}), {end}."
