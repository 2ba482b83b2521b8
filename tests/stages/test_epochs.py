"""Epochs of real runs with exaggerated effects: filling a shuffle buffer, a cache, drift, other datasets."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.bench.injected import waiting
from pipetune.capture.consumption import Consumer, Consumption, NoConsumer
from pipetune.capture.loop_consumer import StepConsumer
from pipetune.core.command import Command
from pipetune.core.results import RunDynamics, RunFailed
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.core.time_plan import Measurement, Part, TimePlan
from pipetune.journal import Journal, NullListener
from pipetune.measure import epochs, machine
from pipetune.pipelines import live
from pipetune.stages import epochs as stage
from pipetune.stages.profiling import take_profile
from pipetune.stages.study import Study, Subject

Dataset = tf.data.Dataset


def study_of(
    dataset: Any, *others: tuple[Any, Consumption], quick: bool = True, consumer: Consumer | None = None
) -> Study:
    def subject(one: Any, use: Consumption) -> tuple[live.LivePipeline, Consumption]:
        return live.read(one, name=use.name), use

    use = Consumption(dataset, "train", "training", "Model.fit")
    consumer = consumer or NoConsumer("alone")
    made = Subject(live.read(dataset, name="train"), consumer, use, tuple(subject(*one) for one in others))
    settings, here = Settings(trials=False, quick=quick), machine.read_machine()
    journal = Journal(
        Session("", Command(), machine=here, datasets=made.results()), TimePlan.of(settings), NullListener()
    )
    return Study(made, settings, here, journal)


def course_of(dataset: Any, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> tuple[RunDynamics, Session]:
    study = study_of(dataset)
    monkeypatch.setattr(
        stage, "EPOCHS", Measurement(Part.INFORMATION, 0.0, most=0.0, least=seconds / study.time_plan.scale)
    )
    stage.measure_epochs(study, take_profile(study))
    session = study.journal.session
    (result, *_) = session.datasets
    assert result.course is not None
    return result.course, session


def test_the_verdict_counts_the_wait_at_the_start_of_each_epoch() -> None:
    """Behind a full buffer 16 ms a batch are less than a step; filling it takes 0.8 s of an epoch of 2.8 s."""
    slow = waiting(Dataset.range(400), 0.004).shuffle(200).batch(4).prefetch(2)
    consumer = take_profile(study_of(slow, consumer=StepConsumer(lambda _: time.sleep(0.02)))).consumer
    assert consumer.real_seconds and consumer.wait_share is not None
    assert consumer.wait_share.median > 0.15
    assert consumer.start_seconds > 0.4 * consumer.wait_share.median * consumer.real_seconds


@pytest.mark.exhaustive
def test_shuffle_buffer_is_filled_at_every_epoch_border(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = waiting(Dataset.range(120), 0.003)
    found, session = course_of(slow.shuffle(100).batch(4), monkeypatch, seconds=2.5)
    assert found.fill_seconds is not None and found.steady_seconds and found.border_seconds
    assert found.fill_seconds > 5 * found.steady_seconds
    assert found.border_seconds > 5 * found.steady_seconds
    assert found.borders > 0 and found.epochs > 0 and found.epoch_elements == 30
    (finding,) = session.findings
    assert finding.code == "epoch-pause" and "shuffle buffer" in finding.message and finding.hint
    assert session.datasets[0].course == found and session.seconds["course"] > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("known", [True, False])
def test_emptying_of_shuffle_buffer_is_not_drift(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = waiting(Dataset.range(260), 0.003)
    if not known:
        slow = slow.filter(lambda x: x >= 0)
    endless = slow.shuffle(100).batch(4).repeat()
    found, _ = course_of(endless, monkeypatch, seconds=2.2)  # a run takes 40 % of it: one epoch of 0.8 s
    assert found.drift is None or not found.drift.significant
    assert any("Drift was not measured" in note for note in found.notes) is not known


def test_shuffle_buffers_are_counted_in_output_elements() -> None:
    def held(dataset: Any) -> int | None:
        return stage._held_elements(live.read(dataset).pipeline)

    numbers = Dataset.range(1000)
    assert held(numbers.batch(4)) == 0 and held(numbers.shuffle(1).batch(4)) == 0
    assert held(numbers.shuffle(10).batch(4).repeat()) == 3
    assert held(numbers.shuffle(10).batch(4).shuffle(5)) == 8
    assert held(numbers.shuffle(10).filter(lambda x: x > 1)) is None


def test_iterator_creation_is_not_an_epoch_pause() -> None:
    study = study_of(Dataset.range(64).batch(4))
    profile = take_profile(study)
    brief = RunDynamics(steady_seconds=0.0005, border_seconds=0.02, borders=3, epoch_elements=100)
    assert stage.findings(study.subject.source.pipeline, profile, brief) == []
    (found,) = stage.findings(study.subject.source.pipeline, profile, replace(brief, border_seconds=0.5))
    assert found.code == "epoch-pause"


def test_cache_makes_later_epochs_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = waiting(Dataset.range(80), 0.002).cache().map(lambda x: x)
    found, _ = course_of(cached, monkeypatch, seconds=1.5)  # although the earlier profile has filled the cache
    assert found.later is not None and found.later.low > 3
    assert found.epochs > 1 and found.epoch_elements == 80


def test_epochs_of_endless_dataset_are_those_of_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = waiting(Dataset.range(60), 0.001).cache().map(lambda x: x).batch(4, drop_remainder=True).repeat()
    found, _ = course_of(slow, monkeypatch, seconds=0.6)
    assert found.epoch_elements == 15 and found.borders > 0


@pytest.mark.exhaustive
def test_input_that_slows_down_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def generate() -> Any:
        for number in range(100_000):
            time.sleep(0.004 + 1e-4 * number)  # long compared with the delays of a busy machine
            yield number

    slow = Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64))
    found, session = course_of(slow, monkeypatch, seconds=4.0)
    assert found.drift is not None and found.drift.significant, found
    assert found.drift.change.low > 1.2
    (finding,) = session.findings
    assert finding.code == "slows-down" and "begins at element" in finding.message


def test_steady_input_has_no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    found, session = course_of(waiting(Dataset.range(10_000), 0.001), monkeypatch, seconds=1.5)
    assert found.drift is not None and not found.drift.significant
    assert session.findings == ()
    assert found.fill_seconds is None and found.epochs == 0 and found.notes


def test_epoch_of_one_element_has_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    found, session = course_of(Dataset.range(4).batch(4), monkeypatch, seconds=0.4)
    assert found.steady_seconds is None and found.drift is None and found.epoch_elements == 1
    assert session.findings == ()


def test_input_that_fails_during_run_leaves_note(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(Dataset.range(64).batch(4), quick=False)
    profile = take_profile(study)

    def fail(*_: object, **__: object) -> None:
        raise RunFailed("it broke")

    monkeypatch.setattr(epochs, "run_epochs", fail)
    stage.measure_epochs(study, profile)
    (result,) = study.journal.session.datasets
    assert result.course is not None
    assert result.course.notes == ("The epochs could not be measured any further: it broke",)


def test_empty_or_failing_dataset_fails_run() -> None:
    with pytest.raises(RunFailed, match="empty"):
        epochs.run_epochs(Dataset.range(0), seconds=0.1)
    with pytest.raises(RunFailed, match="bad"):
        bad = Dataset.range(4).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(2 - x, tf.float32), "bad"))
        epochs.run_epochs(bad, seconds=5)
    with pytest.raises(RunFailed, match="empty"):
        epochs.first_seconds(Dataset.range(0))
