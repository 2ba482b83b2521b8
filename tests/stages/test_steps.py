"""Single training steps after the decision: which series are recorded, in which time, and why one is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.capture.loop_consumer import StepConsumer
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.core.results import Interval, Outcome, StepSeries, Trial
from pipetune.core.time_plan import TimePlan
from pipetune.stages import steps
from pipetune.stages.steps import FEWEST_STEPS
from pipetune.stages.study import Study
from tests.stages.studies import study_of

Dataset = tf.data.Dataset

STEP_SECONDS = 0.002


@pytest.fixture(autouse=True)
def _short_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MOST_STEPS", 60)


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
    steps.record_steps(study, profile or profile_of(), plan)
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


@pytest.mark.parametrize(
    ("dataset", "ends"),
    [
        (Dataset.range(30).repeat().batch(2), (15, 30, 45)),
        (Dataset.range(40).repeat(3), (40,)),
        (Dataset.range(30).filter(lambda x: x > 9), (20, 40)),
        (Dataset.range(30).filter(lambda x: x > 9).repeat(), ()),
    ],
)
def test_epochs_that_the_pipeline_repeats_are_counted_if_their_length_is_known(
    dataset: Any, ends: tuple[int, ...]
) -> None:
    assert recorded(stepping(dataset))["defaults"].epoch_ends == ends


def test_more_than_the_fewest_steps_take_no_more_than_their_share_of_the_time_that_is_left(
    long: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "MOST_STEPS", 200)
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


@pytest.mark.parametrize(
    ("profile", "spent", "why"),
    [
        (profile_of(), 60.0, "20 steps need 0.04 s, and 0 s were left for them."),
        (profile_of(step_seconds=0.5), 0.0, "20 steps need 10 s, and 5 s were left for them."),
        (profile_of(first=8.0), 0.0, "20 steps need 8 s, and 5 s were left for them."),
        (profile_of(step_seconds=None), 0.0, "It raised."),
    ],
)
def test_nothing_is_recorded_where_too_few_steps_would_fit(
    long: Study, profile: Profile, spent: float, why: str
) -> None:
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
