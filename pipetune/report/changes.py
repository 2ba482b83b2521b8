"""The rewrites: in the plan, offered for consent, rejected, and where a rule kept silent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from pipetune.core.edits import (
    HEAD_PREFIX,
    Edit,
    Insert,
    Move,
    Remove,
    ReplaceFunction,
    ReplaceOperator,
    ReplaceSource,
    Rewrite,
    Safety,
    SetArgument,
    SetOption,
    SplitFunction,
)
from pipetune.core.pipeline import Pipeline
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.operators import argument_list, argument_words
from pipetune.report.places import Places
from pipetune.report.values import Figure, interval

SAFETY_WORDS = {
    Safety.EXACT: "exact",
    Safety.STATISTICAL: "statistical",
    Safety.REORDERS: "reorders",
    Safety.APPROXIMATE: "approximate",
}
SAFETY_MEANING = {
    Safety.EXACT: "same elements, same order, same randomness element by element, every epoch",
    Safety.STATISTICAL: "other draws or another shuffle order, from the same distribution",
    Safety.REORDERS: "same elements per epoch, in another order or with other epoch borders",
    Safety.APPROXIMATE: "numbers differ within a stated tolerance",
}


_NO_ABLATION = "its part of the gain was not measured"


@dataclass(frozen=True)
class RewriteRow:
    """One rewrite, in the plan or offered."""

    rule: str
    where: str
    operator: str
    safety: str
    meaning: str
    gain: Figure
    summary: str
    edits: tuple[str, ...]
    reproducible: bool
    epochs_kept: bool
    notes: tuple[str, ...]
    memory: str  # bytes it adds or spares, predicted, in words
    consent: str = ""  # the flag that would allow it
    why: str = ""


@dataclass(frozen=True)
class RejectedRow:
    """A rewrite that did not make it, or several of one rule at one place for one reason."""

    rule: str
    where: str
    operator: str
    why: str
    gain: Figure
    times: int = 1


@dataclass(frozen=True)
class SilenceRow:
    """A place where a rule proposes nothing, and why."""

    rule: str
    where: str
    operator: str
    why: str


@dataclass(frozen=True)
class Changes:
    """All of one dataset."""

    plan: tuple[RewriteRow, ...]
    plan_safety: str
    plan_meaning: str
    offered: tuple[RewriteRow, ...]
    rejected: tuple[RejectedRow, ...]
    silences: tuple[SilenceRow, ...]


def changes(result: DatasetResult, places: Places) -> Changes:
    pipelines = (result.pipeline, result.tuned)
    plan = result.plan
    safety = plan.safety if plan else Safety.EXACT
    return Changes(
        plan=tuple(
            _row(
                rewrite,
                interval(result.gains.get(rewrite.key), words.ratio, why=_NO_ABLATION),
                result,
                places,
            )
            for rewrite in (plan.rewrites if plan else ())
        ),
        plan_safety=SAFETY_WORDS[safety],
        plan_meaning=SAFETY_MEANING[safety],
        offered=tuple(
            _row(
                offer.rewrite,
                interval(offer.gain, words.ratio, why="it was not measured"),
                result,
                places,
                consent=offer.consent,
                why=offer.why,
            )
            for offer in result.offered
        ),
        rejected=_rejected(result, places),
        silences=tuple(
            SilenceRow(
                rule=words.clean(silence.rule),
                where=places.node(silence.node, *pipelines),
                operator=operator_name(silence.node, *pipelines),
                why=places.said(silence.why),
            )
            for silence in result.silences
        ),
    )


def _rejected(result: DatasetResult, places: Places) -> tuple[RejectedRow, ...]:
    pipelines = (result.pipeline, result.tuned)
    found = Counter(
        RejectedRow(
            rule=words.clean(rejection.rule),
            where=places.node(rejection.node, *pipelines),
            operator=operator_name(rejection.node, *pipelines),
            why=places.said(rejection.why),
            gain=interval(rejection.gain, words.ratio, why="no speed was measured"),
        )
        for rejection in result.rejected
    )
    return tuple(replace(row, times=times) for row, times in found.items())


def operator_name(node_id: str, *pipelines: Pipeline | None) -> str:
    """The operator's title; for one that an edit inserts, the name in its id."""
    kind, _, of = node_id.partition("@")
    if kind == HEAD_PREFIX:
        return f"the first part of {operator_name(of, *pipelines)}"
    for pipeline in pipelines:
        if pipeline is not None and node_id in pipeline:
            return words.clean(pipeline[node_id].title)
    return words.clean(kind)


def edit_words(edit: Edit, *pipelines: Pipeline | None) -> str:
    """One edit as a colleague would say it."""
    match edit:
        case SetArgument(node=node, name=name, value=value):
            return f"{operator_name(node, *pipelines)}: {argument_words(name, value)}"
        case Insert(after=after, op=op, arguments=arguments):
            call = f"{words.clean(op)}({argument_list(arguments)})"
            return f"insert {call} after {operator_name(after, *pipelines)}"
        case Remove(node=node):
            return f"remove {operator_name(node, *pipelines)}"
        case Move(node=node, after=after):
            return f"move {operator_name(node, *pipelines)} behind {operator_name(after, *pipelines)}"
        case ReplaceFunction(node=node, form=form):
            return f"{operator_name(node, *pipelines)}: call its function {words.clean(form)}"
        case ReplaceSource(node=node, after=after):
            source, place = operator_name(node, *pipelines), operator_name(after, *pipelines)
            return f"{source}: put out row numbers, and gather the rows behind {place}"
        case SplitFunction(node=node, cut=cut):
            return f"{operator_name(node, *pipelines)}: cut its function in two {words.clean(cut.kind)}"
        case ReplaceOperator(node=node, op=op, arguments=arguments):
            call = f"{words.clean(op)}({argument_list(arguments)})"
            return f"{operator_name(node, *pipelines)}: call {call} in its place"
        case SetOption(name=name, value=value):
            return f"options: {argument_words(name, value)}"


def _row(
    rewrite: Rewrite, gain: Figure, result: DatasetResult, places: Places, *, consent: str = "", why: str = ""
) -> RewriteRow:
    pipelines = (result.pipeline, result.tuned)
    return RewriteRow(
        rule=words.clean(rewrite.rule),
        where=places.node(rewrite.node, *pipelines),
        operator=operator_name(rewrite.node, *pipelines),
        safety=SAFETY_WORDS[rewrite.safety],
        meaning=SAFETY_MEANING[rewrite.safety],
        gain=gain,
        summary=places.said(rewrite.summary),
        edits=tuple(edit_words(edit, *pipelines) for edit in rewrite.edits),
        reproducible=rewrite.reproducible,
        epochs_kept=rewrite.epochs_kept,
        notes=tuple(places.said(note) for note in rewrite.notes),
        memory=_memory(rewrite.predicted_bytes),
        consent=words.clean(consent),
        why=places.said(why),
    )


def _memory(added_bytes: float) -> str:
    if not added_bytes:
        return ""
    return f"{'Adds' if added_bytes > 0 else 'Spares'} {words.byte_size(abs(added_bytes))}"
