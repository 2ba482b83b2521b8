"""Step 4b: what would limit training under other conditions, predicted by the model alone."""

from __future__ import annotations

from dataclasses import replace

from pipetune import rules
from pipetune.core.edits import Plan
from pipetune.core.errors import PipetuneError
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Diagnosis, Profile
from pipetune.model.what_if import what_if
from pipetune.stages import planning
from pipetune.stages.study import Study


def look_ahead(study: Study, profile: Profile, diagnosis: Diagnosis, plan: Plan | None) -> None:
    """Stores the what-if table in the session, for the tuned pipeline, or without a plan for the original one."""
    written = study.subject.source.pipeline
    pipeline = study.runner.edited(plan) if plan is not None else written
    step = study.settings.step_time_seconds or profile.consumer.bound_seconds
    table = what_if(
        pipeline,
        profile,
        study.cores,
        step_seconds=step,
        storage_bytes_per_second=profile.files.storage_bytes_per_second if profile.files is not None else None,
        with_memory=_with_memory(study, profile, diagnosis, plan or Plan("defaults")),
    )
    study.journal.dataset(what_if=table)


def _with_memory(study: Study, profile: Profile, diagnosis: Diagnosis, plan: Plan) -> tuple[Pipeline, ...]:
    """Returns the plan's pipeline with one more rewrite each: those permitted that fit only in twice the memory."""
    here = planning.facts_of(study, profile, diagnosis)
    there = replace(here, memory_limit_bytes=2 * here.memory_limit_bytes)
    fitting = {rewrite.key for rewrite in rules.propose_all(here)[0]}
    allowed = [
        rewrite
        for rewrite in rules.propose_all(there)[0]
        if rewrite.key not in fitting
        and study.settings.grants(rewrite.safety, rewrite.needs, randomness_fixed=here.randomness_fixed)
    ]
    found = []
    for rewrite in allowed:
        try:
            found.append(study.runner.edited(plan.with_rewrite(rewrite)))
        except PipetuneError:  # it conflicts with what the plan changes
            continue
    return tuple(found)
