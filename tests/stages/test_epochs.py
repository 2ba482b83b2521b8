"""Epochs of real runs with exaggerated effects: filling a shuffle buffer, a cache, drift, other datasets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy.bottleneck import delay_elements
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.core.results import Drift, Interval, RunDynamics, RunFailed
from pipetune.core.session import Session
from pipetune.core.time_plan import Measurement, Part
from pipetune.measure import epochs
from pipetune.pipelines import live
from pipetune.stages import epochs as stage
from pipetune.stages.profiling import take_profile
from tests.stages.studies import PROFILE, study_here

Dataset = tf.data.Dataset


def course_of(dataset: Any, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> tuple[RunDynamics, Session]:
    study = study_here(dataset, quick=True)
    monkeypatch.setattr(
        stage, "EPOCHS", Measurement(Part.INFORMATION, 0.0, most=0.0, least=seconds / study.time_plan.scale)
    )
    stage.measure_epochs(study, take_profile(study))
    session = study.journal.session
    (result, *_) = session.datasets
    assert result.course is not None
    return result.course, session


def test_emptying_of_shuffle_buffer_is_not_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = delay_elements(Dataset.range(260), 0.003).shuffle(100).batch(4).repeat()
    found, _ = course_of(endless, monkeypatch, seconds=2.2)  # a run takes 40 % of it: one epoch of 0.8 s
    assert found.drift is None or not found.drift.significant
    assert not any("Drift was not measured" in note for note in found.notes)


SLOWER = Drift(Interval(1.5, 1.3, 1.7, 4), since=200, elements=1000, significant=True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, []),  # of a pause that is short, as every new iterator makes one
        ({"border_seconds": 0.5}, ["epoch-pause: % of an epoch of 100 elements."]),
        ({"border_seconds": 0.5, "fill_seconds": 0.4}, ["epoch-pause: the shuffle buffer is refilled."]),
        ({"drift": SLOWER}, ["slows-down: the slowdown begins at element 200."]),
        ({"drift": replace(SLOWER, significant=False)}, []),
    ],
)
def test_findings_of_a_course(changes: dict[str, Any], says: list[str]) -> None:
    brief = RunDynamics(steady_seconds=0.0005, border_seconds=0.02, borders=3, epoch_elements=100)
    pipeline = live.read(Dataset.range(400).shuffle(200).batch(4)).pipeline
    found = stage.findings(pipeline, PROFILE, replace(brief, **changes))
    assert [one.code for one in found] == [each.partition(":")[0] for each in says]
    assert all(one.message.endswith(each.partition(": ")[2]) for one, each in zip(found, says, strict=True))


def test_pause_is_no_part_of_the_steps_that_it_is_compared_with() -> None:
    course = RunDynamics(steady_seconds=0.0005, border_seconds=0.5, borders=3, epoch_elements=100)
    pipeline = live.read(Dataset.range(400).shuffle(200).batch(4)).pipeline
    consumer = ConsumerProfile("fit", real_seconds=0.01, start_seconds=0.005)
    (found,) = stage.findings(pipeline, Profile((), consumer), course)
    assert found.message == "Every epoch begins with a pause of 0.5 s, 50 % of an epoch of 100 elements."


def test_shuffle_buffers_are_counted_in_output_elements() -> None:
    def held(dataset: Any) -> int | None:
        return stage._held_elements(live.read(dataset).pipeline)

    numbers = Dataset.range(1000)
    assert held(numbers.batch(4)) == 0 and held(numbers.shuffle(1).batch(4)) == 0
    assert held(numbers.shuffle(10).batch(4).repeat()) == 3
    assert held(numbers.shuffle(10).batch(4).shuffle(5)) == 8
    assert held(numbers.shuffle(10).filter(lambda x: x > 1)) is None


def test_cache_makes_later_epochs_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = delay_elements(Dataset.range(80), 0.005).cache().map(lambda x: x)
    found, _ = course_of(cached, monkeypatch, seconds=3.0)  # although the earlier profile has filled the cache
    assert found.later is not None and found.later.low > 3
    assert found.epochs > 1 and found.epoch_elements == 80


def test_epochs_of_endless_dataset_are_those_of_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = delay_elements(Dataset.range(60), 0.001).cache().map(lambda x: x).batch(4, drop_remainder=True).repeat()
    found, _ = course_of(slow, monkeypatch, seconds=0.6)
    assert found.epoch_elements == 15 and found.borders > 0


def test_steady_input_has_no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    found, session = course_of(delay_elements(Dataset.range(10_000), 0.001), monkeypatch, seconds=1.5)
    assert found.drift is not None and not found.drift.significant
    assert session.findings == ()
    assert found.fill_seconds is None and found.epochs == 0 and found.notes


def test_epoch_of_one_element_has_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    found, session = course_of(Dataset.range(4).batch(4), monkeypatch, seconds=0.4)
    assert found.steady_seconds is None and found.drift is None and found.epoch_elements == 1
    assert session.findings == ()


def test_input_that_fails_during_run_leaves_note(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_here(Dataset.range(64).batch(4), quick=True)

    def fail(*_: object, **__: object) -> None:
        raise RunFailed("it broke")

    monkeypatch.setattr(epochs, "run_epochs", fail)
    stage.measure_epochs(study, PROFILE)
    (result,) = study.journal.session.datasets
    assert result.course is not None
    assert result.course.notes == ("The epochs could not be measured any further: it broke",)


def test_rest_of_a_pass_is_not_extrapolated_from_its_first_element() -> None:
    assert epochs.pass_seconds(delay_elements(Dataset.range(20), 0.02), elements=20, seconds=0.0) > 0.3


def test_empty_or_failing_dataset_fails_run() -> None:
    with pytest.raises(RunFailed, match="empty"):
        epochs.run_epochs(Dataset.range(0), seconds=0.1)
    with pytest.raises(RunFailed, match="bad"):
        bad = Dataset.range(4).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(2 - x, tf.float32), "bad"))
        epochs.run_epochs(bad, seconds=5)
    with pytest.raises(RunFailed, match="empty"):
        epochs.first_seconds(Dataset.range(0))
