"""`python -m pipetune.bench.rivals JOB`: measures the workloads the job names, and sends each once it is there."""

from __future__ import annotations

import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

from pipetune.bench.rivals.exchange import teller, workload_of
from pipetune.bench.rivals.one_workload import LOG_FILE, measured_workload
from pipetune.core.benchmarks import Workload
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import (
    AnalysisFailed,
    Job,
    LogLine,
    MessageWriter,
    WorkerFinished,
    WorkloadMeasured,
    read_job,
)
from pipetune.core.results import RunFailed

QUICK_SECONDS = 300.0
"""The short form begins no workload that would end later, to judge by those before."""


def main() -> int:
    """Measures what the job named by the first argument asks for; 1 where a workload could not be measured."""
    job = read_job(Path(sys.argv[1]))
    writer = MessageWriter(job.message_descriptor)
    code = 0
    try:
        job = replace(job, workload=replace(job.workload, started=time.monotonic()))
        code = _measure_all(job, writer)
    except Exception as error:
        writer.send(AnalysisFailed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        code = 1
    writer.send(WorkerFinished(code))
    return code


def _measure_all(job: Job, writer: MessageWriter) -> int:
    """Every workload that the time of the form has room for; what is left out is told."""
    code, began, longest = 0, time.monotonic(), 0.0
    for number, name in enumerate(job.arguments):
        started = time.monotonic()
        if job.settings.quick and started - began + longest > QUICK_SECONDS:
            left = ", ".join(job.arguments[number:])
            writer.send(LogLine(f"No time was left in the short form for {left}: run it again to go on."))
            break
        label = f"{name} ({number + 1} of {len(job.arguments)})"
        own = replace(job, workload=replace(job.workload, label=label))
        code = max(code, _measure(workload_of(job, name), own, writer))
        longest = max(longest, time.monotonic() - started)
    return code


def _measure(workload: Workload, job: Job, writer: MessageWriter) -> int:
    """One workload; an error in it is told, and the others go on."""
    started = time.monotonic()
    say = teller(job, writer)
    folder = Path(job.out) / "benchmarks" / workload.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOG_FILE).write_bytes(b"")
        measured, result = measured_workload(workload, folder, job, say)
    except (RunFailed, PipetuneError, OSError, ValueError) as error:
        writer.send(LogLine(f"{workload.name} could not be measured: {error}\nMore is in {folder / LOG_FILE}."))
        return 1
    seconds = round(time.monotonic() - started, 1)
    writer.send(WorkloadMeasured(replace(result, seconds=seconds), measured.machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
