"""Advice on the consumer: its measurements, when none are made, and that the model stays unchanged."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.capture.coordinator_consumer import CoordinatorConsumer, ScheduledCall, WorkerDataset
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.core.distribution import FIT
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.measurement import Window
from pipetune.core.profile import ConsumerProfile, Diagnosis, Finding, OperatorProfile, Profile, Stage, Verdict
from pipetune.core.time_plan import TimePlan
from pipetune.pipelines import call_sites
from pipetune.stages import advice
from pipetune.stages.study import Study
from tests.stages.studies import operators_of, study_of

SMALL = Profile((), ConsumerProfile("keras-fit", real_seconds=0.0012, bound_seconds=0.001))
BALANCED = Diagnosis(Verdict.BALANCED, "")


def trained(**settings: Any) -> tuple[Study, Any]:
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    one = study_of(tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).repeat(50))
    consumer = FitConsumer(model, type(model).fit, {"shuffle": False})
    one.runner.consumer = consumer
    one.subject = replace(one.subject, consumer=consumer)
    one.settings = replace(one.settings, **{"budget_seconds": 60.0, **settings})
    one.journal.time_plan = TimePlan.of(one.settings)
    one.time_plan.decide()
    return one, model


@pytest.mark.mission("C5.fit")
def test_several_small_steps_per_call_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_FEWEST_PAIRS", 2), ("_MOST_PAIRS", 2), ("_WINDOW_SECONDS", 0.01)):
        monkeypatch.setattr(advice, name, value)
    monkeypatch.setattr("pipetune.lint.consumer_advice._MIN_REPORTED_GAIN", 0.0)  # independent of this machine's speed
    one, model = trained()
    advice.advise(one, SMALL, BALANCED)
    (found,) = one.journal.session.advice
    assert found.code == "steps-per-execution" and "2 pairs" in found.message
    assert "with 8 steps per call" in found.message and "with 32 steps per call" in found.message
    assert "advice" in one.journal.session.seconds
    assert model.steps_per_execution == 1


def test_advice_on_several_maps_of_one_call_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    same = Finding("decode-smaller", "map (train.py:4) decodes JPEGs at full scale")
    monkeypatch.setattr(advice, "suggest_smaller_decoding", lambda *_, **__: [same, replace(same)])
    monkeypatch.setattr(advice, "_steps_in_one_call", lambda *_: None)
    one, _ = trained()
    advice.advise(one, SMALL, BALANCED)
    assert one.journal.session.advice == (same,)


def test_wait_between_epochs_is_advised_where_the_data_is_read_again() -> None:
    slow = Profile((), ConsumerProfile("keras-fit", real_seconds=0.02))  # an epoch of a second
    once = call_sites.path_from(sys._getframe())
    for _ in range(1):
        again = call_sites.path_from(sys._getframe())

    def advised(epochs: int | None, path: call_sites.CallPath, call: str = "iter") -> bool:
        one, _ = trained()
        use = replace(one.subject.use, epochs=epochs, call_path=path, consumer_call=call)
        one.subject = replace(one.subject, use=use)
        advice.advise(one, slow, BALANCED)
        return [found.code for found in one.journal.session.advice] == ["wait-between-epochs"]

    assert advised(3, once, FIT) and advised(None, again)
    assert not (advised(1, once, FIT) or advised(None, once) or advised(1, again, FIT))


@pytest.mark.parametrize("rule", ["cache", "prefetch"])
def test_a_cache_by_hand_is_not_advised_beside_one_in_the_plan(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    finding = Finding("cache-if-built-once", "by hand")
    monkeypatch.setattr(advice, "suggest_building_once", lambda _context: [finding])
    one, _ = trained()
    edits = (Insert("n0", rule, "new", {"filename": ""} if rule == "cache" else {"buffer_size": 1}),)
    one.journal.update_dataset(plan=Plan("p", (Rewrite(rule, "n0", Safety.EXACT, edits, ""),)))
    advice.advise(one, SMALL, Diagnosis(Verdict.INPUT_BOUND, ""))
    assert (finding in one.journal.session.advice) == (rule != "cache")


class Scheduling(CoordinatorConsumer):
    """A fake coordinator: each call takes one millisecond, however many steps it has."""

    def __init__(self, *, elements_of_a_call: int = 1) -> None:
        call = ScheduledCall(tf.function(lambda: None), (), {}, None, None, file="train.py", line=7)
        super().__init__(call, WorkerDataset(None, None, object), workers=3)
        self._elements_per_call = elements_of_a_call

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        seconds = 0.001 * steps / self._steps_per_call
        return Window(steps, steps, wall_seconds=seconds, cpu_seconds=0.0, first_seconds=0.0)


@pytest.mark.mission("C5.coordinator")
def test_several_small_steps_per_scheduled_call_are_measured() -> None:
    one, _ = trained()
    small = replace(SMALL, consumer=replace(SMALL.consumer, kind="coordinator"))
    for consumer in (Scheduling(elements_of_a_call=4), Scheduling()):
        one.runner.consumer = consumer
        one.subject = replace(one.subject, consumer=consumer)
        assert one.journal.session.advice == ()
        advice.advise(one, small, BALANCED)
    (found,) = one.journal.session.advice
    assert (found.code, found.file, found.line) == ("steps-per-schedule", "train.py", 7)
    assert "a step of each of 3 workers takes 1 ms, 0.125 ms with 8 steps per call (8.00x" in found.message
    assert "tf.range(32)" in found.hint and consumer.accepts_multi_step_calls


def test_no_measurement_where_advice_cannot_matter() -> None:
    one, _ = trained()
    plain = one.settings
    slow = Profile((), ConsumerProfile("keras-fit", real_seconds=0.1, bound_seconds=0.1))
    waiting = Profile((), ConsumerProfile("keras-fit", real_seconds=0.1, bound_seconds=0.001))
    for settings in ({"trials": False}, {"quick": True}, {"budget_seconds": 10.0}):
        one.settings = replace(plain, **settings)  # type: ignore[arg-type]
        assert measures_nothing(one, SMALL), settings
    one.settings = plain
    assert measures_nothing(one, slow) and measures_nothing(one, waiting)


def measures_nothing(one: Study, profile: Profile) -> bool:
    one.journal.time_plan = TimePlan.of(one.settings)
    one.time_plan.decide()
    advice.advise(one, profile, BALANCED)
    return one.journal.session.advice == () and "advice" not in one.journal.session.seconds


def test_plain_loop_gets_no_advice() -> None:
    alone = study_of(tf.data.Dataset.range(9))
    advice.advise(alone, SMALL, BALANCED)
    assert alone.journal.session.advice == ()


def test_padding_is_reported() -> None:
    def words(number: Any) -> Any:
        return tf.range(number * 37 % 60)

    one = study_of(tf.data.Dataset.range(480).map(words).padded_batch(8))
    advice.advise(one, replace(SMALL, operators=operators_of(one)), BALANCED)
    (found,) = one.journal.session.advice
    assert found.code == "bucket-batches" and "padding" in found.message and "bucket_by_sequence_length(" in found.hint


def test_generator_is_reported_with_its_maximum_rate() -> None:
    one, _ = trained()
    made = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32))
    one.subject = replace(one.subject, source=study_of(made).subject.source)
    slow = OperatorProfile("n0", Stage.EXTRACT, wall_seconds=0.004, waiting_seconds=0.0, visits=1.0)
    profile = replace(SMALL, operators=(slow,), input_wall_seconds=0.004)
    one.settings = replace(one.settings, quick=True)
    advice.advise(one, profile, BALANCED)
    (found,) = one.journal.session.advice
    assert found.code == "python-generator" and "at most 250 elements/s" in found.message
