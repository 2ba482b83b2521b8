"""`pipetune bench --accuracy`: starts the measuring process and saves each figure as soon as it is measured."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.core import accuracy
from pipetune.core.accuracy import Accuracy, Figure
from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.messages import FigureMeasured, Job, Log, Message, Mode, Progress, SessionSaved
from pipetune.core.settings import Settings
from pipetune.core.version import VERSION
from pipetune.report.accuracy import markdown_text
from pipetune.report.progress import Progress as Screen
from pipetune.supervisor.interrupts import Interrupts
from pipetune.supervisor.limits import Limits
from pipetune.supervisor.process import worker
from pipetune.supervisor.watch import watch

BENCH_COMMAND = (sys.executable, "-P", "-m", "pipetune.bench")

_SILENCE_SECONDS = 1800.0  # a figure reports progress at least every ten minutes


@dataclass(frozen=True)
class Request:
    """What to measure, and where the results go."""

    names: tuple[str, ...]  # of figures, each measured again; if empty: those missing in the file
    out: Path
    quick: bool = False
    seed: int = 0
    again: bool = False  # also measure the figures that the file already has

    @property
    def file(self) -> Path:
        """The results file. Quick runs have their own, so as not to overwrite results that took an hour."""
        return self.out / ("accuracy-quick.json" if self.quick else "accuracy.json")


def bench(
    request: Request,
    *,
    screen: Screen,
    show: Callable[[str, Figure], None],
    bench_command: Sequence[str] = BENCH_COMMAND,
) -> tuple[Accuracy, int]:
    """Measure the requested figures.

    Args:
        request: what to measure, and where the results go.
        screen: shows the progress.
        show: called with each figure as soon as it is measured; figures kept from an earlier run come first.
        bench_command: starts the measuring process; the path of the job file is appended.

    Returns:
        All figures known at the end, and the exit status: 1 if a figure was not measured or misses its target.

    Raises:
        PipetuneError: a figure name is unknown, or the results cannot be written.
    """
    known = kept(request)
    wanted = request.names or tuple(
        name for name in accuracy.FIGURES if request.again or name not in known.figures
    )
    for name, figure in known.figures.items():
        if name not in wanted and not request.names:
            show(name, figure)
    if not wanted:
        _write(known, request)
        return known, _status(known, 0)
    job = Job(
        Mode.BENCH,
        message_descriptor=-1,
        settings=Settings(quick=request.quick, seed=request.seed),
        arguments=wanted,
        directory=os.getcwd(),
        out=str(request.out.absolute()),
    )

    def hear(message: Message) -> None:
        nonlocal known
        match message:
            case Progress(phase=phase, doing=doing, elapsed_seconds=elapsed):
                screen.update(phase, doing, elapsed=elapsed)
            case Log(text=text):
                screen.warn(text)
            case SessionSaved(session=session):
                known = known.on(session.machine) if session.machine else known
            case FigureMeasured(name=name, figure=figure):
                known = known.with_figure(name, figure)
                _write(known, request)
                show(name, figure)
            case _:
                pass

    status = listen(job, hear, screen=screen, command=bench_command)
    return known, _status(known, status)


def listen(job: Job, hear: Callable[[Message], None], *, screen: Screen, command: Sequence[str]) -> int:
    """Starts a measuring process and receives its messages until it exits. Returns the command's exit status.

    Args:
        job: the task of the process.
        hear: called with each message.
        screen: shows a warning if the process did not finish.
        command: starts the process; the path of the job file is appended.

    Raises:
        PipetuneError: the process reported an error.
    """
    limits = Limits(start=_SILENCE_SECONDS, phases={}, other=_SILENCE_SECONDS)
    with Interrupts() as interrupts, worker(job, log=Path(os.devnull), command=command) as running:
        conversation = watch(running, limits=limits, interrupts=interrupts, on_message=hear)
    if conversation.failed:
        raise PipetuneError(conversation.failed.message, hint=conversation.failed.hint, exit_code=1)
    if conversation.why:
        screen.warn(f"The measuring process {conversation.why}. What was measured is kept; run it again to go on.")
    ended = conversation.finished.exit_code if conversation.finished else 1
    return 130 if interrupts.count else ended


def kept(request: Request) -> Accuracy:
    """The figures that earlier runs saved; none if they had another seed, release or `quick` setting.

    Raises:
        PipetuneError: a figure name is unknown, or the file is damaged.
    """
    unknown = [name for name in request.names if name not in accuracy.FIGURES]
    if unknown:
        raise PipetuneError(
            f"There is no figure called {unknown[0]!r}.", hint="Figures: " + ", ".join(accuracy.FIGURES)
        )
    found = accuracy.load(request.file)
    if found is None or (found.version, found.seed, found.quick) != (VERSION, request.seed, request.quick):
        return Accuracy(
            VERSION, date=time.strftime("%Y-%m-%d %H:%M"), quick=request.quick, seed=request.seed
        )
    return found


def _write(known: Accuracy, request: Request) -> None:
    accuracy.save(known, request.file)
    write_text(request.file.with_suffix(".md"), markdown_text(known))


def _status(known: Accuracy, status: int) -> int:
    missed = not all(figure.met for figure in known.figures.values())
    return status or int(missed)
