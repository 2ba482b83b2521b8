"""What AUTOTUNE chose and which graph passes changed the pipeline: TensorFlow's own work, shown as such."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.pipeline import Pipeline
from pipetune.core.results import BUFFER_SIZE, PARALLELISM, AutotuneValues, TunedValue
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Row, Sentence, Table
from pipetune.report.places import Places

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
        _row(name, value, result.pipeline, places)
        for name, reading in readings
        for value in reading.values
        if value.parameter in _PARAMETERS and value.tunable
    ]
    if rows:
        yield Table(
            "Values that AUTOTUNE chose",
            (Column("Variant"), Column("Operator"), Column("Source"), Column("Value", number=True), Column("Range")),
            tuple(rows),
        )
    yield from (Sentence(_settled(name, reading), quiet=True) for name, reading in readings)


def _row(name: str, value: TunedValue, pipeline: Pipeline, places: Places) -> Row:
    node = next((node for node in pipeline if node.id == value.node), None)
    most = "no limit" if value.high > 2**53 else words.plain(value.high)  # the runtime's largest number
    return Row(
        (
            Cell(words.VARIANTS[name]),
            Cell(words.clean(node.title) if node else "added by TensorFlow", note=words.clean(value.kernel)),
            Cell(place=places.place_of(node.location)) if node else Cell(),
            Cell(words.plain(value.value), note=_PARAMETERS[value.parameter], sort=value.value),
            Cell(f"{words.plain(value.low)} to {most}"),
        )
    )


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
