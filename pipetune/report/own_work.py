"""What AUTOTUNE chose and what TensorFlow's graph passes did: TensorFlow's own work, shown as such."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.results import (
    BUFFER_SIZE,
    PARALLELISM,
    AutotuneValues,
    OptimizationPasses,
    PassResult,
    PassState,
    TunedValue,
)
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.places import Places

_VARIANTS = {"defaults": "as written", "autotune": "AUTOTUNE everywhere"}
_PARAMETERS = {PARALLELISM: "calls at once", BUFFER_SIZE: "elements ahead"}
_STATES = {
    PassState.FIRED: "fired",
    PassState.IDLE: "found nothing",
    PassState.WOULD_FIRE: "off, would fire",
    PassState.OFF: "off",
}


@dataclass(frozen=True)
class ChosenRow:
    """One number AUTOTUNE chooses, or would if the script did not."""

    variant: str
    operator: str
    where: str
    kernel: str
    parameter: str
    value: str
    span: str  # least to most it may take
    tuned: bool
    moved: str  # when it last moved


@dataclass(frozen=True)
class PassRow:
    """One graph pass."""

    name: str
    state: str
    by_default: bool
    changes: str
    reasons: tuple[tuple[str, str], ...]  # operator and place, why


@dataclass(frozen=True)
class OwnWork:
    """TensorFlow's own work on one dataset."""

    chosen: tuple[ChosenRow, ...]
    settled: tuple[str, ...]  # one sentence per variant
    passes: tuple[PassRow, ...]
    sentence: str
    note: str = ""

    @property
    def shown(self) -> bool:
        """Whether anything of it was looked at."""
        return bool(self.passes or self.settled or self.note)


def own_work(result: DatasetResult, places: Places) -> OwnWork:
    pipeline = result.pipeline
    readings = [(name, result.autotuned[name]) for name in _VARIANTS if name in result.autotuned]
    found = result.optimisations or OptimizationPasses()
    return OwnWork(
        chosen=tuple(_chosen(name, value, pipeline, places) for name, reading in readings for value in _shown(reading)),
        settled=tuple(_settled(name, reading) for name, reading in readings),
        passes=tuple(_pass(one, pipeline, places) for one in found.passes),
        sentence=_sentence(found),
        note=words.clean(found.note),
    )


def _shown(reading: AutotuneValues) -> list[TunedValue]:
    return [value for value in reading.values if value.parameter in _PARAMETERS]


def _chosen(name: str, value: TunedValue, pipeline: Pipeline, places: Places) -> ChosenRow:
    node = _node(value.node, pipeline)
    return ChosenRow(
        variant=_VARIANTS[name],
        operator=words.clean(node.title) if node else "added by TensorFlow",
        where=places.location(node.location) if node else "",
        kernel=words.clean(value.kernel),
        parameter=_PARAMETERS[value.parameter],
        value=words.plain(value.value),
        span=_span(value),
        tuned=value.tunable,
        moved=_moved(value),
    )


def _node(node_id: str, pipeline: Pipeline) -> Node | None:
    return next((node for node in pipeline if node.id == node_id), None)


def _span(value: TunedValue) -> str:
    if not value.tunable:
        return "fixed"
    most = "no limit" if value.high > 2**53 else words.plain(value.high)  # the runtime's largest number
    return f"{words.plain(value.low)} to {most}"


def _moved(value: TunedValue) -> str:
    if not value.tunable:
        return ""
    return "never moved" if value.moved_seconds is None else f"after {words.seconds(value.moved_seconds)}"


def _settled(name: str, reading: AutotuneValues) -> str:
    who = words.sentence(_VARIANTS[name]).rstrip(".")
    if reading.note:
        return f"{who}: {words.clean(reading.note)}"
    if not any(value.tunable for value in reading.values):
        return f"{who}: no number is left to AUTOTUNE."
    watched = words.seconds(reading.seconds)
    if reading.converged:
        return f"{who}: the parallel calls stood still at the end of {watched} of watching."
    return f"{who}: AUTOTUNE had not settled after {watched}; the values are those of that moment."


def _pass(one: PassResult, pipeline: Pipeline, places: Places) -> PassRow:
    reasons = []
    for reason in one.reasons:
        node = _node(reason.node, pipeline)
        place = places.location(node.location) if node else ""
        operator = f"{words.clean(node.title)} ({place})" if node and place else words.clean(node.title) if node else ""
        reasons.append((operator, places.said(reason.why)))
    return PassRow(
        name=words.clean(one.name),
        state=_STATES[one.state],
        by_default=one.by_default,
        changes="; ".join(words.clean(change) for change in one.changes),
        reasons=tuple(reasons),
    )


def _sentence(found: OptimizationPasses) -> str:
    fired = [one.name for one in found.passes if one.state is PassState.FIRED]
    if not found.passes:
        return ""
    if not fired:
        return "None of TensorFlow's own graph passes changed this pipeline."
    return f"TensorFlow changed this pipeline by itself: {words.joined([words.clean(name) for name in fired])}."
