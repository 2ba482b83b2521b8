"""Before the trials: advice on what consumes the data, where no edit is tried or none could follow it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import Rewrite
from pipetune.core.measurement import Interval, OutOfBudget, RunFailed
from pipetune.core.profile import Diagnosis, Finding, Profile, Verdict
from pipetune.model.consumer_advice import STEPS_IN_ONE_CALL, layers_in_maps, several_steps, steps_are_small
from pipetune.rules import bucket_batches
from pipetune.search.runner import SystemClock
from pipetune.search.statistics import ratio_interval
from pipetune.stages.planning import facts_of
from pipetune.stages.study import Study
from pipetune.stages.verdict import worth_trials
from pipetune.tf.measure.padding import measure_padding
from pipetune.tf.script.fit_consumer import FitConsumer

_FEWEST_PAIRS, _MOST_PAIRS = 4, 8
_SHARE, _FEWEST_SECONDS, _MOST_SECONDS = 0.05, 1.0, 4.0  # of the budget for trials, taken on top of it
_WINDOW_SECONDS = 0.25
_FEWEST_CALLS = 4


def advise(study: Study, profile: Profile, diagnosis: Diagnosis) -> None:
    """Measures what advice needs, where what is known already makes it likely; the advice is in the session."""
    journal = study.journal
    if not journal.studies_training:
        return
    found: list[Finding] = []
    if diagnosis.verdict is not Verdict.NOT_INPUT_BOUND:
        found += layers_in_maps(study.subject.source.pipeline, profile)
    if not worth_trials(study, diagnosis):
        found += _batches_by_length(study, profile, diagnosis)
    advice = _steps_in_one_call(study, profile)
    if advice is not None:
        found.append(advice)
    journal.update(advice=(*journal.session.advice, *found))


def _batches_by_length(study: Study, profile: Profile, diagnosis: Diagnosis) -> Iterator[Finding]:
    """Padding that the model works on, whether the input keeps up or not: without trials no rule would speak of it."""
    padding = measure_padding(study.subject.source, {})
    study.runner.restore()
    if not padding:
        return
    operators = tuple(replace(one, padding=padding.get(one.node)) for one in profile.operators)
    context = facts_of(study, replace(profile, operators=operators), diagnosis)
    for proposal in bucket_batches.RULE.propose(context):
        if isinstance(proposal, Rewrite):
            place = context.pipeline[proposal.node].location
            yield Finding(
                code=proposal.rule,
                message=proposal.summary,
                hint="`pipetune analyze --force --allow reorder` tries it: it is another order of the elements.",
                file=place.file if place else None,
                line=place.line if place else None,
            )


def _steps_in_one_call(study: Study, profile: Profile) -> Finding | None:
    consumer, settings = study.subject.consumer, study.settings
    seconds = min(_MOST_SECONDS, _SHARE * settings.budget_seconds)
    if not settings.trials or settings.quick or seconds < _FEWEST_SECONDS:
        return None
    if not steps_are_small(profile.consumer):
        return None
    if not isinstance(consumer, FitConsumer) or not consumer.takes_one_step_a_call:
        return None
    with study.journal.phase("advice", "trying several training steps in one call"):
        try:
            gain, one, several = _measure(study, consumer, profile.consumer.bound_seconds or 0.0, seconds=seconds)
        except (RunFailed, OutOfBudget):
            return None  # a model that cannot be called so gets no such advice
    use = study.subject.use
    return several_steps(gain, one_seconds=one, several_seconds=several, file=use.file, line=use.line)


def _measure(
    study: Study, consumer: FitConsumer, step_seconds: float, *, seconds: float
) -> tuple[Interval, float, float]:
    """The gain of several steps in a call on one cached batch, and the seconds of a step both ways."""
    runner = study.runner
    calls = max(_FEWEST_CALLS, math.ceil(_WINDOW_SECONDS / (step_seconds * STEPS_IN_ONE_CALL)))
    steps = calls * STEPS_IN_ONE_CALL
    with consumer.several_steps(STEPS_IN_ONE_CALL):
        runner.bound_window(steps=STEPS_IN_ONE_CALL)  # traces it
    ones: list[float] = []
    severals: list[float] = []
    clock = SystemClock()
    end = clock.now() + seconds
    while len(ones) < _FEWEST_PAIRS or (len(ones) < _MOST_PAIRS and clock.now() < end):
        for several in (False, True) if len(ones) % 2 else (True, False):
            if several:
                with consumer.several_steps(STEPS_IN_ONE_CALL):
                    severals.append(runner.bound_window(steps=steps).step_seconds)
            else:
                ones.append(runner.bound_window(steps=steps).step_seconds)
    gain = ratio_interval([one / several for one, several in zip(ones, severals, strict=True)])
    return gain, statistics.median(ones), statistics.median(severals)
