"""What the measuring processes of `pipetune bench` share: reading a job, and reporting progress, errors and the end."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pipetune.bench import ProgressCallback
from pipetune.core.messages import AnalysisFailed, Job, MessageWriter, Progress, WorkerFinished, read_job

PHASE = "bench"


def run_job(measure: Callable[[Job, MessageWriter], int]) -> int:
    """Runs the job whose file is the first command-line argument, and reports its end to the supervisor.

    Args:
        measure: does the job, sends its results and returns the exit code.

    Returns:
        The exit code; 1 if `measure` raised an exception, which is reported as well.
    """
    job = read_job(Path(sys.argv[1]))
    writer = MessageWriter(job.message_descriptor)
    try:
        code = measure(job, writer)
    except Exception as error:
        writer.send(AnalysisFailed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        code = 1
    writer.send(WorkerFinished(code))
    return code


def progress_callback(writer: MessageWriter, label: str, *, started: float) -> ProgressCallback:
    """Returns a function that reports progress to the supervisor.

    Args:
        writer: sends the messages.
        label: precedes every activity.
        started: start of the shown elapsed time, in `time.monotonic` seconds.
    """

    def report(activity: str) -> None:
        writer.send(Progress(PHASE, f"{label}: {activity}", elapsed_seconds=time.monotonic() - started))

    return report
