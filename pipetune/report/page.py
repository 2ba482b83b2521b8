"""The report as a page: the answer, why, the steps, what was tried, warnings, details. Renderers show its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipetune.core.profile import VALIDATION_INPUT, Finding
from pipetune.core.session import DatasetResult, Session, SessionOutcome, outcome_of
from pipetune.report import words
from pipetune.report.answer import answer
from pipetune.report.blocks import Notice, Page, Section
from pipetune.report.distribution import distribution
from pipetune.report.environment import datasets, machine, machine_words
from pipetune.report.epochs import epochs
from pipetune.report.equality import equality
from pipetune.report.files import files
from pipetune.report.headline import busy_sentence, headline
from pipetune.report.memory import memory
from pipetune.report.places import WITHHELD, Places, places_of, script_words
from pipetune.report.predictions import predictions, throughput
from pipetune.report.step_times import step_times, steps
from pipetune.report.tensorflow_work import tensorflow_work
from pipetune.report.tried import changes_table, tried
from pipetune.report.why import operators, why


def page(session: Session) -> Page:
    """Everything that a report shows of a session; a missing part shows as missing, with the reason."""
    places = places_of(session)
    found = headline(session, places)
    times = step_times(session)
    parts = [answer(session, places, found, times), why(session, places), steps(session), tried(session, places)]
    if outcome_of(session) is SessionOutcome.NOT_INPUT_BOUND:  # the rest matters to few
        parts = [part if part is None or part.id == "answer" else replace(part, folded=True) for part in parts]
    rest = (function(session, places) for function in (warnings, advice, distribution, details))
    return Page(
        title=_title(session),
        version=words.clean(session.version),
        date=words.clean(session.command.date)[:16].replace("T", " "),
        machine=machine_words(session.machine),
        busy=busy_sentence(session),
        headline=" ".join(filter(None, (found.big, found.note))),
        sections=tuple(part for part in (*parts, *rest) if part is not None),
    )


def _title(session: Session) -> str:
    """The script's or module's name; a session of `pipetune.tune` has neither."""
    if session.command.confidential:
        return WITHHELD
    run = script_words(session)
    if not run:
        return "dataset"
    return words.clean(run[1] if run[0] == "-m" and len(run) > 1 else run[0])


def warnings(session: Session, places: Places) -> Section | None:
    """What is wrong in the script today, except what the patch changes for validation: the headline says that."""
    patched = session.validation is not None and session.validation.input_speedup is not None
    findings = [one for one in session.findings if not (patched and one.code == VALIDATION_INPUT)]
    return _notices("warnings", "Warnings about the script", findings, places)


def advice(session: Session, places: Places) -> Section | None:
    """What could be better in what consumes the data: no bug, and nothing that an edit of the pipeline changes."""
    return _notices("advice", "Advice", session.advice, places)


def _notices(id: str, title: str, findings: Sequence[Finding], places: Places) -> Section | None:
    notices = tuple(
        Notice(
            words.clean(one.code),
            places.place(one.file, one.line),
            places.sentence(one.message),
            places.sentence(one.hint),
        )
        for one in findings
    )
    return Section(id, title, notices) if notices else None


def details(session: Session, places: Places) -> Section | None:
    """Everything else, folded; None where nothing is known beyond the outcome."""
    main = session.main_dataset
    parts: list[Section | None] = []
    if main is not None:
        parts += [
            throughput(main),
            epochs(main),
            files(main, places),
            tensorflow_work(main, places),
            predictions(main, places),
            memory(main, session.machine, places),
            equality(main),
        ]
    for number, other in enumerate(session.profiled_datasets[1:], start=2):
        parts.append(_other(session, other, number, places))
    parts += [datasets(session, places), machine(session)]
    return Section("details", "Details", (), parts=tuple(part for part in parts if part is not None))


def _other(session: Session, result: DatasetResult, number: int, places: Places) -> Section:
    """A dataset beside the main one, as one folded part."""
    table = changes_table(session, result, places)
    found = (throughput(result), equality(result))
    return Section(
        f"dataset-{number}",
        f"Dataset {words.clean(result.pipeline.name) or words.clean(result.role)}",
        (*operators(result, places), *([table] if table is not None else [])),
        folded=True,
        parts=tuple(replace(part, id=f"{part.id}-{number}") for part in found if part is not None),
    )
