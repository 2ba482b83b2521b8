"""Advice on the consumer: what is measured for it, when nothing is, and that the model is left as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.measurement import Window
from pipetune.core.profile import ConsumerProfile, Diagnosis, OperatorProfile, Profile, Stage, Verdict
from pipetune.stages import advice
from pipetune.stages.study import Study
from pipetune.tf.script.coordinator_consumer import CoordinatorConsumer, Scheduled
from pipetune.tf.script.fit_consumer import FitConsumer, callback_list
from pipetune.tf.script.per_worker import PerWorker
from tests.stages.test_own_work import study

SMALL = Profile((), ConsumerProfile("keras-fit", real_seconds=0.0012, bound_seconds=0.001))
BALANCED = Diagnosis(Verdict.BALANCED, "")


def trained(**settings: Any) -> tuple[Study, Any]:
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    one = study(tf.data.Dataset.from_tensors((tf.ones([8, 4]), tf.ones([8, 1]))).repeat(50))
    consumer = FitConsumer(model, type(model).fit, {"shuffle": False}, callback_list(model))
    one.runner.consumer = consumer
    one.subject = replace(one.subject, consumer=consumer)
    one.settings = replace(one.settings, **{"budget_seconds": 60.0, **settings})
    return one, model


@pytest.mark.mission("C5.fit")
def test_small_steps_are_tried_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_FEWEST_PAIRS", 2), ("_MOST_PAIRS", 2), ("_WINDOW_SECONDS", 0.01)):
        monkeypatch.setattr(advice, name, value)
    monkeypatch.setattr("pipetune.model.consumer_advice._WORTH_TELLING", 0.0)  # whatever this machine does
    one, model = trained()
    advice.advise(one, SMALL, BALANCED)
    (found,) = one.journal.session.advice
    assert found.code == "steps-per-execution" and "2 pairs" in found.message
    assert "where 8 are one call" in found.message and "where 32 are one call" in found.message
    assert "advice" in one.journal.session.seconds
    assert model.steps_per_execution == 1


class Scheduling(CoordinatorConsumer):
    """Schedules nothing: a call takes a millisecond, whatever its steps; a step takes none."""

    def __init__(self, *, elements_of_a_call: int = 1) -> None:
        call = Scheduled(tf.function(lambda: None), (), {}, None, None, file="train.py", line=7)
        super().__init__(call, PerWorker(None, None, object), workers=3)
        self._each = elements_of_a_call

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        seconds = 0.001 * steps / self._number
        return Window(steps, steps, wall_seconds=seconds, cpu_seconds=0.0, first_seconds=0.0)


@pytest.mark.mission("C5.coordinator")
def test_small_steps_are_tried_in_one_call_of_what_a_coordinator_schedules() -> None:
    one, _ = trained()
    small = replace(SMALL, consumer=replace(SMALL.consumer, kind="coordinator"))
    for consumer in (Scheduling(elements_of_a_call=4), Scheduling()):
        one.runner.consumer = consumer
        one.subject = replace(one.subject, consumer=consumer)
        assert one.journal.session.advice == ()
        advice.advise(one, small, BALANCED)
    (found,) = one.journal.session.advice
    assert (found.code, found.file, found.line) == ("steps-per-schedule", "train.py", 7)
    assert "a step of each of 3 workers takes 1 ms, 0.125 ms where 8 are one call (8.00x" in found.message
    assert "tf.range(32)" in found.hint and consumer.takes_one_step_a_call


@pytest.mark.parametrize(
    ("settings", "profile"),
    [
        ({"trials": False}, SMALL),
        ({"quick": True}, SMALL),
        ({"budget_seconds": 10.0}, SMALL),
        ({}, Profile((), ConsumerProfile("keras-fit", real_seconds=0.1, bound_seconds=0.1))),
        ({}, Profile((), ConsumerProfile("keras-fit", real_seconds=0.1, bound_seconds=0.001))),
    ],
)
def test_nothing_is_measured_where_it_cannot_matter(settings: dict[str, Any], profile: Profile) -> None:
    one, _ = trained(**settings)
    advice.advise(one, profile, BALANCED)
    assert one.journal.session.advice == () and "advice" not in one.journal.session.seconds


def test_a_loop_and_other_datasets_get_none() -> None:
    alone = study(tf.data.Dataset.range(9))
    advice.advise(alone, SMALL, BALANCED)
    assert alone.journal.session.advice == ()


def test_padding_is_told() -> None:
    def words(number: Any) -> Any:
        return tf.range(number * 37 % 60)

    one = study(tf.data.Dataset.range(480).map(words).padded_batch(8))
    operators = tuple(OperatorProfile(node.id, Stage.TRANSFORM) for node in one.subject.source.pipeline)
    advice.advise(one, replace(SMALL, operators=operators), BALANCED)
    (found,) = one.journal.session.advice
    assert found.code == "bucket-batches" and "padding" in found.message and "bucket_by_sequence_length(" in found.hint


def test_a_generator_gets_its_ceiling_and_no_edit() -> None:
    one, _ = trained()
    made = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32))
    one.subject = replace(one.subject, source=study(made).subject.source)
    slow = OperatorProfile("n0", Stage.EXTRACT, wall_seconds=0.004, waiting_seconds=0.0, visits=1.0)
    profile = replace(SMALL, operators=(slow,), input_wall_seconds=0.004)
    one.settings = replace(one.settings, quick=True)
    advice.advise(one, profile, BALANCED)
    (found,) = one.journal.session.advice
    assert found.code == "python-generator" and "250 elements/s at most" in found.message
