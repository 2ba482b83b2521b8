"""`python -m pipetune.bench.rivals.peaks JOB`: peak memory of one contender, in a process that ran nothing before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pipetune.bench.alone import study_of
from pipetune.bench.examples import expert_dataset, training_dataset
from pipetune.bench.rivals.exchange import MEASURED_FILE, Measured, Peak, hand_over, peak_file, take, workload_of
from pipetune.core.benchmarks import EXPERT
from pipetune.core.edits import Plan
from pipetune.core.messages import read_job
from pipetune.measure import machine

WINDOW_SECONDS, WARMUP_SECONDS = 1.0, 0.5


def main() -> int:
    """Runs the rival that the job names, with the plan measured before, and hands over its peak."""
    job = read_job(Path(sys.argv[1]))
    name, rival = job.arguments
    folder = Path(job.out)
    plan = take(Measured, folder / MEASURED_FILE).plans[rival]
    build = expert_dataset if rival == EXPERT else training_dataset
    hand_over(Peak(peak_of(build(workload_of(job, name).folder), plan)), folder / peak_file(rival))
    return 0


def peak_of(dataset: Any, plan: Plan) -> float | None:
    """MiB above what the process held before the first element, while one window is taken; None if not told."""
    study = study_of(dataset)
    try:
        counted = machine.reset_peak_rss()
        study.runner.input_window(plan, seconds=WINDOW_SECONDS, warmup_seconds=WARMUP_SECONDS)
        return max(0.0, machine.peak_rss_bytes() - study.resident_bytes) / 2**20 if counted else None
    finally:
        study.runner.close()


if __name__ == "__main__":
    sys.exit(main())
