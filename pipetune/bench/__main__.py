"""`python -m pipetune.bench JOB`: measures the figures the job names, and sends each as soon as it is there."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

from pipetune.bench.keeping import Kept
from pipetune.core.accuracy import AccuracyFigure
from pipetune.core.codec import encode
from pipetune.core.command import Command
from pipetune.core.messages import (
    AnalysisFailed,
    FigureMeasured,
    Job,
    LogLine,
    MessageWriter,
    Progress,
    SessionSaved,
    WorkerFinished,
    read_job,
)
from pipetune.core.session import Session
from pipetune.core.version import VERSION

PHASE = "bench"


def main() -> int:
    """Measures what the job named by the first argument asks for; 1 where a figure could not be measured."""
    job = read_job(Path(sys.argv[1]))
    writer = MessageWriter(job.message_descriptor)
    code = 0
    try:
        _send_machine(writer)
        for name in job.arguments:
            code = max(code, _measure(name, job, writer))
    except Exception as error:
        writer.send(AnalysisFailed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        code = 1
    writer.send(WorkerFinished(code))
    return code


def _send_machine(writer: MessageWriter) -> None:
    writer.send(Progress(PHASE, "starting TensorFlow"))
    from pipetune.measure.machine import read_machine

    writer.send(SessionSaved(Session(VERSION, Command(), machine=read_machine())))


def _measure(name: str, job: Job, writer: MessageWriter) -> int:
    """One figure; an error in it is told, and the others go on."""
    started = time.monotonic()

    def say(doing: str) -> None:
        writer.send(Progress(PHASE, f"{name}: {doing}", elapsed_seconds=time.monotonic() - started))

    say("beginning")
    try:
        found = _found(figure_module(name), name, job, say)
    except Exception as error:
        writer.send(LogLine(f"{name} could not be measured: {type(error).__name__}: {error}\n{traceback.format_exc()}"))
        return 1
    writer.send(FigureMeasured(name, dataclasses.replace(found, seconds=round(time.monotonic() - started, 1))))
    return 0


def figure_module(name: str) -> ModuleType:
    return importlib.import_module(f"pipetune.bench.{name}")


def _found(module: ModuleType, name: str, job: Job, say: object) -> AccuracyFigure:
    quick, seed = job.settings.quick, job.settings.seed
    kept = Kept(Path(job.out) / f".{name}.part.json", of=f"{VERSION}, seed {seed}, {'quick' if quick else 'whole'}")
    more = {"kept": kept} if getattr(module, "RESUMES", False) else {}
    result = module.measure(quick=quick, seed=seed, say=say, **more)
    values = encode(result)
    assert isinstance(values, dict)
    notes = tuple(str(note) for note in values.pop("notes", ()))
    figure = AccuracyFigure(
        values=values,
        claims=tuple(module.claims(result, quick=quick)),
        notes=notes,
        date=time.strftime("%Y-%m-%d %H:%M"),
    )
    kept.done()
    return figure


if __name__ == "__main__":
    sys.exit(main())
