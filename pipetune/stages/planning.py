"""Step 3: the rules propose, the search measures; the result is one proven plan or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median

from pipetune.capture import findings
from pipetune.core.edits import Consent, Plan, Rewrite, SetArgument, inserted_caches
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import Rate
from pipetune.core.pipeline import AUTOTUNE, Pipeline
from pipetune.core.profile import Diagnosis, Profile, Verdict
from pipetune.core.results import Prediction, Trial
from pipetune.core.storage import description, tfds_reads
from pipetune.core.time_plan import (
    BATCH_COSTS,
    ELEMENT_COUNT,
    GENERATOR_COUNT,
    READ_AGAIN,
    RUNTIME_OVERHEADS,
    VARIANT_COSTS,
)
from pipetune.equality.compare import differs_when_read_again
from pipetune.measure.epochs import measure_next, measure_overheads
from pipetune.measure.variant_costs import RemainingShares, measure_batch_costs, measure_shares
from pipetune.model.bottleneck import diagnose, what_if
from pipetune.model.throughput import predict_examples
from pipetune.pipelines import call_sites, resume_points
from pipetune.pipelines.element_counting import count_elements
from pipetune.rewrites import baselines, freeze_autotune, propose_all
from pipetune.rewrites.cache import stores_no_more_work
from pipetune.rewrites.conflicts import find_conflict
from pipetune.rewrites.rule import RuleContext, runs_python, tensorflow_parallelizes
from pipetune.search.meter import EarlierWindows
from pipetune.search.race import EarlierRace, earlier_race
from pipetune.search.result import SearchResult
from pipetune.search.search import search
from pipetune.search.state import SearchState
from pipetune.source.emit import emit
from pipetune.source.source_mistakes import dropped_results
from pipetune.stages.dataset_costs import VALIDATION_SHARE, validation_costs_much
from pipetune.stages.profiling import store_autotuned, watch_autotune
from pipetune.stages.study import Study, reads_along, rule_context


@dataclass(frozen=True)
class PlanningResult:
    """The result of the search, and the baselines it was measured against."""

    result: SearchResult
    baselines: dict[str, Plan]
    earlier: tuple[Trial, ...]  # of datasets studied before


def baselines_of(study: Study, *, allow: Collection[Consent] | None = None) -> dict[str, Plan]:
    """Returns the baselines of every gain; the one with AUTOTUNE everywhere is limited to the available cores.

    It is limited to what the user allows, too; None as `allow` stands for that.
    """
    pipeline, machine = study.subject.source.pipeline, study.machine
    known = RuleContext(
        pipeline,
        cores=study.cores,
        serial_cycle_length=machine.cores_affinity,
        detected_cores=machine.cores_detected,
    )
    return {
        "off": baselines.off_plan(pipeline),
        "defaults": Plan("defaults"),
        "autotune": baselines.autotune_plan(known, allow=study.settings.allow if allow is None else allow),
    }


def complete_profile(study: Study, profile: Profile) -> Profile:
    """Returns the profile with what plans are priced by: elements per epoch, function variants, overheads."""
    source, annotated = study.runner.cut.source, study.annotated_pipeline
    with study.runner.measuring():
        study.journal.report_progress("counting the elements of an epoch")
        by_python = Consent.PYTHON_CACHE in study.settings.allow and any(map(runs_python, annotated))
        limit_seconds = study.time_plan.seconds_for(GENERATOR_COUNT if by_python else ELEMENT_COUNT)
        cardinality = count_elements(study.subject.source, limit_seconds=limit_seconds, known=profile.cardinality)
        study.journal.report_progress("measuring the overhead of the tf.data runtime")
        overheads = measure_overheads(study.cores, seconds=study.time_plan.seconds_for(RUNTIME_OVERHEADS))
        if (taking := measure_next(source.dataset.element_spec)) is not None:
            overheads = replace(overheads, next_seconds=taking)
        study.journal.report_progress("measuring what rewritten functions cost")
        on_batch = measure_batch_costs(source, annotated, profile, seconds=study.time_plan.seconds_for(BATCH_COSTS))
        shares = measure_shares(source, annotated, profile, seconds=study.time_plan.seconds_for(VARIANT_COSTS))
        read_again = [node.id for node in annotated if runs_python(node)]
        if read_again:
            study.journal.report_progress("reading what Python returns a second time")
        seconds = study.time_plan.seconds_for(READ_AGAIN)
        varying = {name for name in read_again if differs_when_read_again(source.datasets[name], seconds=seconds)}
    operators = []
    for operator in profile.operators:
        share = shares.get(operator.node, RemainingShares())
        operators.append(
            replace(
                operator,
                varies=operator.node in varying,
                on_batch_seconds=on_batch.get(operator.node),
                variant_shares=share.variants,
                shrinking_share=share.shrinking,
                head_share=share.head,
            )
        )
    profile = replace(profile, operators=tuple(operators), cardinality=cardinality, overheads=overheads)
    return study.store_profile(profile)


def find_plan(study: Study, profile: Profile, diagnosis: Diagnosis) -> PlanningResult:
    """Returns the result of searching within the user's budget; every trial is in the session once it has ended."""
    profile = complete_profile(study, profile)
    if validation_costs_much(study, profile, diagnosis):
        shares = (result.share or 0.0 for result in study.journal.session.datasets)
        study.time_plan.reserve_for_validation(without_plan=max(shares) >= VALIDATION_SHARE)
    watch_autotune(study)
    context = rule_context(study, profile, diagnosis)
    proposed, silences = propose_all(context)
    candidates = [rewrite for rewrite in proposed if rewrite.rule not in study.settings.without]
    variants = baselines_of(study)
    with_patch = study.journal.studies_training and study.patch_is_verified
    little = diagnosis.verdict is Verdict.BALANCED and not study.settings.force
    if little:
        study.time_plan.shorten_search()
    with study.journal.phase("trials", "taking the first windows"):
        study.journal.update_dataset(silences=tuple(silences))
        earlier = study.journal.session.trials
        state = SearchState(
            candidates,
            study.runner,
            baselines=variants,
            settings=study.settings,
            randomness_fixed=context.randomness_fixed,
            memory_limit_bytes=study.memory_limit_bytes,
            budget=study.time_plan,
            notify=study.journal.notify,
            expected=lambda plan: _predict(study, profile, plan),
            failed=study.failed,
            conflict=lambda rewrites: find_conflict(context, rewrites),
            only_promising=little,
            most_gain=lambda prediction: _most_gain(study, profile, diagnosis, prediction),
            cpu_share=lambda prediction: _cpu_share(study, profile, prediction),
            wait_share=diagnosis.wait_share,
            bound_seconds=profile.consumer.bound_seconds,
            expressible=lambda one: _can_express(study, one, candidates) if with_patch else True,
            is_above_cache=lambda one, plan: _is_above_cache(study.subject.source.pipeline, one, plan),
            stores_no_more_work=lambda one, plan: stores_no_more_work(study.subject.source.pipeline, one, plan),
            earlier=_earlier_windows(study, profile),
            proven_alone=frozenset(one.key for one in candidates if replaces_autotune(one, context)),
        )
        found = search(state, earlier=_race_to_resume(study))
        store_autotuned(study, variants)
        rates = {**study.journal.result.rates, **_with_own_buffers(found.rates, profile)}
        study.journal.update_dataset(
            rates=rates,
            offered=found.offers,
            rejected=found.rejections,
            gains=found.gains,
            predictions=found.predictions,
        )
        why = () if found.chosen else (found.why,)  # a plan is announced once it is proven
        study.journal.add_notes(*why, *found.notes, trials=(*earlier, *found.trials))
    return PlanningResult(found, variants, earlier)


def _can_express(study: Study, rewrite: Rewrite, candidates: Sequence[Rewrite]) -> bool:
    """Whether the source can express a rewrite without a change of the script's other datasets.

    Alone, or with the same rewrite of the other operators that its call makes.
    """
    pipeline, others = study.subject.source.pipeline, study.subject.other_datasets
    alike = [one for one in candidates if one.rule == rewrite.rule and one.node != rewrite.node]
    for rewrites in ((rewrite,), *([(rewrite, *alike)] if alike else [])):
        plan = Plan("tuned", rewrites)
        beside = [one.pipeline for one, use in others if not reads_along(plan, pipeline, one.pipeline, use)]
        if rewrite.key in emit(pipeline, plan, other_pipelines=beside).covered:
            return True
    return False


def _is_above_cache(pipeline: Pipeline, rewrite: Rewrite, plan: Plan) -> bool:
    """Whether a rewrite of a plan changes only what is upstream of a cache that another one inserts."""
    for other in plan.rewrites:
        for cache in inserted_caches(other.edits) if other.key != rewrite.key else ():
            place = cache.after if cache.after in pipeline else other.node
            if rewrite.node == place or any(node.id == rewrite.node for node in pipeline.upstream(place)):
                return True
    return False


def _earlier_windows(study: Study, profile: Profile) -> EarlierWindows | None:
    step, around = profile.consumer.real_seconds, study.runner.seconds_around
    steps, alone = around["training"], around["input"]
    return EarlierWindows(step, median(steps), median(alone)) if step and steps and alone else None


def _race_to_resume(study: Study) -> EarlierRace | None:
    before = study.resumed
    if before is None or not study.journal.studies_training:
        return None
    return earlier_race(before.candidate, before.trials, resumptions=before.command.resumed)


def _most_gain(study: Study, profile: Profile, diagnosis: Diagnosis, prediction: Prediction) -> float | None:
    """Returns what training could gain at most with a plan of which this is predicted; None if unknown.

    A step cannot be shorter than without any wait, nor than what input and model take of all processors they share.
    That is what a step takes as written, with the difference that the plan makes: its CPU time was measured in the same
    windows as its length, so that processors that were slower then are so in both. Or, if less, the sum of input and
    model alone. Both may contain threads that look for work while they are idle.
    """
    share, consumer = diagnosis.wait_share, profile.consumer
    if share is None:
        return None
    limit = 1 / (1 - min(share.high, 0.99))
    per_example = prediction.cpu_seconds_per_example
    if not study.runner.shares_processors or per_example is None or not consumer.real_seconds:
        return limit
    planned = per_example * profile.examples_per_element
    busy = planned + (consumer.bound_cpu_seconds or 0.0)
    original = _predict(study, profile, Plan("defaults")).cpu_seconds_per_example
    if consumer.real_cpu_seconds is not None and original is not None:
        busy = min(busy, consumer.real_cpu_seconds + planned - original * profile.examples_per_element)
    return min(limit, max(1.0, consumer.real_seconds * study.cores / busy)) if busy > 0 else limit


def _cpu_share(study: Study, profile: Profile, prediction: Prediction) -> float | None:
    """Returns what an input of which this is predicted takes of all processors while training never waits.

    None if the model does not train on these processors, or if it is unknown. A step that never waits still takes
    longer beside an input that is busy: in four scripts whose input can be faster than the model, steps took 9 to 19 %
    less time with a cache than where batches were gathered or parsed anew (`examples/decisions`, by the stopwatch).
    """
    per_example, step = prediction.cpu_seconds_per_example, profile.consumer.bound_seconds
    if not study.runner.shares_processors or per_example is None or not step:
        return None
    return per_example * profile.examples_per_element / (study.cores * step)


def replaces_autotune(rewrite: Rewrite, context: RuleContext) -> bool:
    """Whether the rewrite sets a value that the author, or TensorFlow's own passes, leave to AUTOTUNE."""
    if rewrite.rule == freeze_autotune.NAME:
        return True
    for edit in rewrite.edits:
        if not isinstance(edit, SetArgument) or edit.value == AUTOTUNE or edit.node not in context.pipeline:
            continue
        node = context.pipeline[edit.node]
        by_passes = edit.name == "num_parallel_calls" and tensorflow_parallelizes(node, context)
        if node.argument(edit.name) == AUTOTUNE or by_passes:
            return True
    return False


def _predict(study: Study, profile: Profile, plan: Plan) -> Prediction:
    try:
        return predict_examples(study.runner.edited(plan), profile, study.cores)
    except PipetuneError as problem:  # edits that cannot be applied together
        return Prediction(why=problem.message)


def _with_own_buffers(rates: Mapping[str, Rate], profile: Profile) -> dict[str, Rate]:
    """Returns the rates of the baselines; memory and first batch are those measured before any trial.

    Windows of the search have smaller shuffle buffers than the script's where those take long to fill.
    """
    found = profile.with_own_first_batch(rates) if profile.cut_buffers else dict(rates)
    if "defaults" in found:
        found["defaults"] = replace(found["defaults"], peak_rss_mib=profile.peak_rss_mib)
    return found


def note_tfds_reads(study: Study) -> None:
    """Adds a note for every call of TensorFlow Datasets in the studied pipeline."""
    if not study.journal.studies_training:
        return
    pipeline = study.subject.source.pipeline
    study.journal.add_notes(*dict.fromkeys(description(pipeline, reading) for reading in tfds_reads(pipeline)))


def give_verdict(study: Study, profile: Profile) -> Diagnosis:
    """Returns the diagnosis, stores it in the session and reports it to the listener."""
    journal, subject = study.journal, study.subject
    diagnosis = diagnose(subject.source.pipeline, profile, study.machine, study.settings)
    found = findings.find(subject.source, subject.use, subject.other_datasets, profile=profile)
    if journal.studies_training:
        found += resume_points.findings(subject.resuming, subject.source.pipeline)
        found += dropped_results(call_sites.call_sites())
    journal.add_findings(found)
    journal.update_dataset(diagnosis=diagnosis)
    if journal.studies_training:
        journal.report_verdict(diagnosis)
    return diagnosis


def should_run_trials(study: Study, diagnosis: Diagnosis) -> bool:
    """Whether to run trials: not if disabled, nor (unless forced) if a faster input cannot speed up training."""
    if not study.settings.trials:
        return False
    return study.settings.force or diagnosis.verdict is not Verdict.NOT_INPUT_BOUND


def predict_what_if(study: Study, profile: Profile, diagnosis: Diagnosis, plan: Plan | None) -> None:
    """Stores the what-if table in the session, for the tuned pipeline, or without a plan for the original one."""
    pipeline = study.runner.edited(plan) if plan is not None else study.subject.source.pipeline
    step = study.settings.step_time_seconds or profile.consumer.bound_seconds
    table = what_if(
        pipeline,
        profile,
        study.cores,
        step_seconds=step,
        storage_bytes_per_second=profile.files.storage_bytes_per_second if profile.files is not None else None,
        larger_memory_pipelines=_with_memory(study, profile, diagnosis, plan or Plan("defaults")),
    )
    study.journal.update_dataset(what_if=table)


def _with_memory(study: Study, profile: Profile, diagnosis: Diagnosis, plan: Plan) -> tuple[Pipeline, ...]:
    """Returns the plan's pipeline with one more rewrite each: those permitted that fit only in twice the memory."""
    here = rule_context(study, profile, diagnosis)
    there = replace(here, memory_limit_bytes=2 * here.memory_limit_bytes)
    fitting = {rewrite.key for rewrite in propose_all(here)[0]}
    found = []
    for rewrite in propose_all(there)[0]:
        missing = study.settings.missing(rewrite.consents, randomness_fixed=here.randomness_fixed)
        if not missing and rewrite.key not in fitting:
            with suppress(PipetuneError):  # it conflicts with what the plan changes
                found.append(study.runner.edited(plan.with_rewrite(rewrite)))
    return tuple(found)
