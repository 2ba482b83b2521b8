"""`python -m pipetune.bench.rivals JOB`: measures the workloads of a job, and sends each one when it is measured."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from pipetune.bench.measuring_process import progress_callback, run_job
from pipetune.bench.rivals.process_files import find_workload
from pipetune.bench.rivals.workload_run import LOG_FILE, run_workload
from pipetune.core.benchmarks import Workload
from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job, LogLine, MessageWriter, WorkloadMeasured
from pipetune.core.results import RunFailed

QUICK_SECONDS = 300.0
"""A quick run starts no workload that is expected to end later than this, judging by those measured before."""


def main() -> int:
    """Measures all workloads of the job; returns 1 if one of them could not be measured."""
    return run_job(_measure_all)


def _measure_all(job: Job, writer: MessageWriter) -> int:
    """Measures the workloads in order. If the time of a quick run is up, it reports which ones were left out."""
    started = time.monotonic()
    code, longest = 0, 0.0
    for number, name in enumerate(job.arguments):
        workload_started = time.monotonic()
        if job.settings.quick and workload_started - started + longest > QUICK_SECONDS:
            remaining = ", ".join(job.arguments[number:])
            writer.send(LogLine(f"The quick run has no time left for {remaining}: run it again to continue."))
            break
        label = f"{name} ({number + 1} of {len(job.arguments)})"
        workload_job = replace(job, workload=replace(job.workload, label=label, started=started))
        code = max(code, _measure(find_workload(job, name), workload_job, writer))
        longest = max(longest, time.monotonic() - workload_started)
    return code


def _measure(workload: Workload, job: Job, writer: MessageWriter) -> int:
    """Measures and sends one workload. An error is reported and does not affect the other workloads."""
    started = time.monotonic()
    progress = progress_callback(writer, job.workload.label, started=job.workload.started)
    folder = Path(job.out) / "benchmarks" / workload.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOG_FILE).write_bytes(b"")
        measurement, result = run_workload(workload, folder, job, progress)
    except (RunFailed, PipetuneError, OSError, ValueError) as error:
        writer.send(LogLine(f"{workload.name} could not be measured: {error}\nMore is in {folder / LOG_FILE}."))
        return 1
    seconds = round(time.monotonic() - started, 1)
    writer.send(WorkloadMeasured(replace(result, seconds=seconds), measurement.machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
