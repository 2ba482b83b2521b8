"""`python -m pipetune.bench.rivals.measuring JOB`: one workload, all contenders in turn, in a process of its own."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from pipetune.bench import Say
from pipetune.bench.alone import study_of
from pipetune.bench.examples import expert_dataset, training_dataset
from pipetune.bench.rivals.caches import source_bytes
from pipetune.bench.rivals.contenders import UNCACHED, contenders, words_of
from pipetune.bench.rivals.exchange import MEASURED_FILE, Measured, hand_over, teller, workload_of
from pipetune.bench.rivals.expert import fill_own_caches, with_expert
from pipetune.bench.rivals.judging import judge
from pipetune.bench.rivals.rounds import QUICK, WHOLE, take_windows
from pipetune.core.benchmarks import Workload
from pipetune.core.messages import Job, MessageWriter, read_job
from pipetune.core.plan_file import load_plan
from pipetune.core.time_plan import SystemClock
from pipetune.model.bottleneck import diagnose
from pipetune.rewrites.rule import RuleContext
from pipetune.stages import planning
from pipetune.stages.files import measure_files
from pipetune.stages.profiling import refine_costs, take_profile
from pipetune.stages.study import Study, rule_context
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
        context = facts_of(study, whole=not job.settings.quick)
        say("the rivals choose their numbers")
        found = contenders(
            context,
            planning.baselines_of(study),
            file.plan,
            bare=bare,
            workload=workload,
        )
        expert = None if (hand_written := expert_dataset(workload.folder)) is None else study_of(hand_written)
        if expert is not None:
            stack.callback(expert.runner.close)
            found = with_expert(
                found, expert.subject.source.pipeline, workload=workload, source_bytes=source_bytes(context)
            )
            fill_own_caches(expert)
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


def facts_of(study: Study, *, whole: bool) -> RuleContext:
    """What the rivals' rules go by: costs, bytes, counts and files, measured as an analysis measures them."""
    profile = take_profile(study)
    diagnosis = diagnose(study.subject.source.pipeline, profile, study.machine, study.settings)
    if whole:
        profile, diagnosis = refine_costs(study, profile, diagnosis)
    profile = planning.complete_profile(study, measure_files(study, profile))
    return rule_context(study, profile, diagnosis)


if __name__ == "__main__":
    sys.exit(main())
