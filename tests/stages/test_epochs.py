"""Epochs of real runs with exaggerated effects, and single steps: what is recorded, in which time, and why not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy.bottleneck import delay_elements
from pipetune.capture.loop_consumer import StepConsumer
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.measurement import Interval, RunFailed, StepSeries
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.core.results import Drift, Outcome, RunDynamics, Trial
from pipetune.core.session import Session
from pipetune.core.time_plan import Measurement, Part, TimePlan
from pipetune.measure import epochs
from pipetune.pipelines import live
from pipetune.stages import epochs as stage
from pipetune.stages.epochs import FEWEST_STEPS
from pipetune.stages.profiling import take_profile
from pipetune.stages.study import Study
from tests.stages.studies import PROFILE, study_here, study_of

Dataset = tf.data.Dataset


def course_of(dataset: Any, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> tuple[RunDynamics, Session]:
    study = study_here(dataset, quick=True)
    least = seconds / study.time_plan.scale
    monkeypatch.setattr(stage, "EPOCHS", Measurement(Part.INFORMATION, 0.0, most=0.0, least=least))
    stage.measure_epochs(study, take_profile(study))
    session = study.journal.session
    (result, *_) = session.datasets
    return result.course, session


def test_emptying_of_shuffle_buffer_is_not_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = delay_elements(Dataset.range(260), 0.003).shuffle(100).batch(4).repeat()
    found, _ = course_of(endless, monkeypatch, seconds=2.2)  # a run takes 40 % of it: one epoch of 0.8 s
    assert found.drift is None or not found.drift.significant
    assert not any("Drift was not measured" in note for note in found.notes)


SLOWER = Drift(Interval(1.5, 1.3, 1.7, 4), since=200, elements=1000, significant=True)


@pytest.mark.parametrize(("changes", "says"), [
    ({}, []),  # of a pause that is short, as every new iterator makes one
    ({"border_seconds": 0.5}, ["epoch-pause: % of an epoch of 100 elements."]),
    ({"border_seconds": 0.5, "fill_seconds": 0.4}, ["epoch-pause: the shuffle buffer is refilled."]),
    ({"drift": SLOWER}, ["slows-down: the slowdown begins at element 200."]),
    ({"drift": replace(SLOWER, significant=False)}, []),
])  # fmt: skip
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


def test_input_that_fails_during_run_leaves_note(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_here(Dataset.range(64).batch(4), quick=True)

    def fail(*_: object, **__: object) -> None:
        raise RunFailed("it broke")

    monkeypatch.setattr(epochs, "run_epochs", fail)
    stage.measure_epochs(study, PROFILE)
    (result,) = study.journal.session.datasets
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


# -- single training steps


STEP_SECONDS = 0.002


@pytest.fixture(autouse=True)
def _short_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "MOST_STEPS", 60)


def profile_of(*, step_seconds: float | None = STEP_SECONDS, first: float = 0.0) -> Profile:
    consumer = ConsumerProfile("step", step_seconds, STEP_SECONDS, 0.001, why="" if step_seconds else "It raised.")
    return Profile((), consumer, first_element_seconds=first)


def stepping(dataset: Any, step: Callable[[Any], None] = lambda _: time.sleep(STEP_SECONDS)) -> Study:
    return study_of(dataset, consumer=StepConsumer(step), budget_seconds=60.0, trials=False)


@pytest.fixture(scope="module")
def long() -> Study:
    """A study of more elements than any series takes; `recorded` lets each series begin anew."""
    return stepping(Dataset.range(9000))


def recorded(
    study: Study, profile: Profile | None = None, plan: Plan | None = None, *, spent: float = 0.0
) -> dict[str, StepSeries]:
    study.journal.time_plan = TimePlan.of(study.settings)
    study.time_plan.end_within(60.0 - spent)
    study.journal.update_dataset(step_series={})
    stage.record_steps(study, profile or profile_of(), plan)
    return study.journal.result.step_series


def plan(op: str, **arguments: Any) -> Plan:
    edits = (Insert("n0", op, f"{op}@n0", arguments),)
    return Plan("plan", (Rewrite(op, "n0", Safety.EXACT, edits, ""),))


PREFETCH = plan("prefetch", buffer_size=2)


def test_the_script_and_a_proven_plan_have_a_series_each() -> None:
    study = stepping(Dataset.range(25))
    found = recorded(study, plan=PREFETCH)
    assert list(found) == ["defaults", "tuned"]
    for series in found.values():
        assert len(series.step_seconds) == 60 and series.epoch_ends == (25, 50) and not series.why
        assert min(series.step_seconds) > STEP_SECONDS
    assert list(recorded(study)) == list(recorded(study, plan=Plan("empty"))) == ["defaults"]


@pytest.mark.parametrize(("dataset", "ends"), [
    (Dataset.range(30).repeat().batch(2), (15, 30, 45)),
    (Dataset.range(40).repeat(3), (40,)),
    (Dataset.range(30).filter(lambda x: x > 9), (20, 40)),
    (Dataset.range(30).filter(lambda x: x > 9).repeat(), ()),
])  # fmt: skip
def test_epochs_that_the_pipeline_repeats_are_counted_if_their_length_is_known(dataset, ends) -> None:
    assert recorded(stepping(dataset))["defaults"].epoch_ends == ends


def test_more_than_the_fewest_steps_take_no_more_than_their_share_of_the_time_that_is_left(long, monkeypatch) -> None:
    monkeypatch.setattr(stage, "MOST_STEPS", 200)
    alone = recorded(long, spent=60.0 - 0.4)["defaults"]
    assert FEWEST_STEPS < len(alone.step_seconds) <= 0.2 / STEP_SECONDS  # half
    assert long.journal.session.seconds["steps"] > 0
    both = recorded(long, plan=PREFETCH, spent=60.0 - 0.4)
    assert FEWEST_STEPS < len(both["defaults"].step_seconds) <= 0.4 / 3 / STEP_SECONDS
    assert "tuned" in both


def test_the_fewest_steps_may_take_all_the_time(long: Study) -> None:
    (found,) = recorded(long, profile_of(step_seconds=0.01), spent=60.0 - 0.3).values()
    assert len(found.step_seconds) == FEWEST_STEPS


def test_steps_of_a_plan_are_expected_as_its_trial_has_shown(long: Study) -> None:
    faster = Trial(PREFETCH, Outcome.ACCEPTED, "", Interval(100.0, 99.0, 101.0, 6), unit="training")
    long.journal.update(trials=(faster, replace(faster, unit="input", gain=Interval(1.0, 1.0, 1.0, 6))))
    found = recorded(long, profile_of(step_seconds=0.3), PREFETCH)
    long.journal.update(trials=())
    assert not found["defaults"].step_seconds  # six seconds
    assert len(found["tuned"].step_seconds) == 60


@pytest.mark.parametrize(("profile", "spent", "why"), [
    (profile_of(), 60.0, "20 steps need 0.04 s, and 0 s were left for them."),
    (profile_of(step_seconds=0.5), 0.0, "20 steps need 10 s, and 5 s were left for them."),
    (profile_of(first=8.0), 0.0, "20 steps need 8 s, and 5 s were left for them."),
    (profile_of(step_seconds=None), 0.0, "It raised."),
])  # fmt: skip
def test_nothing_is_recorded_where_too_few_steps_would_fit(long, profile, spent, why) -> None:
    assert recorded(long, profile, spent=spent) == {"defaults": StepSeries(why=why)}


def test_steps_that_were_slower_than_expected_are_too_few() -> None:
    study = stepping(Dataset.range(9), lambda _: time.sleep(0.1))
    (found,) = recorded(study, spent=60.0 - 1.0).values()
    assert not found.step_seconds and found.why.startswith("Only ")


def test_a_cache_of_the_plan_is_not_filled_where_that_takes_longer() -> None:
    study, cache = stepping(Dataset.range(200)), plan("cache", filename="")
    slow = replace(profile_of(), consumer=replace(profile_of().consumer, input_seconds=0.1))
    found = recorded(study, slow, cache)
    assert found["defaults"].step_seconds
    assert found["tuned"].why == "20 steps need 10 s, and 5 s were left for them."
    assert recorded(study, plan=cache)["tuned"].step_seconds
    unknown = stepping(Dataset.range(200).filter(lambda x: x > 9))
    assert "a cache is filled" in recorded(unknown, plan=cache)["tuned"].why


def raising(_: Any) -> None:
    raise ZeroDivisionError("theirs")


def test_a_step_that_raises_is_a_reason_and_no_failure() -> None:
    (found,) = recorded(stepping(Dataset.range(9), raising)).values()
    assert not found.step_seconds and "theirs" in found.why


def test_nothing_is_stored_where_nothing_trains() -> None:
    study = study_of(Dataset.range(9))
    assert recorded(study) == {} and "steps" not in study.journal.session.seconds
