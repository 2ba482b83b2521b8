"""`python -m pipetune.bench.rivals.rates_process JOB`: measures the rates of all contenders on one workload."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from pipetune.bench import ProgressCallback
from pipetune.bench.dataset_study import create_study, measure_facts
from pipetune.bench.examples import expert_dataset, training_dataset
from pipetune.bench.measuring_process import progress_callback
from pipetune.bench.rivals.contenders import UNCACHED, add_expert, choose_contenders, describe_plan, source_bytes
from pipetune.bench.rivals.process_files import RATES_FILE, RatesMeasurement, find_workload, write_value
from pipetune.bench.rivals.rounds import QUICK, WHOLE, compare_rates, measure_windows
from pipetune.core.benchmarks import Workload
from pipetune.core.messages import Job, MessageWriter, read_job
from pipetune.core.plan_file import load_plan
from pipetune.core.time_plan import SystemClock
from pipetune.measure.runner import fill_caches
from pipetune.stages import planning
from pipetune.timing.iterators import shortened_pauses


def main() -> int:
    """Measures the workload of the job, and writes the rates to the job's folder."""
    job = read_job(Path(sys.argv[1]))
    progress = progress_callback(
        MessageWriter(job.message_descriptor), job.workload.label, started=job.workload.started
    )
    (name,) = job.arguments
    write_value(measure_rates(find_workload(job, name), job, progress), Path(job.out) / RATES_FILE)
    return 0


def measure_rates(workload: Workload, job: Job, progress: ProgressCallback) -> RatesMeasurement:
    """Profiles the dataset of a workload, chooses the plan of each rival and measures all of them.

    Args:
        workload: what to measure.
        job: has the plan file of `pipetune analyze`, that of its analysis without caches, and the settings.
        progress: called with each activity.

    Raises:
        RunFailed: the original pipeline cannot be run.
        PlanMismatch: the plan was made for a different pipeline from the one of `training_dataset()`.
    """
    length = QUICK if job.settings.quick else WHOLE
    study = create_study(training_dataset(workload.folder))
    pipeline = study.subject.source.pipeline
    plan_file = load_plan(job.plan)
    plan_file.check(pipeline)
    path = job.workload.plan_without_cache
    uncached_plan = load_plan(path).plan if path else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(shortened_pauses())
        stack.callback(study.runner.close)
        progress("profiling")
        context = measure_facts(study, refined=not job.settings.quick, files=True)
        progress("choosing the rivals' plans")
        contenders = choose_contenders(
            context, planning.baselines_of(study), plan_file.plan, uncached_plan=uncached_plan, workload=workload
        )
        dataset = expert_dataset(workload.folder)
        expert = None if dataset is None else create_study(dataset)
        if expert is not None:
            stack.callback(expert.runner.close)
            source = expert.subject.source
            contenders = add_expert(contenders, source.pipeline, workload=workload, source_bytes=source_bytes(context))
            # Caches that plans insert are filled before their first window as well.
            fill_caches(source.datasets[node.id] for node in source.pipeline if node.op == "cache")
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
        return RatesMeasurement(
            machine=study.machine,
            compared=compare_rates(windows, contenders),
            plans=plans,
            plan_texts={name: describe_plan(plan, pipeline) for name, plan in plans.items()},
            caches=contenders.caches,
            failed=failed,
        )


if __name__ == "__main__":
    sys.exit(main())
