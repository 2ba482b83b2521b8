"""The module for distributed training, and who reads what with it and with the script as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipetune.core.distribution import ModuleCheck
from pipetune.core.session import DistributedResult, Session
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Listing, Row, Section, Sentence, Table
from pipetune.report.places import Places
from pipetune.report.shards import coverage_blocks, coverage_sentence, division_sentence


def distribution(session: Session, places: Places) -> Section | None:
    """The written module; without one, how the workers of the script's job divide its data; None without either."""
    form = session.distributed
    if form is not None:
        title = f"Distributed training: {words.clean(form.kind)}"
        return Section("distributed", title, tuple(_form(form, places)), parts=tuple(_parts(form, places)))
    result = session.main_dataset
    division = result.as_written if result is not None else None
    if division is None:
        return None
    blocks: list[Block] = [Sentence(division_sentence(division))]
    if division.coverage is not None:
        blocks = list(coverage_blocks([("current", division.coverage, division_sentence(division))]))
    return Section("distributed", "Who reads what", tuple(blocks))


def form_sentence(form: DistributedResult, places: Places) -> str:
    """Whether every element comes once, in a sentence; that the module was not written, where it was not."""
    if not form.file and form.notes:
        return f"Not written. {places.sentence(form.notes[0])}"
    return _checked_sentence(form)


def _form(form: DistributedResult, places: Places) -> Iterator[Block]:
    yield Sentence(f"{form_sentence(form, places)} {places.file(form.file)}".strip())
    yield from (Sentence(places.sentence(line)) for line in form.advice)
    if form.companions:
        beside = words.joined([Path(name).name for name in form.companions])
        yield Sentence(f"Next to it: {words.clean(beside)}.", quiet=True)
    for note in form.notes if form.file else form.notes[1:]:
        yield Sentence(places.sentence(note), quiet=True)
    if form.checks:
        yield Table("One epoch over all workers", _COLUMNS, tuple(_check(check) for check in form.checks))
    if form.as_written is not None and form.as_written.coverage is None:
        yield Sentence(f"The script as it is: {division_sentence(form.as_written)}")


def _parts(form: DistributedResult, places: Places) -> Iterator[Section]:
    found = [("", coverage, coverage_sentence(coverage)) for coverage in form.coverage]
    current = form.as_written
    if current is not None and current.coverage is not None:
        sentence = f"The script as it is: {division_sentence(current)}"
        found.append(("the script as it is", current.coverage, sentence))
    if found:
        yield Section("shares", "Who reads what", tuple(coverage_blocks(found)), folded=True)
    if form.module:
        module = Listing(places.foreign(form.module, lines=True), words.clean(Path(form.file).name) or "module")
        yield Section("module", "The module", (module,), folded=True)


_COLUMNS = (
    Column("Workers"),
    *(
        Column(title, number=True)
        for title in ("Elements", "Missing", "Duplicated", "Equal batches", "Dropped", "Filled", "Each once")
    ),
)


def _check(check: ModuleCheck) -> Row:
    known = check.missing is not None and check.duplicated is not None
    covered = (not check.missing and not check.duplicated) if known else None
    state = {True: Cell("yes", chip="good"), False: Cell("no", chip="bad"), None: Cell(why="not checked")}[covered]
    counts = (check.elements, check.missing, check.duplicated, check.equal_batches, check.dropped, check.filled)
    return Row((Cell(f"{check.workers:,}"), *map(_count, counts), state))


def _count(value: int | None) -> Cell:
    if value is None:
        return Cell(why="not checked")
    return Cell(("no", "yes")[value] if isinstance(value, bool) else f"{value:,}")


def _checked_sentence(form: DistributedResult) -> str:
    covered = [check for check in form.checks if check.missing == 0 and check.duplicated == 0]
    counts = words.joined([f"{check.workers:,}" for check in covered])
    if not form.checks:
        return "Its coverage was not checked."
    if len(covered) < len(form.checks):
        if all(check.missing is None for check in form.checks):
            return "Which elements come was not counted: see the table."
        return "Not every element comes exactly once per epoch: see the table."
    if all(check.everything for check in form.checks):
        return f"Every element once per epoch from each of {counts} workers, checked by running them."
    return f"Every element once per epoch with {counts} workers, checked in process."
