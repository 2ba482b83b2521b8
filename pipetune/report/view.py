"""The view: every number and sentence that terminal, HTML, Markdown, JSON and CSV show, computed once."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.accelerator import accelerator_facts
from pipetune.report.attempts import Attempts, attempts
from pipetune.report.changes import Changes, changes
from pipetune.report.circumstances import (
    DatasetRow,
    Warning,
    advice,
    dataset_rows,
    machine_facts,
    phases,
    suppressed,
    warnings,
)
from pipetune.report.course import CostRow, CourseView, cost_rows, course_view
from pipetune.report.emitted import DistributedView, PatchView, distributed, patch
from pipetune.report.files import FilesView, files
from pipetune.report.foresight import Foresight, foresight
from pipetune.report.handover import between
from pipetune.report.headline import Headline, VerdictView, headline, verdict
from pipetune.report.ladder import Ladder, StepRung, ladder, step_ladder
from pipetune.report.memory import Memory, memory
from pipetune.report.next_steps import next_steps, report_step
from pipetune.report.operators import OperatorTable, operator_table
from pipetune.report.own_work import OwnWork, own_work
from pipetune.report.places import WITHHELD, Places, places_of, script_words, shell
from pipetune.report.proof import Equality, OrderView, equality, order
from pipetune.report.shards import Division, division
from pipetune.report.step_bar import StepBar, step_bar
from pipetune.report.timeline import Timeline, timeline
from pipetune.report.values import Fact, Figure, interval


@dataclass(frozen=True)
class DatasetView:
    """One dataset that was studied."""

    name: str
    role: str
    consumer: str
    where: str
    handover: str  # how a strategy takes it to the replicas; '' without one
    verdict: VerdictView
    operators: OperatorTable
    ladder: Ladder
    timeline: Timeline
    step_bar: StepBar
    course: CourseView
    changes: Changes
    memory: Memory
    files: FilesView | None
    division: Division | None  # between the workers of the script's job; None: it has one
    equality: Equality
    order: OrderView
    foresight: Foresight
    own_work: OwnWork


@dataclass(frozen=True)
class View:
    """Everything shown of one session."""

    title: str
    command: str
    date: str
    version: str
    status: str
    confidential: bool
    headline: Headline
    verdict: VerdictView
    steps: tuple[StepRung, ...]
    over_autotune: Figure  # the training step, tuned over AUTOTUNE everywhere
    studied: tuple[DatasetView, ...]  # the one the session is about first
    datasets: tuple[DatasetRow, ...]
    costs: tuple[CostRow, ...]
    attempts: Attempts
    notes: tuple[str, ...]  # how the search ended, and what it could not do
    warnings: tuple[Warning, ...]
    advice: tuple[Warning, ...]
    patch: PatchView
    distributed: DistributedView | None
    machine: tuple[Fact, ...]
    suppressed: tuple[Fact, ...]
    seconds: tuple[Fact, ...]
    next_steps: tuple[Fact, ...]
    report_step: Fact | None

    @property
    def main(self) -> DatasetView | None:
        return self.studied[0] if self.studied else None


def make_view(session: Session) -> View:
    """Compute all of it; a missing part of the session shows as missing, with the reason."""
    places = places_of(session)
    run = script_words(session)
    confidential = session.command.confidential
    return View(
        title=WITHHELD if confidential else _title(run),
        command=WITHHELD if confidential else _command(run),
        date=words.clean(session.command.date),
        version=words.clean(session.version),
        status=words.clean(session.status),
        confidential=confidential,
        headline=headline(session, places),
        verdict=verdict(session.main_dataset, places),
        steps=step_ladder(session),
        over_autotune=interval(
            session.training.speedup_over_autotune if session.training else None, words.ratio, why="not measured"
        ),
        studied=tuple(_dataset(session, result, places) for result in session.profiled_datasets),
        datasets=dataset_rows(session, places),
        costs=cost_rows(session),
        attempts=attempts(session, places),
        notes=tuple(dict.fromkeys(places.said(note) for note in session.notes if note)),
        warnings=warnings(session, places),
        advice=advice(session, places),
        patch=patch(session, places),
        distributed=distributed(session, places),
        machine=(*machine_facts(session.machine, session.load), *accelerator_facts(session)),
        suppressed=suppressed(session),
        seconds=phases(session),
        next_steps=next_steps(session),
        report_step=report_step(session),
    )


def _title(run: tuple[str, ...]) -> str:
    """The script's or module's name; a session of `pipetune.tune` has neither."""
    if not run:
        return "dataset"
    return words.clean(run[1] if run[0] == "-m" and len(run) > 1 else run[0])


def _command(run: tuple[str, ...]) -> str:
    return shell("pipetune", "analyze", *run) if run else "pipetune.tune(dataset)"


def _dataset(session: Session, result: DatasetResult, places: Places) -> DatasetView:
    main = result is session.main_dataset
    return DatasetView(
        name=words.clean(result.pipeline.name),
        role=words.clean(result.role),
        consumer=words.clean(result.consumer),
        where=places.location(result.pipeline.output.location) if result.pipeline.nodes else "",
        handover=between(result),
        verdict=verdict(result, places),
        operators=operator_table(result, places),
        ladder=ladder(result),
        timeline=timeline(result, session.training if main else None),
        step_bar=step_bar(result),
        course=course_view(result),
        changes=changes(result, places),
        memory=memory(result, session.machine, places),
        files=files(result, places),
        division=division(result.as_written),
        equality=equality(result),
        order=order(result),
        foresight=foresight(result, places),
        own_work=own_work(result, places),
    )
