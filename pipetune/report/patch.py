"""The patch: its hunks with what each gained, why there is none, and whether it yields the same data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile

from pipetune.core.edits import Plan, Safety, apply_edits, inserted_caches
from pipetune.core.operators import operator_facts, reshuffles_each_epoch
from pipetune.core.pipeline import Pipeline, location_of
from pipetune.core.results import Comparison
from pipetune.core.session import (
    DatasetResult,
    PatchResult,
    Session,
    SessionOutcome,
    asks_for_approval,
    found_rewrites,
    has_accepted_trial,
    outcome_of,
)
from pipetune.report import words
from pipetune.report.blocks import Block, Checks, Diff, Hunk, Sentence
from pipetune.report.places import Places, results_folder, shell
from pipetune.report.words import interval

# A header alone could be a line that is removed or added: "-- SQL".
_FILE = re.compile(r"^--- .*\n\+\+\+ (?:b/)?(.*?)\t?\n(?=@@ )", re.MULTILINE)
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@.*\n", re.MULTILINE)
_KINDS = {"+": "add", "-": "remove"}


def shown_patch(session: Session) -> PatchResult | None:
    """Returns the patch to show: the proven one, else that of a plan that may well be faster; None if there is none."""
    if session.patch is not None and session.patch.diff:
        return session.patch
    candidate = session.candidate
    return candidate.patch if candidate is not None and candidate.is_shown else None


def diff(session: Session, places: Places) -> Diff | None:
    """Returns the patch by hunks; None if there is none to show."""
    patch = shown_patch(session)
    if patch is None or places.confidential:
        return None
    command = shell("pipetune", "apply", "--diff", *apply_words(session, patch))
    return Diff(tuple(_hunks(session, patch.diff)), words.clean(patch.diff, lines=True), command)


def apply_words(session: Session, patch: PatchResult) -> tuple[str, ...]:
    """Returns what follows `pipetune apply` for one of the session's patches: the option it needs, and the folder."""
    unproven = () if patch is session.patch else ("--unproven",)
    return (*unproven, *filter(None, [results_folder(session)]))


def _hunks(session: Session, text: str) -> Iterator[Hunk]:
    _, *files = _FILE.split(text)
    for file, hunks in zip(files[::2], files[1::2], strict=True):
        _, *parts = _HUNK.split(hunks)
        for first, length, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            lines = [(_KINDS.get(line[:1], "same"), words.clean(line, lines=True)) for line in body.splitlines()]
            gains = _gains(session, file, int(first), int(length or 1))
            kept = [index for index, (kind, text) in enumerate(lines) if kind != "same" or text.strip()]
            yield Hunk(words.clean(file), tuple(lines[kept[0] : kept[-1] + 1]), gains)


def _gains(session: Session, file: str, first: int, length: int) -> tuple[str, ...]:
    """What the rewrites gained whose calls are in these lines of the current file."""
    result = session.main_dataset
    if result is None or result.plan is None:
        return ()
    found = []
    covered = session.patch.covered if session.patch is not None else ()
    for rewrite in (one for one in result.plan.rewrites if one.key in covered):
        place = location_of(rewrite.node, result.pipeline, result.tuned)
        if place is None or not f"/{place.file}".endswith(f"/{file}") or not first <= place.end_line < first + length:
            continue
        gain = result.gains.get(rewrite.key)
        measured = f" {interval(gain, words.ratio).text}" if gain is not None else ""
        found.append(words.clean(rewrite.rule) + measured)
    return tuple(found)


def checks(session: Session) -> Checks | None:
    """Returns whether the change is safe: data, order, memory, and whether the patched script was run."""
    result = session.main_dataset
    shown = shown_patch(session)
    if result is None or (result.plan is None and shown is None):
        return None
    answers, changed = [], result if result.plan is not None or shown is not session.patch else None
    for one, of in ((changed, ""), (session.validation, "validation: ")):
        if one is None or (comparison := comparison_of(one)) is None:
            continue
        state, text = ("yes", _DATA[comparison.safety]) if comparison.equal else ("no", "the data differs")
        extent = f"{compared_extent(one, comparison)} compared"
        if comparison.equal and (why := _why_not_compared(comparison)):
            state, extent = "unknown", f"not compared: {words.clean(why)}"
        answers.append((state, f"{of}{text}", extent))
    order = result.order if changed is not None else None
    if order is not None:
        answers.append(_order(order.reproducible_before, order.reproducible_after))
        if not order.epochs_kept:
            answers.append(("changed", "epochs mix", words.clean(order.why)))
    before, after = result.rates.get("defaults"), result.rates.get("tuned")
    if before and after and before.peak_rss_mib is not None and after.peak_rss_mib is not None and result.plan:
        text = f"memory {words.mebibytes(before.peak_rss_mib)} to {words.mebibytes(after.peak_rss_mib)}"
        answers.append(("yes", text, "peak of the input alone"))
    for one, of in ((changed, ""), (session.validation, "validation: ")):
        planned = one if one is None or one.plan is not None else one.candidate
        if one is None or planned is None or planned.plan is None:
            continue
        caches = [rewrite for rewrite in planned.plan.rewrites if inserted_caches(rewrite.edits)]
        for frozen in dict.fromkeys(_frozen_by(planned.plan, one.pipeline)):
            answers.append(("changed", f"{of}{frozen}", "which its cache keeps"))
        held = sum(cache.predicted_bytes for cache in caches)
        if held and (of or planned is one.candidate):  # otherwise the peak says it
            answers.append(("yes", f"{of}{words.byte_size(held)} more memory", "what its cache holds"))
    patch = session.patch
    if patch is not None and patch.diff:
        if patch.of_cells:
            answers.append(("unknown", "the changed cells were not run", "the plan was"))
        elif patch.verified is not False:
            state, text = _RUN[patch.verified]
            answers.append((state, text, ""))
    return Checks("Safe?", tuple(answers)) if answers else None


def _frozen_by(plan: Plan, pipeline: Pipeline) -> Iterator[str]:
    """What caches of a plan keep that differed between epochs: the order, if no shuffle follows, or the batches."""
    freezing = [one for one in plan.rewrites if one.safety is Safety.REORDERS]
    planned = apply_edits(pipeline, plan.edits) if freezing else pipeline
    for cache in inserted_caches(edit for one in freezing for edit in one.edits):
        above = dropwhile(lambda one: not reshuffles_each_epoch(one), planned.upstream(cache.id))
        if not any(map(reshuffles_each_epoch, planned.downstream(cache.id))):
            yield "every epoch in the order of the first"
        elif any(operator_facts(one.op).batches for one in above):
            yield "the same batches in every epoch"


_RUN = {True: ("yes", "the patched script was run"), None: ("unknown", "the patched script was not run")}

_DATA = {
    Safety.EXACT: "same elements in the same order",
    Safety.STATISTICAL: "same elements; random draws come from the same distribution",
    Safety.REORDERS: "same elements in another order",
    Safety.APPROXIMATE: "same elements within a stated tolerance",
}


def _order(before: bool, after: bool) -> tuple[str, str, str]:
    if after:
        return "yes", "order and draws are the same in every run", ""
    if before:
        return "changed", "order or draws now differ from run to run", ""
    return "yes", "order or draws differ from run to run, as before", ""


def why_no_patch(session: Session) -> str:
    """Why a session holds no patch, as a clause: that there is nothing to change is said only where that is known."""
    match outcome_of(session):
        case SessionOutcome.PROVEN:
            return "the plan has no form in the source"
        case SessionOutcome.NONE | SessionOutcome.UNDECIDED if asks_for_approval(session):
            return "what is faster needs your approval"
        case SessionOutcome.NONE if session.advice:
            return "no rewrite that pipetune makes is faster; the advice is on changes by hand"
        case SessionOutcome.NONE if not found_rewrites(session):
            return "no rewrite can be applied"
        case SessionOutcome.NONE:
            return "no rewrite is faster, there is nothing to change"
        case SessionOutcome.NOT_INPUT_BOUND:
            return "the input is not what holds training back, there is nothing to change"
        case SessionOutcome.UNTRIED:
            return "no rewrite was tried"
        case SessionOutcome.LIKELY:
            return "a plan is probably faster, and that is not proven"
        case SessionOutcome.UNDECIDED if session.candidate is not None:
            return "a plan may be faster, and that is not proven"
        case SessionOutcome.UNDECIDED if has_accepted_trial(session):
            return "a plan was faster in its trials, and was not confirmed by fresh measurements"
        case SessionOutcome.UNDECIDED:
            return "the time was over before it was decided whether a rewrite is faster"
        case SessionOutcome.FAILED:
            return "the run did not finish"


_CHECK_WORDS = {
    "values": "values: both pipelines on the same records with the same draws",
    "randomness": "randomness: as many distinct draws per batch and across epochs",
    "epochs": "epochs: three whole epochs; what differs between them still differs",
    "spec": "element spec and static shapes",
    "cardinality": "cardinality, batch sizes, last batch",
    "options": "options and determinism",
}
_STATES = {True: "yes", False: "no", None: "unknown"}


def comparison_of(result: DatasetResult) -> Comparison | None:
    """The comparison of the plan to show: of the proven one, else of the candidate; None if there is none."""
    if result.comparison is None and result.candidate is not None:
        return result.candidate.comparison
    return result.comparison


def compared_extent(result: DatasetResult, comparison: Comparison) -> str:
    """How much was compared: "384 batches over 3 epochs"; of batches in another order, single rows are.

    Not of those of `group_by_window`, as `bucket_by_sequence_length` makes them.
    """
    last = next((node.op for node in reversed(result.pipeline.nodes) if operator_facts(node.op).batches), "")
    of_batches = "row" if comparison.safety is Safety.REORDERS and last != "group_by_window" else "batch"
    noun = of_batches if operator_facts(last).makes_batches or last == "group_by_window" else "element"
    return f"{words.count(comparison.elements, noun)} over {words.count(comparison.epochs, 'epoch')}"


def _why_not_compared(comparison: Comparison) -> str:
    """Why no element was compared, as where two runs of the pipeline as written differ; "" if any was."""
    missing = (check.detail for check in comparison.checks if check.name == "values" and check.equal is None)
    return "" if comparison.elements else next(missing, "")


def _equality_sentence(result: DatasetResult, comparison: Comparison | None) -> str:
    if comparison is None:
        return "The data was not compared."
    if all(check.equal is None for check in comparison.checks):
        return "No check could be done."
    if comparison.equal and (why := _why_not_compared(comparison)):
        return f"The data was not compared: {words.clean(why)}."
    if comparison.equal:
        extent = compared_extent(result, comparison)
        return f"The tuned pipeline yields the same data ({comparison.safety.name.lower()}): compared {extent}."
    return f"The data differs: {words.clean(comparison.why)}."


def equality(result: DatasetResult) -> Iterator[Block]:
    """Every check, and what became of order and draws; nothing where there is no plan to compare."""
    if result.plan is None and result.candidate is None and result.comparison is None:
        return
    comparison = comparison_of(result)
    yield Sentence(_equality_sentence(result, comparison))
    if comparison is not None and comparison.checks:
        named = ((one, _CHECK_WORDS.get(one.name, words.clean(one.name))) for one in comparison.checks)
        yield Checks("Checks", tuple((_STATES[one.equal], name, words.clean(one.detail)) for one, name in named))
    for note in comparison.notes if comparison is not None else ():
        yield Sentence(words.sentence(words.clean(note)), quiet=True)
    order = result.order
    if order is None:
        return
    before, after = (
        "the same in every run" if same else "different from run to run"
        for same in (order.reproducible_before, order.reproducible_after)
    )
    epochs = "Epochs stay apart." if order.epochs_kept else "Epochs no longer stay apart."
    why = f" {words.sentence(words.clean(order.why))}" if order.why else ""
    yield Sentence(f"Order and random draws: {before} before, {after} after. {epochs}{why}")
