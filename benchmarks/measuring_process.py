"""The process that measures the figures of a suite of `pipetune bench`."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks import ProgressCallback
from pipetune.core.codec import encode
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import FigureMeasured, Job, LogLine, MessageWriter, Progress, WorkerFinished, read_job

PHASE = "bench"

Measure = Callable[[str, Job, ProgressCallback], tuple[object, Machine | None]]
"""Measures the figure with this name, and returns its dataclass and the machine that it was measured on."""


def run_job(measure: Measure, *, quick_seconds: float = math.inf) -> int:
    """Measures the figures of the job whose file is the first command-line argument; each is sent when it is measured.

    An error is reported and does not affect the other figures.

    Args:
        measure: measures one of them. The keys "date" and "seconds" are filled in here.
        quick_seconds: a quick run starts no figure that is expected to end later, judging by those measured before.

    Returns:
        The exit code: 1 if a figure could not be measured.
    """
    job = read_job(Path(sys.argv[1]))
    writer = MessageWriter(job.message_descriptor)
    began, longest, code = time.monotonic(), 0.0, 0
    for number, name in enumerate(job.arguments):
        started = time.monotonic()
        if job.settings.quick and started - began + longest > quick_seconds:
            remaining = ", ".join(job.arguments[number:])
            writer.send(LogLine(f"The quick run has no time left for {remaining}: run it again to continue."))
            break
        label = f"{name} ({number + 1} of {len(job.arguments)})"
        progress = progress_callback(writer, label)
        progress("beginning")
        try:
            figure, machine = measure(name, replace(job, label=label), progress)
        except Exception as error:
            code = 1
            expected = isinstance(error, RunFailed | PipetuneError | OSError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            writer.send(LogLine(f"{name} could not be measured: {reason}"))
        else:
            values = encode(figure)
            assert isinstance(values, dict)
            seconds = round(time.monotonic() - started, 1)
            values |= {"date": time.strftime("%Y-%m-%d %H:%M"), "seconds": seconds}
            writer.send(FigureMeasured(name, values, machine))
        longest = max(longest, time.monotonic() - started)
    writer.send(WorkerFinished(code))
    return code


def progress_callback(writer: MessageWriter, label: str) -> ProgressCallback:
    """Returns a function that reports progress to the supervisor; `label` precedes every activity."""
    return lambda activity: writer.send(Progress(PHASE, f"{label}: {activity}"))
