"""Step 3: the rules propose, the search measures; the result is one proven plan or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipetune import rules
from pipetune.core.autotuned import PARALLELISM, AutotuneReading
from pipetune.core.edits import Plan, Rewrite, SetArgument
from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine
from pipetune.core.measurement import Rate, Trial
from pipetune.core.pipeline import AUTOTUNE, Pipeline
from pipetune.core.prediction import Foreseen
from pipetune.core.profile import Diagnosis, Profile
from pipetune.model.throughput import foresee
from pipetune.rules import baselines, freeze_autotune
from pipetune.rules.base import RuleContext
from pipetune.rules.conflicts import conflict
from pipetune.rules.parallel_map import tensorflow_does_it
from pipetune.search.budget import Budget
from pipetune.search.result import SearchResult
from pipetune.search.runner import SystemClock
from pipetune.search.search import search
from pipetune.stages.own_work import note_autotuned, watch_autotune
from pipetune.stages.study import Study
from pipetune.tf.measure.batch_costs import measure_batch_costs
from pipetune.tf.measure.cropping_costs import measure_cropping_shares, measure_shrinking_shares
from pipetune.tf.measure.cutting_costs import measure_cut_costs
from pipetune.tf.measure.overheads import measure_overheads
from pipetune.tf.pipelines.counting import count_elements

_COUNT_SECONDS = 5.0
_SHARE = 0.025  # of the trial budget, spent in addition to it, to measure the runtime's overheads
_LEAST_OVERHEAD_SECONDS, _MOST_OVERHEAD_SECONDS = 0.4, 2.0


@dataclass(frozen=True)
class Planned:
    """The result of the search, the baselines it was measured against, and its time budget."""

    result: SearchResult
    baselines: dict[str, Plan]
    budget: Budget
    earlier: tuple[Trial, ...]  # of datasets studied before


def facts_of(study: Study, profile: Profile, diagnosis: Diagnosis) -> RuleContext:
    """Returns what the rules may know; the cores that TensorFlow detects are given in addition to those available."""
    pipeline = study.subject.source.pipeline
    autotuned = study.runner.readings.get("defaults")
    return RuleContext(
        pipeline=study.told,
        profile=profile,
        diagnosis=diagnosis,
        cores=study.cores,
        memory_limit_bytes=study.memory_limit_bytes,
        randomness_fixed=study.subject.randomness_fixed,
        partial_read=study.subject.partial_read,
        epochs=study.subject.epochs,
        steps_per_epoch=study.subject.use.steps_per_epoch,
        fingerprint=pipeline.fingerprint,
        cycle_length_in_force=study.machine.cores_affinity,
        cores_believed=study.machine.cores_believed,
        buffers_granted=_buffers_granted(study.machine),
        autotuned=autotuned,
        fused=_run_as(pipeline, autotuned),
        device=study.machine.device,
        iterates_itself=study.subject.consumer.kind in ("loop", "step") and study.subject.use.handed is None,
        resuming=study.subject.resuming,
    )


def _buffers_granted(machine: Machine) -> int | None:
    """Returns half of the memory limit, AUTOTUNE's usual share; None unless it assumes more than the whole limit."""
    counted_on = machine.believed.autotune_buffer_bytes if machine.believed is not None else None
    return machine.memory_limit_bytes // 2 if (counted_on or 0) > machine.memory_limit_bytes else None


def _run_as(pipeline: Pipeline, reading: AutotuneReading | None) -> dict[str, str]:
    """Returns the kernel TensorFlow runs each serial map as, where it was observed: its passes know more than we do.

    A map that was fused with a batch and has no tunable parallelism runs one call at a time.
    """
    seen: dict[str, str] = {}
    for node in pipeline:
        if reading is None or node.op != "map" or node.argument("num_parallel_calls") is not None:
            continue
        kernel, value = reading.kernels.get(node.id), reading.value(node.id, PARALLELISM)
        if kernel is not None:
            seen[node.id] = "ParallelMap" if value is not None and value.tunable else "Map"
    return seen


def baselines_of(study: Study) -> dict[str, Plan]:
    """Returns the baselines of every gain; the one with AUTOTUNE everywhere is limited to the available cores."""
    pipeline, machine = study.subject.source.pipeline, study.machine
    return {
        "off": baselines.off_plan(pipeline),
        "defaults": baselines.defaults_plan(pipeline),
        "autotune": baselines.autotune_plan(
            pipeline, machine.cores_affinity, cores=study.cores, cores_believed=machine.cores_believed
        ),
    }


def completed(study: Study, profile: Profile) -> Profile:
    """Completes the profile with what plans are priced by: elements per epoch, function variants, overheads."""
    study.journal.say("counting the elements of an epoch")
    cardinality = count_elements(study.subject.source, limit_seconds=_COUNT_SECONDS)
    study.journal.say("measuring what the runtime itself takes")
    seconds = min(_MOST_OVERHEAD_SECONDS, max(_LEAST_OVERHEAD_SECONDS, _SHARE * study.settings.budget_seconds))
    overheads = measure_overheads(study.cores, seconds=seconds)
    on_batch = measure_batch_costs(study.subject.source, study.told)
    cropping = measure_cropping_shares(study.subject.source, study.told)
    shrinking = measure_shrinking_shares(study.subject.source, study.told)
    cuts = measure_cut_costs(study.subject.source, study.told)
    study.runner.restore()
    operators = tuple(
        replace(
            one,
            on_batch_seconds=on_batch.get(one.node),
            cropping_share=cropping.get(one.node),
            shrinking_share=shrinking.get(one.node),
            cuts=cuts.get(one.node),
        )
        for one in profile.operators
    )
    profile = replace(profile, operators=operators, cardinality=cardinality, overheads=overheads)
    study.runner.profile = profile
    study.journal.dataset(profile=profile)
    return profile


def find_plan(study: Study, profile: Profile, diagnosis: Diagnosis) -> Planned:
    """Searches for a plan within the user's budget; every trial is in the session as soon as it has ended."""
    profile = completed(study, profile)
    watch_autotune(study)
    context = facts_of(study, profile, diagnosis)
    proposed, silences = rules.propose_all(context)
    candidates = [rewrite for rewrite in proposed if rewrite.rule not in study.settings.without]
    variants = baselines_of(study)
    budget = Budget(study.settings.budget_seconds, SystemClock())
    with study.journal.phase("trials", "measuring the baselines"):
        study.journal.dataset(silences=tuple(silences))
        earlier = study.journal.session.trials
        found = search(
            candidates,
            study.runner,
            baselines=variants,
            settings=study.settings,
            randomness_fixed=context.randomness_fixed,
            memory_limit_bytes=study.memory_limit_bytes,
            budget=budget,
            notify=study.journal.notify,
            expected=lambda plan: _foreseen(study, profile, plan),
            failed=study.failed,
            conflict=lambda rewrites: conflict(context, rewrites),
            proven_alone=frozenset(one.key for one in candidates if replaces_autotune(one, context)),
        )
        note_autotuned(study, variants)
        rates = {**study.journal.result.rates, **_keep_peak(found.rates, profile)}
        study.journal.dataset(
            rates=rates,
            offered=found.offers,
            rejected=found.rejections,
            gains=found.gains,
            predictions=found.predictions,
        )
        why = () if found.chosen else (found.why,)  # a plan is announced once it is proven
        study.journal.update(
            trials=(*earlier, *found.trials), notes=(*study.journal.session.notes, *why, *found.notes)
        )
        if found.seconds_to_most is not None and study.journal.studies_training:
            seconds = {**study.journal.session.seconds, "to_95_percent": round(found.seconds_to_most, 3)}
            study.journal.update(seconds=seconds)
    return Planned(found, variants, budget, earlier)


def replaces_autotune(rewrite: Rewrite, context: RuleContext) -> bool:
    """Whether the rewrite sets a value that the author, or TensorFlow's own passes, leave to AUTOTUNE."""
    if rewrite.rule == freeze_autotune.NAME:
        return True
    for edit in rewrite.edits:
        if not isinstance(edit, SetArgument) or edit.value == AUTOTUNE or edit.node not in context.pipeline:
            continue
        node = context.pipeline[edit.node]
        by_passes = node.op == "map" and edit.name == "num_parallel_calls" and tensorflow_does_it(node, context)
        if node.argument(edit.name) == AUTOTUNE or by_passes:
            return True
    return False


def _foreseen(study: Study, profile: Profile, plan: Plan) -> Foreseen:
    try:
        return foresee(study.runner.edited(plan), profile, study.cores)
    except PipetuneError as problem:  # edits that cannot be applied together
        return Foreseen(why=problem.message)


def _keep_peak(rates: Mapping[str, Rate], profile: Profile) -> dict[str, Rate]:
    """Returns the rates of the baselines; the peak memory of the defaults is the one measured before any trial."""
    return {
        name: replace(rate, peak_rss_mib=profile.peak_rss_mib) if name == "defaults" else rate
        for name, rate in rates.items()
    }
