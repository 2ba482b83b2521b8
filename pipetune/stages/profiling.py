"""Step 1: the cost of each operator, and how input and model share a training step."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.edits import Plan
from pipetune.core.measurement import Interval, Rate, RunFailed
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.core.session import Training
from pipetune.search.runner import SystemClock
from pipetune.search.stall import Stall, measure_stall
from pipetune.stages.study import Study
from pipetune.tf.measure import machine, profiler

AS_WRITTEN = Plan("defaults")

_INPUT_SECONDS = 1.0
_COST_SECONDS = 1.5
_MOST_STEPS, _MOST_LOOP_STEPS = 500, 60  # a loop may end after a few hundred steps
_QUICK = 0.2  # share of the usual time that a quick profile takes
_CONTENTION = 3.0  # how many times slower than alone the input may get when it shares cores with the model
_STALL_SECONDS = 12.0  # the verdict should be known 20 s after the first training step


def take_profile(study: Study) -> Profile:
    """Profiles the original pipeline and its consumer; stores the profile in the session.

    Raises:
        RunFailed: the pipeline cannot be run at all.
    """
    journal, runner = study.journal, study.runner
    part = _QUICK if study.settings.quick else 1.0
    with journal.phase("profile", "measuring the input alone"):
        # Memory first: the process keeps what later trials allocate.
        level = study.resident_bytes
        counted = machine.reset_peak_rss()
        alone = runner.input_window(AS_WRITTEN, seconds=part * _INPUT_SECONDS, warmup_seconds=0.3)
        peak_mib = max(0.0, machine.peak_rss_bytes() - level) / 2**20 if counted else None
        journal.say("reading the cost of each operator")
        runner.make_cold()
        costs = profiler.profile_input(study.subject.source, seconds=part * _COST_SECONDS)
        runner.restore()
    with journal.phase("verdict", "comparing the training step with one cached batch"):
        consumer = _consumer_profile(study, alone.step_seconds)
    output = study.subject.source.pipeline.output
    by_node = {operator.node: operator for operator in costs.operators}
    profile = Profile(
        operators=costs.operators,
        consumer=consumer,
        examples_per_element=runner.examples_per_element,
        element_bytes=by_node[output.id].bytes_out,
        input_cpu_seconds=costs.cpu_seconds,
        input_wall_seconds=costs.wall_seconds,
        first_element_seconds=alone.first_seconds,
        peak_rss_mib=peak_mib,
        notes=(*costs.notes, *runner.notes),
        intervals=tuple(round(seconds, 7) for seconds in alone.intervals),
    )
    runner.profile = profile
    if journal.session.training is None:
        journal.update(training=_as_written(consumer))
    rate = Rate(
        examples_per_second=alone.examples_per_second,
        batches_per_second=1 / alone.step_seconds,
        cpu_us_per_example=alone.cpu_seconds_per_example * 1e6,
        first_batch_seconds=alone.first_seconds,
        peak_rss_mib=peak_mib,
    )
    journal.dataset(profile=profile, rates={"defaults": rate})
    return profile


def _as_written(consumer: ConsumerProfile) -> Training:
    """Returns the training step as measured before any trial, or why it was not."""
    real, bound = consumer.real_seconds, consumer.bound_seconds
    return Training(
        defaults_step_ms=None if real is None else 1000 * real,
        bound_step_ms=None if bound is None else 1000 * bound,
        why=consumer.why,
    )


def _bounded(share: Interval, *, most: float) -> Interval:
    """Returns the wait share, limited to what an input that never overlaps with the step could cause.

    If the whole interval lies above that limit, something else made the real step longer than the one on a repeated
    batch (batches of other shapes, other work): the wait is anything up to the limit.
    """
    if share.high <= most:
        return share
    return replace(
        share,
        median=min(share.median, most),
        low=share.low if share.low < most else 0.0,
        high=most,
        method=f"{share.method}; at most {_CONTENTION:g} times what the input takes alone",
    )


def _consumer_profile(study: Study, input_seconds: float) -> ConsumerProfile:
    consumer, runner = study.subject.consumer, study.runner
    if not runner.trains:
        return ConsumerProfile(kind=consumer.kind, input_seconds=input_seconds, why=consumer.sentence)
    try:
        stall: Stall = measure_stall(
            lambda steps: runner.training_window(AS_WRITTEN, steps=steps),
            lambda steps: runner.bound_window(steps=steps),
            clock=SystemClock(),
            limit_seconds=_STALL_SECONDS * (_QUICK if study.settings.quick else 1.0),
            most_steps=_MOST_LOOP_STEPS if consumer.kind == "loop" else _MOST_STEPS,
            window_seconds=0.15 if study.settings.quick else 0.7,
            seed=study.settings.seed,
            steps=study.settings.steps,
        )
    except RunFailed as failure:
        return ConsumerProfile(kind=consumer.kind, input_seconds=input_seconds, why=str(failure))
    share = _bounded(stall.share, most=_CONTENTION * input_seconds / stall.real_seconds)
    return ConsumerProfile(
        kind=consumer.kind,
        real_seconds=stall.real_seconds,
        bound_seconds=stall.bound_seconds,
        input_seconds=input_seconds,
        wait_share=share,
        bound_cpu_seconds=stall.bound_cpu_seconds or None,
    )
