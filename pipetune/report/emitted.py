"""What was emitted: the source patch and its proof, the distributed form and its coverage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core.distribution import ModuleCheck
from pipetune.core.session import DistributedResult, Session, SessionOutcome, has_accepted_trial, outcome_of
from pipetune.report import words
from pipetune.report.changes import operator_name
from pipetune.report.places import Places
from pipetune.report.shards import Division, Shards, ShardTable, division, shard_table, shards


@dataclass(frozen=True)
class PatchView:
    """The source patch."""

    diff: str
    lines: tuple[tuple[str, str], ...]  # kind ("add", "remove", "hunk", "file", "same"), text
    files: tuple[str, ...]
    verified: bool | None
    sentence: str
    not_covered: tuple[tuple[str, str], ...]  # rule, why


@dataclass(frozen=True)
class CoverageRow:
    """One worker count of the distributed form."""

    workers: str
    elements: str
    missing: str
    duplicated: str
    equal_batches: str
    covered: bool | None
    dropped: str = ""  # samples of an epoch that full batches leave out; "" where that does not apply
    filled: str = ""  # rows that fill them instead


@dataclass(frozen=True)
class DistributedView:
    """The emitted distributed form."""

    kind: str
    file: str
    module: str
    notes: tuple[str, ...]
    coverage: tuple[CoverageRow, ...]
    sentence: str
    shards: tuple[Shards, ...]  # who reads what, for each number of workers, no picture twice
    as_written: Division | None  # between as many workers, of the script as it is; None: not looked at
    advice: tuple[str, ...]  # whether it is the form to use, and what could take its place
    table: ShardTable  # the numbers of all these


def patch(session: Session, places: Places) -> PatchView:
    value = session.patch
    result = session.main_dataset
    candidate = session.candidate
    if candidate is not None and candidate.patch is not None and candidate.diff and not (value and value.diff):
        diff = places.foreign(candidate.diff, lines=True)
        return PatchView(
            diff=diff,
            lines=tuple((_diff_kind(line), line) for line in diff.splitlines()),
            files=tuple(places.file(name) for name in candidate.patch.files),
            verified=False,
            sentence=f"Not proven, and applied only with `pipetune apply --unproven`. {places.said(candidate.why)}",
            not_covered=(),
        )
    if value is None or not (value.diff or value.covered or value.not_covered):
        return PatchView("", (), (), None, f"No patch: {why_no_patch(session)}.", ())
    pipelines = (result.pipeline, result.tuned) if result else ()
    diff = places.foreign(value.diff, lines=True)
    detail = f" {places.said(value.verification)}" if value.verification else ""
    head = "The patched source was not run." if value.verified is None else "The patched source was run and measured."
    if not value.diff and places.confidential and value.covered:
        head = "The patch is withheld: the session is confidential."
    elif not value.diff and detail:
        head = "No patch."
    elif not value.diff:
        head = "No patch: nothing of the plan can be written in the source."
    return PatchView(
        diff=diff,
        lines=tuple((_diff_kind(line), line) for line in diff.splitlines()),
        files=tuple(places.file(name) for name in value.files),
        verified=value.verified,
        sentence=head + detail,
        not_covered=tuple(
            (
                words.clean(f"{rejection.rule} at {operator_name(rejection.node, *pipelines)}"),
                places.said(rejection.why),
            )
            for rejection in value.not_covered
        ),
    )


def why_no_patch(session: Session) -> str:
    """Why a session holds no patch, as a clause: that there is nothing to change is said only where that is known."""
    match outcome_of(session):
        case SessionOutcome.PROVEN:
            return "the plan has no form in the source"
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


def _diff_kind(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "file"
    return {"+": "add", "-": "remove", "@": "hunk", "#": "note"}.get(line[:1], "same")


def distributed(session: Session, places: Places) -> DistributedView | None:
    value = session.distributed
    if value is None:
        return None
    coverage = tuple(_coverage(check) for check in value.checks)
    notes = value.notes
    if value.companions:
        beside = words.joined([Path(name).name for name in value.companions])
        notes = (f"Beside it stand {beside}.", *notes)
    sentence = _coverage_sentence(value, coverage)
    if not value.file and notes:
        sentence, notes = f"Not written. {places.said(notes[0])}", notes[1:]
    pictures, as_written = tuple(map(shards, value.coverage)), division(value.as_written)
    as_it_is = (replace(as_written.shards, title="The script as it is"),) if as_written and as_written.shards else ()
    return DistributedView(
        kind=words.clean(value.kind),
        file=places.file(value.file),
        module=places.foreign(value.module, lines=True),
        notes=tuple(places.said(note) for note in notes),
        coverage=coverage,
        sentence=sentence,
        advice=tuple(places.said(line) for line in value.advice),
        shards=tuple(_drawn(pictures)),
        as_written=as_written,
        table=shard_table((*pictures, *as_it_is)),
    )


def _drawn(found: tuple[Shards, ...]) -> Iterator[Shards]:
    """Those of them whose picture is another than that of all before."""
    seen: list[object] = []
    for one in found:
        picture = [row.cells for row in one.rows]
        if picture not in seen:
            seen.append(picture)
            yield one


def _coverage_sentence(value: DistributedResult, coverage: tuple[CoverageRow, ...]) -> str:
    counts = [row.workers for row in coverage if row.covered]
    if not coverage:
        return "Its coverage was not checked."
    if len(counts) < len(coverage):
        unknown = all(check.missing is None for check in value.checks)
        told = "Which elements come was not counted" if unknown else "Not every element comes exactly once per epoch"
        return f"{told}: see the table."
    if all(check.everything for check in value.checks):
        return f"Every element once per epoch from each of {words.joined(counts)} workers, checked by running them."
    return f"Every element once per epoch with {words.joined(counts)} workers, checked in process."


def _coverage(check: ModuleCheck) -> CoverageRow:
    def shown(value: int | None) -> str:
        if value is None:
            return "not checked"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return f"{value:,}"

    missing, duplicated = check.missing, check.duplicated
    known = missing is not None and duplicated is not None
    return CoverageRow(
        workers=shown(check.workers),
        elements=shown(check.elements),
        missing=shown(check.missing),
        duplicated=shown(check.duplicated),
        equal_batches=shown(check.equal_batches),
        covered=(not missing and not duplicated) if known else None,
        dropped=shown(check.dropped) if check.dropped is not None else "",
        filled=shown(check.filled) if check.filled is not None else "",
    )
