"""Step 2b: the cost of each operator, measured in a second way after the verdict.

The runtime's model is quick but cannot tell waiting from working; prefix differencing can, and takes seconds.
"""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import CostSource, Diagnosis, OperatorProfile, Profile
from pipetune.model.bottleneck import diagnose
from pipetune.model.stages import fused
from pipetune.stages.study import Study
from pipetune.tf.measure.differencing import Differences, measure_costs

_SHARE = 0.1  # of the trial budget, spent in addition to it
_LEAST_SECONDS, _MOST_SECONDS = 1.5, 8.0


def refine_costs(study: Study, profile: Profile, diagnosis: Diagnosis) -> tuple[Profile, Diagnosis]:
    """Returns profile and diagnosis with the costs measured by prefix differencing; both are stored in the session.

    If that is not possible the costs stay those of the runtime's model, and a note says why.
    """
    pipeline = study.subject.source.pipeline
    notes = (*profile.notes, *fusion_notes(pipeline))
    seconds = min(_MOST_SECONDS, _SHARE * study.settings.budget_seconds)
    try:
        if study.settings.quick or seconds < _LEAST_SECONDS:
            raise RunFailed("there was no time for more")
        with study.journal.phase("costs", "measuring what each operator costs, a second way"):
            operators = {operator.node: operator for operator in profile.operators}
            try:
                found = measure_costs(study.subject.source, operators, seconds=seconds, seed=study.settings.seed)
            finally:
                study.runner.restore()
        profile = with_differences(replace(profile, notes=notes), pipeline, found)
        diagnosis = diagnose(pipeline, profile, study.machine, study.settings)
    except RunFailed as failure:
        why = f"{_MODEL_ALONE}: {str(failure).rstrip('.')}."
        profile = replace(profile, notes=(*notes, why))
    study.runner.profile = profile
    study.journal.dataset(profile=profile, diagnosis=diagnosis)
    if study.journal.studies_training:
        study.journal.bottleneck(diagnosis)
    return profile, diagnosis


def with_differences(profile: Profile, pipeline: Pipeline, found: Differences) -> Profile:
    """Returns the profile with the costs measured by differencing; the input's cost is the sum over its operators."""
    operators = tuple(_measured(operator, found) for operator in profile.operators)
    return replace(
        profile,
        operators=operators,
        input_cpu_seconds=sum((one.visits or 0.0) * (one.cpu_seconds or 0.0) for one in operators),
        input_wall_seconds=sum((one.visits or 0.0) * (one.wall_seconds or 0.0) for one in operators),
        notes=(*profile.notes, *(_SEVERAL_THREADS.format(pipeline[name].title) for name in found.several_threads)),
    )


def _measured(operator: OperatorProfile, found: Differences) -> OperatorProfile:
    visits = found.visits.get(operator.node, operator.visits)
    cost = found.costs.get(operator.node)
    if cost is None:
        return replace(operator, visits=visits)
    return replace(
        operator,
        visits=visits,
        cpu_seconds=cost.cpu.median,
        wall_seconds=cost.wall.median,
        waiting_seconds=cost.waiting.median,
        cpu_interval=cost.cpu,
        waiting_interval=cost.waiting,
        several_threads=cost.several_threads,
        cost_source=CostSource.PREFIX_DIFFERENCING,
    )


def fusion_notes(pipeline: Pipeline) -> tuple[str, ...]:
    """Returns the notes on operators that TensorFlow fuses when it runs the original pipeline."""
    return tuple(
        f"TensorFlow fuses {pipeline[first].title} and {pipeline[second].title} into one operator; what each costs "
        "is attributed from the unfused form."
        for first, second in fused(pipeline)
    )


_MODEL_ALONE = "The costs are those of the runtime's model, which cannot tell waiting from working"
_SEVERAL_THREADS = (
    "The kernels of {0} use several threads at once: its CPU time is that of all of them, more than its wall time."
)
