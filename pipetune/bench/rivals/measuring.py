"""`python -m pipetune.bench.rivals.measuring JOB`: one workload, all contenders in turn, in a process of its own."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from pipetune.bench import Say
from pipetune.bench.alone import facts_of, study_of
from pipetune.bench.examples import expert_dataset, training_dataset
from pipetune.bench.rivals.contenders import UNCACHED, contenders, source_bytes, with_expert, words_of
from pipetune.bench.rivals.exchange import MEASURED_FILE, Measured, hand_over, teller, workload_of
from pipetune.bench.rivals.rounds import QUICK, WHOLE, judge, take_windows
from pipetune.core.benchmarks import Workload
from pipetune.core.messages import Job, MessageWriter, read_job
from pipetune.core.plan_file import load_plan
from pipetune.core.time_plan import SystemClock
from pipetune.measure.runner import fill_caches
from pipetune.stages import planning
from pipetune.timing.iterators import shortened_pauses


def main() -> int:
    """Measures the workload that the job names, into its folder."""
    job = read_job(Path(sys.argv[1]))
    writer = MessageWriter(job.message_descriptor)
    (name,) = job.arguments
    measured = measure_workload(workload_of(job, name), job, teller(job, writer))
    hand_over(measured, Path(job.out) / MEASURED_FILE)
    return 0


def measure_workload(workload: Workload, job: Job, say: Say) -> Measured:
    """Profiles the workload's dataset, lets each rival make its plan, and measures them in rounds.

    Raises:
        RunFailed: the pipeline as written cannot be run.
        PlanMismatch: the plan was made for another pipeline than `training_dataset()` gives.
    """
    length = QUICK if job.settings.quick else WHOLE
    study = study_of(training_dataset(workload.folder))
    pipeline = study.subject.source.pipeline
    file = load_plan(job.plan)
    file.check(pipeline)
    path = job.workload.plan_without_cache
    bare = load_plan(path).plan if path else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(shortened_pauses())
        stack.callback(study.runner.close)
        say("profiling")
        context = facts_of(study, refined=not job.settings.quick, files=True)
        say("the rivals choose their numbers")
        found = contenders(context, planning.baselines_of(study), file.plan, bare=bare, workload=workload)
        expert = None if (hand_written := expert_dataset(workload.folder)) is None else study_of(hand_written)
        if expert is not None:
            stack.callback(expert.runner.close)
            found = with_expert(
                found, expert.subject.source.pipeline, workload=workload, source_bytes=source_bytes(context)
            )
            source = expert.subject.source
            # As the caches of plans are filled before their first window.
            fill_caches(source.datasets[node.id] for node in source.pipeline if node.op == "cache")
        study.runner.max_datasets = len(found.plans)  # caches stay filled from round to round
        windows, failed = take_windows(
            found,
            study.runner,
            SystemClock(),
            length=length,
            seed=job.settings.seed,
            say=say,
            expert=expert.runner if expert is not None else None,
        )
        judged = judge(windows, found)
        plans = {name: plan for name, plan in found.plans.items() if not name.endswith(UNCACHED)}
        return Measured(
            machine=study.machine,
            rivals=judged.rates,
            ratio_over=judged.ratio_over,
            without_cache=judged.without_cache,
            over_defaults=judged.over_defaults,
            plans=plans,
            sets={name: words_of(plan, pipeline) for name, plan in plans.items()},
            caches=found.caches,
            failed=failed,
        )


if __name__ == "__main__":
    sys.exit(main())
