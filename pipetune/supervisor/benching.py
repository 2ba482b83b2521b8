"""`pipetune bench`: starts the measuring process, and saves each result as soon as it is measured.

The process measures workloads (`pipetune.bench.rivals`), or with `--accuracy` figures (`pipetune.bench`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from pipetune.core import accuracy, benchmarks
from pipetune.core.accuracy import Accuracy, AccuracyFigure
from pipetune.core.benchmarks import FOLDER, Benchmarks, WorkloadResult, choose_workloads, find_workloads
from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.messages import (
    FigureMeasured,
    Job,
    LogLine,
    Message,
    Mode,
    Progress,
    SessionSaved,
    WorkloadJob,
    WorkloadMeasured,
)
from pipetune.core.settings import Settings
from pipetune.core.version import VERSION
from pipetune.report import accuracy as accuracy_report
from pipetune.report import benchmarks as benchmarks_report
from pipetune.report.benchmarks_figure import write_figure
from pipetune.report.progress import Progress as Screen
from pipetune.supervisor.monitoring import Interrupts, Timeouts, monitor
from pipetune.supervisor.process import worker

ACCURACY_COMMAND = (sys.executable, "-P", "-m", "pipetune.bench")
RIVALS_COMMAND = (sys.executable, "-P", "-m", "pipetune.bench.rivals")

_SILENCE_SECONDS = 1800.0  # a figure reports progress at least every ten minutes

_Results = TypeVar("_Results", Accuracy, Benchmarks)


@dataclass(frozen=True)
class _Request:
    names: tuple[str, ...]  # each measured again; if empty: those missing in the file
    out: Path
    quick: bool = False
    seed: int = 0
    again: bool = False  # also measure what the file already has

    results_name: ClassVar[str]

    @property
    def file(self) -> Path:
        """The results file. Quick runs have their own, so as not to overwrite results that took hours."""
        return self.out / f"{self.results_name}{'-quick' if self.quick else ''}.json"

    def continued(self, saved: _Results | None, new: type[_Results]) -> _Results:
        """Returns what earlier runs saved; nothing yet if they had another seed, release or `quick` setting."""
        if saved is None or (saved.version, saved.seed, saved.quick) != (VERSION, self.seed, self.quick):
            return new(VERSION, date=time.strftime("%Y-%m-%d %H:%M"), quick=self.quick, seed=self.seed)
        return saved

    def job(self, names: tuple[str, ...]) -> Job:
        """Returns the job of the measuring process."""
        return Job(
            Mode.BENCH,
            message_descriptor=-1,
            settings=Settings(quick=self.quick, seed=self.seed),
            arguments=names,
            directory=os.getcwd(),
            out=str(self.out.absolute()),
        )


class AccuracyRequest(_Request):
    """Which figures to measure, and where the results go."""

    results_name = "accuracy"


@dataclass(frozen=True)
class RivalsRequest(_Request):
    """Which workloads to measure, and where the results go."""

    examples: Path = FOLDER  # contains the workloads

    results_name = "benchmarks"


def measure_accuracy(
    request: AccuracyRequest,
    *,
    screen: Screen,
    show: Callable[[str, AccuracyFigure], None],
    command: Sequence[str] = ACCURACY_COMMAND,
) -> tuple[Accuracy, int]:
    """Measures the requested figures.

    Args:
        request: what to measure, and where the results go.
        screen: shows the progress.
        show: called with each figure as soon as it is measured; figures saved by an earlier run come first.
        command: starts the measuring process; the path of the job file is appended.

    Returns:
        All figures known at the end, and the exit status: 1 if a figure was not measured or misses its target.

    Raises:
        PipetuneError: a figure name is unknown, the file of earlier results is damaged, or the results cannot be
            written.
    """
    unknown = [name for name in request.names if name not in accuracy.FIGURES]
    if unknown:
        raise PipetuneError(
            f"There is no figure called {unknown[0]!r}.", hint="Figures: " + ", ".join(accuracy.FIGURES)
        )
    known = request.continued(accuracy.load(request.file), Accuracy)
    figures = request.names or tuple(name for name in accuracy.FIGURES if request.again or name not in known.figures)
    for name, figure in known.figures.items():
        if name not in figures and not request.names:
            show(name, figure)
    if not figures:
        _write_accuracy(known, request)
        return known, _accuracy_status(known, 0)

    def receive(message: Message) -> None:
        nonlocal known
        match message:
            case SessionSaved(session=session):
                known = known.continued_on(session.machine) if session.machine else known
            case FigureMeasured(name=name, figure=figure):
                known = known.with_figure(name, figure)
                _write_accuracy(known, request)
                show(name, figure)
            case _:
                pass

    status = _run_measuring_process(request.job(figures), receive, screen=screen, command=command)
    return known, _accuracy_status(known, status)


def compare_with_rivals(
    request: RivalsRequest,
    *,
    screen: Screen,
    show: Callable[[WorkloadResult], None],
    command: Sequence[str] = RIVALS_COMMAND,
) -> tuple[Benchmarks, int]:
    """Measures the requested workloads.

    Args:
        request: which workloads, and where the results go.
        screen: shows the progress.
        show: called with each workload as soon as it is measured; those saved by an earlier run come first.
        command: starts the measuring process; the path of the job file is appended.

    Returns:
        All workloads known at the end, and the exit status of the command.

    Raises:
        PipetuneError: there are no workloads, a name is unknown, the file of earlier results is damaged, or the results
            cannot be written.
    """
    chosen = choose_workloads(request.names, quick=request.quick, folder=request.examples)
    # A quick run has no other workloads than those measured.
    suite = () if request.quick else tuple(find_workloads(request.examples))
    known = replace(request.continued(benchmarks.load(request.file), Benchmarks), suite=suite)
    workloads = tuple(name for name in chosen if request.names or request.again or name not in known.names)
    for result in known.workloads:
        if result.name in chosen and result.name not in workloads:
            show(result)
    if not workloads:
        _write_benchmarks(known, request)
        return known, 0
    job = replace(request.job(workloads), workload=WorkloadJob(examples=str(request.examples)))

    def receive(message: Message) -> None:
        nonlocal known
        match message:
            case WorkloadMeasured(result=result, machine=machine):
                known = replace(known.with_workload(result), machine=machine)
                _write_benchmarks(known, request)
                show(result)
            case _:
                pass

    return known, _run_measuring_process(job, receive, screen=screen, command=command)


def _run_measuring_process(
    job: Job, on_message: Callable[[Message], None], *, screen: Screen, command: Sequence[str]
) -> int:
    """Starts a measuring process, receives its messages until it exits and returns the command's exit status.

    Args:
        job: the task of the process.
        on_message: called with each message that is not for the screen.
        screen: shows the progress, and a warning if the process did not finish.
        command: starts the process; the path of the job file is appended.

    Raises:
        PipetuneError: the process reported an error.
    """

    def receive(message: Message) -> None:
        match message:
            case Progress(phase=phase, activity=activity):
                screen.update(phase, activity)
            case LogLine(text=text):
                screen.warn(text)
            case _:
                on_message(message)

    limits = Timeouts(start=_SILENCE_SECONDS, phases={}, other_phases=_SILENCE_SECONDS)
    with Interrupts() as interrupts, worker(job, log=Path(os.devnull), command=command) as running:
        conversation = monitor(running, limits=limits, interrupts=interrupts, on_message=receive)
    if conversation.failure:
        raise PipetuneError(conversation.failure.message, hint=conversation.failure.hint, exit_code=1)
    if conversation.exit_reason:
        screen.warn(
            f"The measuring process {conversation.exit_reason}. The results so far are kept; run the command "
            "again to continue."
        )
    status = conversation.finished.exit_code if conversation.finished else 1
    return 130 if interrupts.count else status


def _write_accuracy(known: Accuracy, request: AccuracyRequest) -> None:
    accuracy.save(known, request.file)
    write_text(request.file.with_suffix(".md"), accuracy_report.markdown_text(known))


def _write_benchmarks(known: Benchmarks, request: RivalsRequest) -> None:
    benchmarks.save(known, request.file)
    write_text(request.file.with_suffix(".md"), benchmarks_report.markdown_text(known))
    if known.workloads:
        write_figure(known, request.file.with_suffix(".png"))


def _accuracy_status(known: Accuracy, status: int) -> int:
    missed = not all(figure.met for figure in known.figures.values())
    return status or int(missed)
