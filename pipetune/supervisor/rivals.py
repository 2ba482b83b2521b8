"""`pipetune bench`: starts the process that benchmarks workloads against rivals and saves each result at once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core import benchmarks
from pipetune.core.benchmarks import Benchmarks, WorkloadResult
from pipetune.core.files import write_text
from pipetune.core.messages import Job, Log, Message, Mode, Progress, WorkloadMeasured
from pipetune.core.settings import Settings
from pipetune.core.version import VERSION
from pipetune.core.workloads import FOLDER, choose_workloads, find_workloads
from pipetune.report.benchmarks import markdown_text
from pipetune.report.benchmarks_figure import write_figure
from pipetune.report.progress import Progress as Screen
from pipetune.supervisor.benching import listen

RIVALS_COMMAND = (sys.executable, "-P", "-m", "pipetune.bench.rivals")


@dataclass(frozen=True)
class Request:
    """Which workloads, and where the results go."""

    names: tuple[str, ...]  # each measured again; if empty: those missing in the file
    out: Path
    quick: bool = False
    seed: int = 0
    again: bool = False  # also measure the workloads that the file already has
    examples: Path = FOLDER

    @property
    def file(self) -> Path:
        """The results file. Quick runs have their own, so as not to overwrite results that took hours."""
        return self.out / ("benchmarks-quick.json" if self.quick else "benchmarks.json")


def bench_rivals(
    request: Request,
    *,
    screen: Screen,
    show: Callable[[WorkloadResult], None],
    command: Sequence[str] = RIVALS_COMMAND,
) -> tuple[Benchmarks, int]:
    """Measure the requested workloads.

    Args:
        request: which workloads, and where the results go.
        screen: shows the progress.
        show: called with each workload as soon as it is measured; those kept from an earlier run come first.
        command: starts the measuring process; the path of the job file is appended.

    Returns:
        All workloads known at the end, and the exit status of the command.

    Raises:
        PipetuneError: there are no workloads, a name is unknown, or the results cannot be written.
    """
    chosen = choose_workloads(request.names, quick=request.quick, folder=request.examples)
    known = replace(kept(request), suite=_suite(request))
    wanted = tuple(name for name in chosen if request.names or request.again or name not in known.names)
    for result in known.workloads:
        if result.name in chosen and result.name not in wanted:
            show(result)
    if not wanted:
        _write(known, request)
        return known, 0
    job = Job(
        Mode.BENCH,
        message_descriptor=-1,
        settings=Settings(quick=request.quick, seed=request.seed),
        arguments=wanted,
        directory=os.getcwd(),
        out=str(request.out.absolute()),
        command={"examples": str(request.examples)},
    )

    def hear(message: Message) -> None:
        nonlocal known
        match message:
            case Progress(phase=phase, doing=doing, elapsed_seconds=elapsed):
                screen.update(phase, doing, elapsed=elapsed)
            case Log(text=text):
                screen.warn(text)
            case WorkloadMeasured(result=result, machine=machine):
                known = replace(known.with_workload(result), machine=machine)
                _write(known, request)
                show(result)
            case _:
                pass

    status = listen(job, hear, screen=screen, command=command)
    return known, status


def kept(request: Request) -> Benchmarks:
    """The workloads that earlier runs saved; none if they had another seed, release or `quick` setting.

    Raises:
        PipetuneError: the file is damaged.
    """
    found = benchmarks.load(request.file)
    if found is None or (found.version, found.seed, found.quick) != (VERSION, request.seed, request.quick):
        return Benchmarks(VERSION, date=time.strftime("%Y-%m-%d %H:%M"), quick=request.quick, seed=request.seed)
    return found


def _suite(request: Request) -> tuple[str, ...]:
    """The names of all workloads to measure; () for a quick run, which has no others than those measured."""
    return () if request.quick else tuple(find_workloads(request.examples))


def _write(known: Benchmarks, request: Request) -> None:
    benchmarks.save(known, request.file)
    write_text(request.file.with_suffix(".md"), markdown_text(known))
    if known.workloads:
        write_figure(known, request.file.with_suffix(".png"))
