"""`pipetune bench`: starts the process that measures a suite's figures, and saves each as soon as it is measured."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

from benchmarks import CLONE
from benchmarks.figures import AnyResults, load, save
from pipetune.core.codec import decode
from pipetune.core.messages import FigureMeasured, Job, LogLine, Message, Mode, Progress
from pipetune.core.settings import Settings
from pipetune.core.version import VERSION
from pipetune.report.console import Progress as Screen
from pipetune.supervisor.monitoring import Interrupts, Timeouts, WorkerMonitor
from pipetune.supervisor.process import worker

_SILENCE_SECONDS = 1800.0  # a figure reports progress at least every ten minutes


@dataclass(frozen=True)
class Suite(Generic[AnyResults]):
    """A list of figures, the process that measures them, the file that keeps them, and how they are shown."""

    results: type[AnyResults]
    module: str  # the process, as `python -m MODULE JOB`
    file: str  # name of the results file, without .json
    choose: Callable[[Sequence[str], bool], Sequence[str]]  # the figures, by names of a command line and by `quick`
    print_figure: Callable[[str, Any], object]  # given its name
    print_all: Callable[[AnyResults, Path], object]  # at the end; of the results file at this path
    write_report: Callable[[AnyResults, Path], object] = lambda _results, _path: None  # beside the file at this path
    cumulative: bool = False  # kept over releases and seeds; measured again only with `Request.again`


@dataclass(frozen=True)
class Request:
    """What to measure, and where the results go."""

    names: tuple[str, ...]  # each measured again; if empty: those missing in the file
    out: Path
    quick: bool = False
    seed: int = 0
    again: bool = False  # also measure what the file already has
    most: int | None = None  # number of figures to measure; None: all

    def file(self, suite: Suite[Any]) -> Path:
        """Returns the results file. Quick runs have their own, so as not to overwrite results that took hours."""
        return self.out / f"{suite.file}{'-quick' if self.quick else ''}.json"


def bench(
    suite: Suite[AnyResults],
    request: Request,
    *,
    screen: Screen,
    show: Callable[[str, Any], object],
) -> tuple[AnyResults, int]:
    """Measures the requested figures of a suite.

    Args:
        suite: the figures.
        request: which of them to measure, and where the results go.
        screen: shows the progress.
        show: called with name and figure as soon as it is measured; figures saved by an earlier run come first.

    Returns:
        All figures known at the end, and the exit status: 1 if a figure was not measured or misses its target.

    Raises:
        PipetuneError: a name is unknown, the file of earlier results is damaged, or the results cannot be written.
    """
    chosen = suite.choose(request.names, request.quick)
    path = request.file(suite)
    known = _continued(suite, request, load(suite.results, path)).updated()
    again = request.again or (bool(request.names) and not suite.cumulative)
    missing = tuple(name for name in chosen if again or name not in known.measured)[: request.most]
    for name in () if suite.cumulative else known.measured:
        if name in chosen and name not in missing:
            show(name, known.measured[name])

    def write() -> None:
        save(known, path)
        suite.write_report(known, path)

    def receive(message: Message) -> None:
        nonlocal known
        match message:
            case Progress(phase=phase, activity=activity):
                screen.update(phase, activity)
            case LogLine(text=text):
                screen.warn(text)
            case FigureMeasured(name=name, figure=figure, machine=machine):
                known = known.with_figure(name, decode(suite.results.figure_type, figure), machine)
                write()
                show(name, known.measured[name])
            case _:
                pass

    if not missing:
        write()
        return known, int(not known.met)
    status = _run_process(suite, request, missing, receive, screen)
    return known, status or int(not known.met)


def _continued(suite: Suite[AnyResults], request: Request, saved: AnyResults | None) -> AnyResults:
    """Returns what earlier runs saved; nothing yet if they had another seed, release or `quick` setting."""
    if saved is not None and (
        suite.cumulative or (saved.version, saved.seed, saved.quick) == (VERSION, request.seed, request.quick)
    ):
        return replace(saved, version=VERSION)
    return suite.results(VERSION, date=time.strftime("%Y-%m-%d %H:%M"), quick=request.quick, seed=request.seed)


def _run_process(
    suite: Suite[Any], request: Request, names: tuple[str, ...], receive: Callable[[Message], None], screen: Screen
) -> int:
    """Starts the measuring process, receives its messages until it exits and returns the command's exit status."""
    job = Job(
        Mode.BENCH,
        message_descriptor=-1,
        settings=Settings(quick=request.quick, seed=request.seed),
        arguments=names,
        directory=os.getcwd(),
        out=str(request.out.absolute()),
    )
    command = (sys.executable, "-P", "-m", suite.module)
    path = os.pathsep.join(filter(None, (str(CLONE), os.environ.get("PYTHONPATH"))))
    limits = Timeouts(start=_SILENCE_SECONDS, phases={}, other_phases=_SILENCE_SECONDS)
    with (
        Interrupts() as interrupts,
        worker(job, log=Path(os.devnull), command=command, environment={"PYTHONPATH": path}) as running,
    ):
        watched = WorkerMonitor(running, limits=limits, interrupts=interrupts, on_message=receive)
        conversation = watched.wait_and_end()
    if conversation.exit_reason:
        screen.warn(
            f"The measuring process {conversation.exit_reason}. The results so far are kept; run the command "
            "again to continue."
        )
    status = conversation.finished.exit_code if conversation.finished else 1
    return 130 if interrupts.count else status
