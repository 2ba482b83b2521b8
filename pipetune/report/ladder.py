"""The rates ladder: off, as written, AUTOTUNE, tuned, and what training can take."""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.profile import ConsumerProfile
from pipetune.core.results import Rate
from pipetune.core.session import DatasetResult, Session, TrainingResult
from pipetune.report import words
from pipetune.report.values import Figure, figure, interval

_RUNGS = (
    ("off", "Optimisations off", "TensorFlow's own graph optimisations switched off"),
    ("defaults", "As written", "the script as it is, TensorFlow's defaults"),
    (
        "autotune",
        "AUTOTUNE everywhere",
        "AUTOTUNE for every parallelism, and a final prefetch: the usual advice",
    ),
    ("tuned", "Tuned", "the confirmed plan"),
)


@dataclass(frozen=True)
class Rung:
    """One variant of the input, consumed as fast as it can."""

    name: str
    label: str
    note: str
    examples: Figure  # per second
    batches: Figure  # per second
    cpu: Figure  # microseconds per example
    first: Figure  # seconds to the first batch
    memory: Figure  # peak, MiB above the process before


@dataclass(frozen=True)
class StepRung:
    """One variant of the training step, in milliseconds."""

    name: str
    label: str
    step: Figure


@dataclass(frozen=True)
class Ladder:
    """Input rates and step times beside what bounds them."""

    rungs: tuple[Rung, ...]
    bound: Figure  # examples per second the training step can take
    predicted: Figure  # examples per second the model predicts for the plan
    model_bound: Figure  # examples per second the model predicts for the input as written
    speedup: Figure  # input alone, tuned over as written
    speedup_over_autotune: Figure
    unit: str  # "examples"


def ladder(result: DatasetResult) -> Ladder:
    """Every rung, those that were not measured said to be so."""
    profile, diagnosis = result.profile, result.diagnosis
    per_element = profile.examples_per_element if profile else 1.0
    bound_seconds = profile.consumer.bound_seconds if profile else None
    model_rate = diagnosis.input_rate_bound if diagnosis else None
    missing = "no plan was confirmed" if result.plan is None else "the tuned input was not measured"
    return Ladder(
        rungs=tuple(_rung(result, name, label, note) for name, label, note in _RUNGS),
        bound=figure(
            per_element / bound_seconds if bound_seconds else None,
            words.rate,
            why=(profile.consumer.why if profile else "") or "the training step alone was not measured",
        ),
        predicted=figure(
            result.predicted.examples_per_second if result.predicted else None,
            words.rate,
            why="nothing was predicted",
        ),
        model_bound=figure(
            None if model_rate is None else model_rate * per_element, words.rate, why="costs are missing"
        ),
        speedup=interval(result.input_speedup, words.ratio, why=missing),
        speedup_over_autotune=interval(result.input_speedup_over_autotune, words.ratio, why=missing),
        unit="examples",
    )


def _rung(result: DatasetResult, name: str, label: str, note: str) -> Rung:
    rate = result.rates.get(name, Rate())
    why = "this variant was not measured"
    if name == "tuned" and result.plan is None:
        rate, why = Rate(), "no plan was confirmed"  # its rate would stand for something that is not recommended
    return Rung(
        name=name,
        label=label,
        note=note,
        examples=figure(rate.examples_per_second, words.rate, why=why),
        batches=figure(rate.batches_per_second, words.rate, why=why),
        cpu=figure(rate.cpu_us_per_example, lambda value: words.seconds(value / 1e6), why=why),
        first=figure(rate.first_batch_seconds, words.seconds, why=why),
        memory=figure(rate.peak_rss_mib, words.mebibytes, why=why),
    )


def step_ladder(session: Session) -> tuple[StepRung, ...]:
    """Training steps in the order a reader compares them.

    Confirmed figures where there are any; before that, what the profile found of the step as written.
    """
    training = session.training or TrainingResult()
    result = session.main_dataset
    consumer = result.profile.consumer if result and result.profile else ConsumerProfile(kind="none")
    why = words.clean(training.why or consumer.why) or "it was not measured"
    written, bound = training.defaults_step_ms, training.bound_step_ms
    if written is None and consumer.real_seconds is not None:
        written = consumer.real_seconds * 1e3
    if bound is None and consumer.bound_seconds is not None:
        bound = consumer.bound_seconds * 1e3
    return tuple(
        StepRung(name=name, label=label, step=figure(value, words.milliseconds, why=why))
        for name, label, value in (
            ("defaults", "As written", written),
            ("autotune", "AUTOTUNE everywhere", training.autotune_step_ms),
            ("tuned", "Tuned", training.tuned_step_ms),
            ("bound", "Model alone", bound),
        )
    )
