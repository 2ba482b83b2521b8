"""`python -m benchmarks.rivals.measuring JOB`: measures a workload in a process of its own.

The arguments of the job are "rates", the name of the workload and the plan file of an analysis without caches ("" if
there is none), or "memory", the name and a rival. The result is written to a file in the job's folder.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import ProgressCallback
from benchmarks.dataset_study import create_study, measure_facts
from benchmarks.examples import expert_dataset, training_dataset
from benchmarks.measuring_process import progress_callback
from benchmarks.rivals.contenders import UNCACHED, add_expert, choose_contenders, describe_plan, source_bytes
from benchmarks.rivals.process_files import (
    RATES_FILE,
    PeakMemory,
    RatesMeasurement,
    memory_file,
    read_value,
    write_value,
)
from benchmarks.rivals.results import EXPERT
from benchmarks.rivals.rounds import QUICK, WHOLE, compare_rates, measure_windows
from benchmarks.rivals.workloads import Workload, find_workloads
from pipetune.core.edits import Consent, Plan
from pipetune.core.messages import Job, MessageWriter, read_job
from pipetune.core.plan_file import load_plan
from pipetune.core.time_plan import SystemClock
from pipetune.measure import machine
from pipetune.measure.caches import fill_cache
from pipetune.stages import planning
from pipetune.timing.iterators import shortened_pauses

PEAK_WINDOW_SECONDS, PEAK_WARMUP_SECONDS = 1.0, 0.5


def main() -> int:
    """Does the job whose file is the first command-line argument."""
    job = read_job(Path(sys.argv[1]))
    folder, (what, name, detail) = Path(job.out), job.arguments
    workload = find_workloads()[name]
    if what == "rates":
        progress = progress_callback(MessageWriter(job.message_descriptor), job.label)
        write_value(measure_rates(workload, job, progress, plan_without_cache=detail), folder / RATES_FILE)
    else:
        dataset = (expert_dataset if detail == EXPERT else training_dataset)(workload.folder)
        plan = read_value(RatesMeasurement, folder / RATES_FILE).plans[detail]
        write_value(PeakMemory(peak_memory(dataset, plan)), folder / memory_file(detail))
    return 0


def measure_rates(
    workload: Workload, job: Job, progress: ProgressCallback, *, plan_without_cache: str = ""
) -> RatesMeasurement:
    """Profiles the dataset of a workload, chooses the plan of each rival and measures all of them.

    Args:
        workload: what to measure.
        job: has the plan file of `pipetune analyze`, and the settings.
        progress: called with each activity.
        plan_without_cache: plan file of an analysis that left caches out; "": there is none.

    Raises:
        RunFailed: the original pipeline cannot be run.
        PlanMismatch: the plan was made for a different pipeline from the one of `training_dataset()`.
    """
    length = QUICK if job.settings.quick else WHOLE
    study = create_study(training_dataset(workload.folder))
    pipeline = study.subject.source.pipeline
    plan_file = load_plan(job.plan)
    plan_file.check(pipeline)
    uncached_plan = load_plan(plan_without_cache).plan if plan_without_cache else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(shortened_pauses())
        stack.callback(study.runner.close)
        progress("profiling")
        context = measure_facts(study, refined=not job.settings.quick, files=True)
        progress("choosing the rivals' plans")
        contenders = choose_contenders(
            context,
            planning.baselines_of(study, allow=tuple(Consent)),
            plan_file.plan,
            uncached_plan=uncached_plan,
            workload=workload,
        )
        dataset = expert_dataset(workload.folder)
        expert = None if dataset is None else create_study(dataset)
        if expert is not None:
            stack.callback(expert.runner.close)
            source = expert.subject.source
            contenders = add_expert(contenders, source.pipeline, workload=workload, source_bytes=source_bytes(context))
            # Caches that plans insert are filled before their first window as well.
            for node in source.pipeline:
                if node.op == "cache":
                    fill_cache(source.datasets[node.id])
        study.runner.max_datasets = len(contenders.plans)  # keeps caches filled from round to round
        windows, failed = measure_windows(
            contenders,
            study.runner,
            SystemClock(),
            length=length,
            seed=job.settings.seed,
            progress=progress,
            expert=expert.runner if expert is not None else None,
        )
        plans = {name: plan for name, plan in contenders.plans.items() if not name.endswith(UNCACHED)}
        result = replace(
            compare_rates(workload.name, windows, contenders),
            caches=contenders.caches,
            plans={name: describe_plan(plan, pipeline) for name, plan in plans.items()},
            failed=failed,
        )
        return RatesMeasurement(study.machine, plans, result)


def peak_memory(dataset: Any, plan: Plan) -> float | None:
    """Measures one window with a plan and returns the peak memory, in addition to that before the first element.

    Returns:
        MiB; None if the operating system does not report the peak.
    """
    study = create_study(dataset)
    try:
        supported = machine.reset_peak_rss()
        study.runner.input_window(plan, seconds=PEAK_WINDOW_SECONDS, warmup_seconds=PEAK_WARMUP_SECONDS)
        return max(0.0, machine.peak_rss_bytes() - study.resident_bytes) / 2**20 if supported else None
    finally:
        study.runner.close()


if __name__ == "__main__":
    sys.exit(main())
