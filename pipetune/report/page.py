"""The report as a page: the answer, why, the steps, what was tried, warnings, details. Renderers show its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pipetune.core.profile import CACHE_CODES, EPOCH_PAUSE, VALIDATION_INPUT, Finding
from pipetune.core.session import DatasetResult, Session, SessionOutcome, outcome_of
from pipetune.report import words
from pipetune.report.answer import answer, busy_sentence, headline
from pipetune.report.blocks import Block, Notice, Page, Section
from pipetune.report.distribution import distribution
from pipetune.report.environment import datasets, machine, machine_words
from pipetune.report.files import files
from pipetune.report.input_alone import memory, predictions, tensorflow_work, throughput
from pipetune.report.patch import equality
from pipetune.report.places import WITHHELD, Places, places_of, script_words
from pipetune.report.step_times import epochs, step_times, steps
from pipetune.report.tried import changes_table, tried
from pipetune.report.why import operators, why


def page(session: Session) -> Page:
    """Everything that a report shows of a session; a missing part shows as missing, with the reason."""
    places = places_of(session)
    found = headline(session, places)
    times = step_times(session)
    fine = outcome_of(session) is SessionOutcome.NOT_INPUT_BOUND  # the rest matters to few
    sections = (
        Section("answer", "Answer", tuple(answer(session, places, found, times))),
        _section("why", "Why: time per operator", why(session, places), folded=fine),
        _section("steps", "Steps as measured", steps(session), folded=fine),
        _section("tried", "What was tried", tried(session, places), folded=fine),
        _section("warnings", "Warnings about the script", _notices(_warnings(session), places), folded=False),
        _section("advice", "Advice", _notices(session.advice, places), folded=False),
        distribution(session, places),
        details(session, places),
    )
    return Page(
        title=_title(session),
        version=words.clean(session.version),
        date=words.clean(session.command.date)[:16].replace("T", " "),
        machine=machine_words(session.machine),
        busy=busy_sentence(session),
        headline=" ".join(filter(None, (found.big, found.note))),
        sections=tuple(filter(None, sections)),
    )


def _section(id: str, title: str, blocks: Iterable[Block], *, folded: bool = True) -> Section | None:
    """A section of these blocks; None where there are none."""
    shown = tuple(blocks)
    return Section(id, title, shown, folded) if shown else None


def _title(session: Session) -> str:
    """The script's or module's name; a session of `pipetune.tune` has neither."""
    if session.command.confidential:
        return WITHHELD
    run = script_words(session)
    if not run:
        return "dataset"
    return words.clean(run[1] if run[0] == "-m" and len(run) > 1 else run[0])


def _warnings(session: Session) -> list[Finding]:
    """What is wrong in the script today, except what the patch changes: validation, starts of epochs, caches."""
    changed = set[str]()
    main = session.main_dataset if session.plan is not None else None
    if session.validation is not None and session.validation.input_speedup is not None:
        changed.add(VALIDATION_INPUT)
    rates = main.rates if main is not None else {}
    before, after = (rates[name].first_batch_seconds if name in rates else None for name in ("defaults", "tuned"))
    if before and after and after < before / 4:  # by judgement: a shuffle behind a cache is full at once
        changed.add(EPOCH_PAUSE)
    found = [one for one in session.findings if one.code not in changed]
    if main is None or main.tuned is None:
        return found
    places = {node.location for node in main.tuned if node.op == "cache"}
    left = {(place.file, place.line) if place is not None else (None, None) for place in places}
    return [one for one in found if one.code not in CACHE_CODES or (one.file, one.line) in left]


def _notices(findings: Sequence[Finding], places: Places) -> Iterator[Notice]:
    for one in findings:
        place = places.place(one.file, one.line)
        yield Notice(words.clean(one.code), place, places.sentence(one.message), places.sentence(one.hint))


def details(session: Session, places: Places) -> Section:
    """Everything else, folded."""
    main = session.main_dataset
    parts: list[Section | None] = []
    if main is not None:
        parts += [
            _section("throughput", "Input throughput", throughput(main)),
            _section("epochs", "First batch and epochs", epochs(main)),
            _section("files", "Files and readers", files(main, places)),
            _section("tensorflow", "What TensorFlow does by itself", tensorflow_work(main, places)),
            _section("predictions", "Predicted and measured", predictions(main, places)),
            _section("memory", "Memory", memory(main, session.machine, places)),
            _section("equality", "Same data: what was compared", equality(main)),
        ]
    for number, other in enumerate(session.profiled_datasets[1:], start=2):
        parts.append(_other(session, other, number, places))
    parts.append(_section("datasets", "Datasets of the script", datasets(session, places)))
    parts.append(_section("machine", "Machine, time and command", machine(session)))
    return Section("details", "Details", (), parts=tuple(filter(None, parts)))


def _other(session: Session, result: DatasetResult, number: int, places: Places) -> Section:
    table = changes_table(session, result, places)
    parts = (
        _section(f"throughput-{number}", "Input throughput", throughput(result)),
        _section(f"equality-{number}", "Same data: what was compared", equality(result)),
    )
    return Section(
        f"dataset-{number}",
        f"Dataset {words.clean(result.pipeline.name) or words.clean(result.role)}",
        (*operators(result, places), *([table] if table is not None else [])),
        folded=True,
        parts=tuple(filter(None, parts)),
    )
