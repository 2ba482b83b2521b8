"""Memory: peaks measured and predicted, and what the operators' buffers held."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.machine import Machine
from pipetune.core.profile import BufferContents, MemoryGrowth
from pipetune.core.session import DatasetResult
from pipetune.model.memory import by_operator
from pipetune.report import words
from pipetune.report.places import Places
from pipetune.report.values import Figure, figure

_MOST_BUFFERS = 4  # named


@dataclass(frozen=True)
class BufferRow:
    """What one operator of the pipeline as written held."""

    operator: str
    where: str
    elements: Figure
    size: Figure
    predicted: Figure  # at most


@dataclass(frozen=True)
class Memory:
    """Peaks above the process's level before the first element, and the buffers."""

    before: Figure
    before_predicted: Figure
    before_error: str  # how far the prediction is off: "12 % too high"
    after: Figure
    predicted: Figure
    error: str
    limit: Figure
    growth: str  # what became of memory while the input went on
    held: str  # what its buffers held meanwhile
    buffers: tuple[BufferRow, ...]


def memory(result: DatasetResult, machine: Machine | None, places: Places) -> Memory:
    rates = result.rates
    defaults, tuned = rates.get("defaults"), rates.get("tuned")
    peak = defaults.peak_rss_mib if defaults else None
    if peak is None and result.profile:
        peak = result.profile.peak_rss_mib
    no_plan = "no plan was confirmed" if result.plan is None else "it was not measured"
    most = by_operator(result.pipeline, result.profile, cores=_cores(machine)) if result.profile else {}
    rows = []
    for operator in result.profile.operators if result.profile else ():
        predicted = most.get(operator.node, 0.0)
        if (operator.buffered_bytes or predicted) and operator.node in result.pipeline:
            node = result.pipeline[operator.node]
            rows.append(
                BufferRow(
                    operator=words.clean(node.title),
                    where=places.location(node.location),
                    elements=figure(operator.buffered_elements, words.significant, why="it was not counted"),
                    size=figure(operator.buffered_bytes, words.byte_size, why="the runtime counts none for it"),
                    predicted=figure(predicted, words.byte_size),
                )
            )
    before_predicted = sum(most.values()) / 2**20 if result.profile else None
    tuned_predicted = result.predicted.peak_rss_mib if result.predicted else None
    tuned_peak = tuned.peak_rss_mib if tuned else None
    return Memory(
        before=figure(peak, words.mebibytes, why="it was not measured"),
        before_predicted=figure(before_predicted, words.mebibytes, why="nothing was predicted"),
        before_error=_error(before_predicted, peak),
        after=figure(tuned_peak, words.mebibytes, why=no_plan),
        predicted=figure(tuned_predicted, words.mebibytes, why="nothing was predicted"),
        error=_error(tuned_predicted, tuned_peak),
        limit=figure(machine.memory_limit_bytes if machine else None, words.byte_size, why="the machine is not known"),
        growth=_growth(result.profile.growth if result.profile else None),
        held=_held(result.profile.held if result.profile else ()),
        buffers=tuple(rows),
    )


def _cores(machine: Machine | None) -> float:
    return max(1.0, machine.cores_granted) if machine else 1.0


def _error(predicted: float | None, measured: float | None) -> str:
    """How far a prediction is from what was measured; empty where either is missing."""
    if predicted is None or not measured:
        return ""
    off = predicted / measured - 1
    return f"{words.percent(abs(off))} {'above' if off >= 0 else 'below'} what was measured"


def _held(buffers: tuple[BufferContents, ...]) -> str:
    """The largest buffers of the pipeline as it runs, those that TensorFlow adds among them."""
    if not buffers:
        return ""
    parts = [
        f"{words.clean(one.name)} {words.byte_size(one.bytes)} ({words.count(round(one.elements), 'element')})"
        for one in buffers[:_MOST_BUFFERS]
    ]
    total = words.byte_size(sum(one.bytes for one in buffers))
    return f"As written, with what TensorFlow adds, its buffers held {total}: {words.joined(parts)}."


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
    return f"Over {watched} of the input alone memory moved by {median} per {per} ({low} to {high}), {end}."
