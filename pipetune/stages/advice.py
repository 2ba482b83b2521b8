"""After the trials: advice on the code that consumes the data, for changes that no edit tries or could make."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace

from pipetune.capture import findings, job_processes
from pipetune.capture.coordinator_consumer import CoordinatorConsumer
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.capture.rebuilding import loops_at
from pipetune.core.distribution import FIT, INFERENCE, InputSkew, WorkerInput
from pipetune.core.edits import Rewrite, inserted_caches
from pipetune.core.measurement import Interval, OutOfBudget, RunFailed, Window
from pipetune.core.profile import Diagnosis, Finding, Profile, Verdict
from pipetune.core.time_plan import STEPS_PER_CALL, SystemClock
from pipetune.distributed.verify import original
from pipetune.lint.consumer_advice import (
    STEPS_TRIED,
    CallGains,
    advise_steps_per_execution,
    advise_steps_per_schedule,
    layers_in_maps,
    python_calls_in_maps,
    selections_in_maps,
    steps_are_small,
    wait_between_epochs,
)
from pipetune.measure.memory import measure_padding
from pipetune.model.segments import upstream_of_cache
from pipetune.rewrites.cache import suggest_building_once, suggest_caching_sources, suggest_larger_shuffle
from pipetune.rewrites.decode_and_crop import suggest_smaller_decoding
from pipetune.rewrites.pad_batches import suggest_length_buckets
from pipetune.rewrites.parallel_map import suggest_python_alternatives
from pipetune.rewrites.rule import RuleContext
from pipetune.rewrites.where_to_cond import propose as propose_branches
from pipetune.search.statistics import ratio_interval
from pipetune.stages.profiling import ORIGINAL
from pipetune.stages.study import Study, rule_context

_FEWEST_PAIRS, _MOST_PAIRS = 4, 8
_FEWEST_SECONDS = 1.0  # by judgement: in less, too few rounds of every number of steps are measured
_WINDOW_SECONDS = 0.25  # of a window with one number of steps, by judgement: shorter is noisier, longer costs rounds
_FEWEST_CALLS = 4  # per window, by judgement: in fewer, a single slow call would dominate
_ERROR = 0.05  # over all intervals against one step per call together

MultiStepConsumer = FitConsumer | CoordinatorConsumer
"""Consumers that train by calling a function, and can temporarily let each call take several steps."""


def advise(study: Study, profile: Profile, diagnosis: Diagnosis) -> None:
    """Measures what the advice needs, where the profile makes it likely; stores the advice in the session."""
    journal = study.journal
    if not journal.studies_training:
        return
    found: list[Finding] = []
    if diagnosis.verdict is not Verdict.NOT_INPUT_BOUND:
        pipeline = study.subject.source.pipeline
        branches = propose_branches(RuleContext(study.annotated_pipeline))
        rewritten = {proposal.node for proposal in branches if isinstance(proposal, Rewrite)}
        found += layers_in_maps(pipeline, profile)
        found += selections_in_maps(pipeline, profile, rewritten=rewritten)
        found += python_calls_in_maps(study.annotated_pipeline, profile)
        measured = rule_context(study, study.runner.profile or profile, diagnosis)
        plan, tuned = journal.result.plan, journal.result.tuned
        cached = upstream_of_cache(tuned) if tuned is not None else ()
        found += suggest_python_alternatives(measured, cached=cached)
        if plan is None or not inserted_caches(plan.edits):
            for suggest in (suggest_building_once, suggest_caching_sources, suggest_larger_shuffle):
                found += suggest(measured)
        profiled = RuleContext(study.annotated_pipeline, profile=study.runner.profile)
        found += dict.fromkeys(suggest_smaller_decoding(profiled, cached=cached))  # one for all maps of a call
    found += _padding_advice(study, study.runner.profile or profile, diagnosis)
    found += filter(None, (_wait_between_epochs(study, profile), _steps_in_one_call(study, profile)))
    journal.update(advice=(*journal.session.advice, *found))


def _padding_advice(study: Study, profile: Profile, diagnosis: Diagnosis) -> Iterator[Finding]:
    """Yields advice on padding that the model computes on, whether or not the input keeps up."""
    with study.runner.measuring():
        padding = measure_padding(study.subject.source, profile.cardinality or {})
    if not padding:
        return
    operators = tuple(replace(one, padding=padding.get(one.node)) for one in profile.operators)
    yield from suggest_length_buckets(rule_context(study, replace(profile, operators=operators), diagnosis))


def _wait_between_epochs(study: Study, profile: Profile) -> Finding | None:
    use = study.subject.use
    by_keras = use.consumer_call in (FIT, *INFERENCE)  # each call makes an iterator of its own
    in_loop = not by_keras and any(map(loops_at, use.call_path))
    return wait_between_epochs(
        study.subject.source.pipeline,
        profile,
        epochs=use.epochs or (2 if in_loop else 1),
        steps=use.steps_per_epoch,
        by_fit=use.consumer_call == FIT,
        file=use.file,
        line=use.line,
    )


def _steps_in_one_call(study: Study, profile: Profile) -> Finding | None:
    consumer, settings = study.subject.consumer, study.settings
    seconds = study.time_plan.seconds_for(STEPS_PER_CALL)
    if not settings.trials or settings.quick or seconds < _FEWEST_SECONDS:
        return None
    handover = study.journal.result.handover
    if not steps_are_small(profile.consumer, under_a_strategy=handover is not None):
        return None
    if not isinstance(consumer, MultiStepConsumer) or not consumer.accepts_multi_step_calls:
        return None
    with study.journal.phase("advice", "trying several training steps in one call"):
        try:
            measured = _measure(study, consumer, profile.consumer.bound_seconds or 0.0, seconds=seconds)
        except OutOfBudget:
            return None
        except RunFailed as failure:  # Keras 3 cannot do it with two replicas of a strategy
            study.journal.add_notes(f"Running several training steps per call could not be tested: {failure}")
            return None
    use = study.subject.use
    strategy = handover.strategy if handover is not None else ""
    if isinstance(consumer, CoordinatorConsumer):
        call, workers = consumer.scheduled, consumer.workers
        return advise_steps_per_schedule(measured, workers=workers, by_fit=call.by_fit, file=call.file, line=call.line)
    return advise_steps_per_execution(measured, strategy=strategy, file=use.file, line=use.line)


def _measure(study: Study, consumer: MultiStepConsumer, step_seconds: float, *, seconds: float) -> CallGains:
    """Measures the gains of several steps per call on one cached batch, in rounds of one window each, rotating."""
    most = max(STEPS_TRIED)
    calls = max(_FEWEST_CALLS, math.ceil(_WINDOW_SECONDS / (step_seconds * most)))
    for number in STEPS_TRIED:
        _step_seconds(study, consumer, number, steps=number)  # traces it
    rounds: list[dict[int, float]] = []
    clock = SystemClock()
    end = clock.now() + seconds
    while len(rounds) < _FEWEST_PAIRS or (len(rounds) < _MOST_PAIRS and clock.now() < end):
        counts = [1, *STEPS_TRIED]
        turn = len(rounds) % len(counts)
        order = [*counts[turn:], *counts[:turn]]
        rounds.append({number: _step_seconds(study, consumer, number, steps=calls * most) for number in order})

    def gain(number: int, over: int) -> Interval:
        return ratio_interval([one[over] / one[number] for one in rounds], error=_ERROR / len(STEPS_TRIED))

    *_, fewer, _ = STEPS_TRIED
    return CallGains(
        {number: statistics.median(one[number] for one in rounds) for number in (1, *STEPS_TRIED)},
        {number: gain(number, 1) for number in STEPS_TRIED},
        gain(most, fewer),
    )


def _step_seconds(study: Study, consumer: MultiStepConsumer, number: int, *, steps: int) -> float:
    """Returns the seconds per step with `number` steps per call."""
    with consumer.multi_step_calls(number) if number > 1 else contextlib.nullcontext():
        return study.runner.bound_window(steps=steps).step_seconds


_CODES = frozenset(
    {"unsharded-workers", "data-left-out", "data-repeated", "too-few-files", "idle-workers", "uneven-workers",
     "read-by-all-workers", "shuffled-apart"}
)  # fmt: skip


def count_worker_shares(study: Study) -> None:
    """Counts what each worker gets of the training data of the unchanged script; the warnings include the counts."""
    journal, subject = study.journal, study.subject
    if not journal.studies_training:
        return
    job = job_processes.job_of(subject.use)
    if job is None:
        return
    counting = f"counting the data that each of {job.workers} workers gets"
    with journal.phase("division", counting), study.runner.measuring():
        found = original.measure_worker_coverage(subject.source, job)
    division = findings.find_in_division(subject.source, subject.use, found)
    earlier = [one for one in journal.session.findings if one.code not in _CODES]
    journal.update_dataset(as_written=found)
    journal.update(findings=tuple(dict.fromkeys((*earlier, *division))))


_ROUNDS = 3  # windows per worker, by judgement: more cost time on all workers, fewer show no spread
_SECONDS, _QUICK_SECONDS = 0.4, 0.1  # of a window
_WARMUP_SECONDS = 0.1  # before a window, by judgement: less would measure buffers that are still filling


def compare_inputs(study: Study) -> None:
    """Measures the workers' inputs, one worker at a time while the rest wait; does nothing without other workers.

    Measures in rounds: with a single measurement each, workers would be compared at different moments of the machine.
    """
    team, journal = study.team, study.journal
    if team is None:
        return
    seconds = _QUICK_SECONDS if study.settings.quick else _SECONDS
    windows: list[list[Window]] = [[] for _ in range(len(team))]
    reasons = [""] * len(team)
    with journal.phase("skew", f"measuring the input of each of {len(team)} workers"):
        for _ in range(_ROUNDS):
            for worker in range(len(team)):
                if reasons[worker]:
                    continue
                try:
                    windows[worker].append(_window(study, worker, seconds))
                except RunFailed as failure:
                    reasons[worker] = str(failure)
    inputs = (_input(worker, *one) for worker, one in enumerate(zip(windows, reasons, strict=True)))
    journal.update_dataset(skew=InputSkew(tuple(inputs)))
    if study.existing_cluster:
        return
    journal.add_notes(
        f"{len(team)} workers share the {study.cores} cores of this machine: with one machine per worker, a "
        "step would be shorter, and another plan might be best."
    )


def _window(study: Study, worker: int, seconds: float) -> Window:
    if worker == 0:
        return study.runner.input_window(ORIGINAL, seconds=seconds, warmup_seconds=_WARMUP_SECONDS)
    assert study.team is not None
    return study.team.measure_input(worker, seconds=seconds, warmup_seconds=_WARMUP_SECONDS)


def _input(worker: int, windows: list[Window], why: str) -> WorkerInput:
    if why or not windows:
        return WorkerInput(worker, why=why)
    each = tuple(window.step_seconds for window in windows)
    return WorkerInput(worker, each, statistics.median(window.first_seconds for window in windows))
