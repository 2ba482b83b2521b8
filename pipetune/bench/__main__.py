"""`python -m pipetune.bench JOB`: measures the figures of a job, and sends each one when it is measured."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

from pipetune.bench import ProgressCallback
from pipetune.bench.measuring_process import PHASE, progress_callback, run_job
from pipetune.bench.resumable import ResumableResults
from pipetune.core.accuracy import AccuracyFigure
from pipetune.core.codec import encode
from pipetune.core.command import Command
from pipetune.core.messages import FigureMeasured, Job, LogLine, MessageWriter, Progress, SessionSaved
from pipetune.core.session import Session
from pipetune.core.version import VERSION


def main() -> int:
    """Measures all figures of the job; returns 1 if one of them could not be measured."""
    return run_job(_measure_all)


def _measure_all(job: Job, writer: MessageWriter) -> int:
    _send_machine(writer)
    return max((_measure(name, job, writer) for name in job.arguments), default=0)


def _send_machine(writer: MessageWriter) -> None:
    writer.send(Progress(PHASE, "starting TensorFlow"))
    from pipetune.measure.machine import read_machine

    writer.send(SessionSaved(Session(VERSION, Command(), machine=read_machine())))


def _measure(name: str, job: Job, writer: MessageWriter) -> int:
    """Measures and sends one figure. An error is reported and does not affect the other figures."""
    started = time.monotonic()
    progress = progress_callback(writer, name, started=started)
    progress("beginning")
    try:
        figure = _measure_figure(figure_module(name), name, job, progress)
    except Exception as error:
        writer.send(LogLine(f"{name} could not be measured: {type(error).__name__}: {error}\n{traceback.format_exc()}"))
        return 1
    writer.send(FigureMeasured(name, dataclasses.replace(figure, seconds=round(time.monotonic() - started, 1))))
    return 0


def figure_module(name: str) -> ModuleType:
    """Imports the module that measures a figure."""
    return importlib.import_module(f"pipetune.bench.{name}")


def _measure_figure(module: ModuleType, name: str, job: Job, progress: ProgressCallback) -> AccuracyFigure:
    quick, seed = job.settings.quick, job.settings.seed
    condition = f"{VERSION}, seed {seed}, {'quick' if quick else 'whole'}"
    saved = ResumableResults(Path(job.out) / f".{name}.part.json", condition=condition)
    options = {"saved": saved} if getattr(module, "RESUMABLE", False) else {}
    result = module.measure(quick=quick, seed=seed, progress=progress, **options)
    values = encode(result)
    assert isinstance(values, dict)
    notes = tuple(str(note) for note in values.pop("notes", ()))
    figure = AccuracyFigure(
        values=values,
        claims=tuple(module.claims(result, quick=quick)),
        notes=notes,
        date=time.strftime("%Y-%m-%d %H:%M"),
    )
    saved.delete()
    return figure


if __name__ == "__main__":
    sys.exit(main())
