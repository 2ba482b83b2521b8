"""`python -m pipetune.bench.rivals.memory_process JOB`: measures the peak memory of one rival on one workload."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pipetune.bench.dataset_study import create_study
from pipetune.bench.examples import expert_dataset, training_dataset
from pipetune.bench.rivals.process_files import (
    RATES_FILE,
    PeakMemory,
    RatesMeasurement,
    find_workload,
    memory_file,
    read_value,
    write_value,
)
from pipetune.core.benchmarks import EXPERT
from pipetune.core.edits import Plan
from pipetune.core.messages import read_job
from pipetune.measure import machine

WINDOW_SECONDS, WARMUP_SECONDS = 1.0, 0.5


def main() -> int:
    """Runs the rival that the job names with the plan that was measured, and writes its peak memory."""
    job = read_job(Path(sys.argv[1]))
    name, rival = job.arguments
    folder = Path(job.out)
    plan = read_value(RatesMeasurement, folder / RATES_FILE).plans[rival]
    build = expert_dataset if rival == EXPERT else training_dataset
    dataset = build(find_workload(job, name).folder)
    write_value(PeakMemory(peak_memory(dataset, plan)), folder / memory_file(rival))
    return 0


def peak_memory(dataset: Any, plan: Plan) -> float | None:
    """Measures one window with a plan and returns the peak memory, in addition to that before the first element.

    Returns:
        MiB; None if the operating system does not report the peak.
    """
    study = create_study(dataset)
    try:
        supported = machine.reset_peak_rss()
        study.runner.input_window(plan, seconds=WINDOW_SECONDS, warmup_seconds=WARMUP_SECONDS)
        return max(0.0, machine.peak_rss_bytes() - study.resident_bytes) / 2**20 if supported else None
    finally:
        study.runner.close()


if __name__ == "__main__":
    sys.exit(main())
