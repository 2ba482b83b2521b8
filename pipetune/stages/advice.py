"""After the trials: advice on the code that consumes the data, for changes that no edit tries or could make."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.measurement import Interval, OutOfBudget, RunFailed
from pipetune.core.profile import Diagnosis, Finding, Profile, Verdict
from pipetune.model.consumer_advice import (
    STEPS_TRIED,
    CallGains,
    layers_in_maps,
    several_scheduled,
    several_steps,
    steps_are_small,
)
from pipetune.rules.base import RuleContext
from pipetune.rules.bucket_batches import length_buckets
from pipetune.rules.decode_smaller import smaller_decoding
from pipetune.rules.python_ceiling import slow_generators
from pipetune.search.runner import SystemClock
from pipetune.search.statistics import ratio_interval
from pipetune.stages.planning import facts_of
from pipetune.stages.study import Study
from pipetune.tf.measure.padding import measure_padding
from pipetune.tf.script.coordinator_consumer import CoordinatorConsumer
from pipetune.tf.script.fit_consumer import FitConsumer

_FEWEST_PAIRS, _MOST_PAIRS = 4, 8
_SHARE, _FEWEST_SECONDS, _MOST_SECONDS = 0.08, 1.0, 6.0  # of the trial budget, spent in addition to it
_WINDOW_SECONDS = 0.25
_FEWEST_CALLS = 4
_ERROR = 0.05  # over all intervals against one step per call together

SeveralSteps = FitConsumer | CoordinatorConsumer
"""Consumers that train by calling a function, and can temporarily let each call take several steps."""


def advise(study: Study, profile: Profile, diagnosis: Diagnosis) -> None:
    """Measures what the advice needs, where the profile makes it likely; stores the advice in the session."""
    journal = study.journal
    if not journal.studies_training:
        return
    found: list[Finding] = []
    if diagnosis.verdict is not Verdict.NOT_INPUT_BOUND:
        found += layers_in_maps(study.subject.source.pipeline, profile)
        found += slow_generators(RuleContext(study.subject.source.pipeline, profile=profile))
        found += smaller_decoding(RuleContext(study.told, profile=study.runner.profile))
    found += _batches_by_length(study, study.runner.profile or profile, diagnosis)
    advice = _steps_in_one_call(study, profile)
    if advice is not None:
        found.append(advice)
    journal.update(advice=(*journal.session.advice, *found))


def _batches_by_length(study: Study, profile: Profile, diagnosis: Diagnosis) -> Iterator[Finding]:
    """Yields advice on padding that the model computes on, whether or not the input keeps up."""
    padding = measure_padding(study.subject.source, profile.cardinality or {})
    study.runner.restore()
    if not padding:
        return
    operators = tuple(replace(one, padding=padding.get(one.node)) for one in profile.operators)
    yield from length_buckets(facts_of(study, replace(profile, operators=operators), diagnosis))


def _steps_in_one_call(study: Study, profile: Profile) -> Finding | None:
    consumer, settings = study.subject.consumer, study.settings
    seconds = min(_MOST_SECONDS, _SHARE * settings.budget_seconds)
    if not settings.trials or settings.quick or seconds < _FEWEST_SECONDS:
        return None
    handover = study.journal.result.handover
    if not steps_are_small(profile.consumer, under_a_strategy=handover is not None):
        return None
    if not isinstance(consumer, SeveralSteps) or not consumer.takes_one_step_a_call:
        return None
    with study.journal.phase("advice", "trying several training steps in one call"):
        try:
            measured = _measure(study, consumer, profile.consumer.bound_seconds or 0.0, seconds=seconds)
        except OutOfBudget:
            return None
        except RunFailed as failure:  # Keras 3 cannot do it with two replicas of a strategy
            told = f"Several training steps in one call could not be tried: {failure}"
            study.journal.update(notes=(*study.journal.session.notes, told))
            return None
    use = study.subject.use
    strategy = handover.strategy if handover is not None else ""
    if isinstance(consumer, CoordinatorConsumer):
        call, workers = consumer.scheduled, consumer.workers
        return several_scheduled(measured, workers=workers, by_fit=call.by_fit, file=call.file, line=call.line)
    return several_steps(measured, strategy=strategy, file=use.file, line=use.line)


def _measure(study: Study, consumer: SeveralSteps, step_seconds: float, *, seconds: float) -> CallGains:
    """Measures the gains of several steps per call on one cached batch, in rounds of one window each, rotating."""
    most = max(STEPS_TRIED)
    calls = max(_FEWEST_CALLS, math.ceil(_WINDOW_SECONDS / (step_seconds * most)))
    for number in STEPS_TRIED:
        _window(study, consumer, number, steps=number)  # traces it
    rounds: list[dict[int, float]] = []
    clock = SystemClock()
    end = clock.now() + seconds
    while len(rounds) < _FEWEST_PAIRS or (len(rounds) < _MOST_PAIRS and clock.now() < end):
        ways = [1, *STEPS_TRIED]
        turn = len(rounds) % len(ways)
        order = [*ways[turn:], *ways[:turn]]
        rounds.append({number: _window(study, consumer, number, steps=calls * most) for number in order})

    def gain(number: int, over: int) -> Interval:
        return ratio_interval([one[over] / one[number] for one in rounds], error=_ERROR / len(STEPS_TRIED))

    *_, fewer, _ = STEPS_TRIED
    return CallGains(
        {number: statistics.median(one[number] for one in rounds) for number in (1, *STEPS_TRIED)},
        {number: gain(number, 1) for number in STEPS_TRIED},
        gain(most, fewer),
    )


def _window(study: Study, consumer: SeveralSteps, number: int, *, steps: int) -> float:
    """Returns the seconds per step with `number` steps per call."""
    with consumer.several_steps(number) if number > 1 else contextlib.nullcontext():
        return study.runner.bound_window(steps=steps).step_seconds
