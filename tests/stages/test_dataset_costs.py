"""What each dataset of a script costs, and the warning about validation that costs much."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import Consumption
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import ConsumerProfile, Profile
from pipetune.core.results import DatasetCost
from pipetune.core.session import DatasetResult
from pipetune.measure.caches import with_full_caches
from pipetune.stages import dataset_costs as stage
from pipetune.stages.profiling import take_profile
from tests.stages.studies import study_here

Dataset = tf.data.Dataset


def test_cost_is_measured_for_each_dataset_of_script(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Consumption(Dataset.range(10), "checked", "evaluation", "evaluate", wall_seconds=2.0, cpu_seconds=1.0)
    taken.whole_call = True
    unknown = Consumption(Dataset.range(40).filter(lambda x: x % 2 == 0).batch(4), "data", "validation", "fit")
    study = study_here(Dataset.range(64).batch(4), taken, unknown)
    monkeypatch.setattr(stage, "_OTHER_SECONDS", 0.05)
    monkeypatch.setattr("pipetune.stages.profiling._COST_SECONDS", 0.1)
    stage.measure_dataset_costs(study, take_profile(study))
    train, checked, validation = (result.cost for result in study.journal.session.datasets)
    assert train is not None and train.element_wall_seconds and train.element_cpu_seconds
    assert train.epoch_elements == 16 and train.epoch_wall_seconds
    assert checked is not None and (checked.taken_wall_seconds, checked.taken_cpu_seconds) == (2.0, 1.0)
    assert checked.whole_call and checked.element_wall_seconds and checked.epoch_elements == 10
    assert validation is not None and validation.epoch_elements == 5 and validation.epoch_wall_seconds
    assert validation.whole_pass


def test_pass_whose_end_is_not_seen_costs_what_is_seen_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Dataset.range(1000).map(lambda x: tf.numpy_function(lambda one: time.sleep(0.01) or one, [x], tf.int64))
    use = Consumption(slow.filter(lambda x: x >= 0), "held_out", "validation", "fit")
    monkeypatch.setattr(stage, "_OTHER_SECONDS", 0.05)
    monkeypatch.setattr(stage, "_OTHERS_SECONDS", 0.5)
    study = study_here(Dataset.range(64).batch(4), use)
    stage.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    cost = study.journal.session.datasets[1].cost
    assert cost is not None and cost.epoch_elements is not None and 1 < cost.epoch_elements < 1000
    assert not cost.whole_pass and cost.epoch_wall_seconds


@pytest.mark.parametrize(("seconds", "known"), [(0.02, True), (0.5, False)])  # 0.16 s and 4 s to fill it
def test_validation_that_the_script_caches_costs_what_its_later_passes_take(
    seconds: float, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, filled = [], []

    def wait(number: Any) -> Any:
        calls.append(number)
        time.sleep(seconds)
        return number

    def fill(*given: Any, **limits: Any) -> Any:
        full = with_full_caches(*given, **limits)
        filled.append(len(calls))
        return full

    monkeypatch.setattr(stage, "with_full_caches", fill)
    slow = Dataset.range(8).map(lambda x: tf.ensure_shape(tf.numpy_function(wait, [x], tf.int64), []))
    study = study_here(Dataset.range(64).batch(4), Consumption(slow.cache(), "held_out", "validation", "fit"))
    stage.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    cost = study.journal.session.datasets[1].cost
    assert cost is not None and (cost.element_wall_seconds is not None) is known
    assert not known or filled == [len(calls)]


def test_validation_whose_input_takes_much_of_an_epoch_is_warned_about() -> None:
    def result(role: str, cost: DatasetCost, *, ops: tuple[str, ...] = ("range",)) -> DatasetResult:
        nodes = tuple(Node(f"n{index}", op, (f"n{index - 1}",) if index else ()) for index, op in enumerate(ops))
        return DatasetResult(Pipeline(nodes, role), role, cost=cost)

    profile = Profile((), ConsumerProfile("loop", real_seconds=0.01))
    training = result("training", DatasetCost(epoch_elements=1000))
    cheap = result("validation", DatasetCost(element_wall_seconds=0.001, epoch_elements=100))
    after_skip = DatasetCost(element_wall_seconds=0.001, epoch_elements=100, first_wall_seconds=9.9)
    dear = result("validation", after_skip, ops=("range", "map", "skip"))
    slower = result("validation", DatasetCost(element_wall_seconds=0.1 / 24, epoch_elements=100))
    assert stage.with_validation_shares([training, slower], profile, most_saved=0.1)[1].share is None
    beside = stage.with_validation_shares([training, cheap, result("evaluation", after_skip)], profile)
    assert stage.validation_findings(beside) == []
    (found,) = stage.validation_findings(stage.with_validation_shares([training, dear], profile))
    whole = "By its input alone, validation takes at least 50 % of the time for training and validation: 10 s of 20 s."
    assert found.message == whole  # with what the model computes, it takes more
    assert found.hint.startswith("--dataset validation analyzes it. Move skip()")
    (_, saved) = stage.with_validation_shares([training, slower], profile, most_saved=0.5)
    assert saved.share == pytest.approx(0.04) and stage.validation_findings([training, saved]) == []
    rare, often = (result("validation", replace(after_skip, training_steps=steps)) for steps in (30_000, 250))
    endless = result("training", DatasetCost())
    rated = stage.with_validation_shares([endless, rare, often, dear], profile)
    assert [one.share for one in rated] == [None, None, pytest.approx(0.04 / (0.01 + 0.04 + 10 / 30_000)), None]


def test_another_dataset_that_each_step_reads_is_told_where_it_takes_much_of_the_step() -> None:
    profile = Profile((), ConsumerProfile("loop", real_seconds=0.01))

    def told(milliseconds: float, *, in_turn: bool = True) -> list[str]:
        cost = DatasetCost(element_wall_seconds=milliseconds / 1000)
        other = DatasetResult(Pipeline((Node("n0", "range"),), "others"), "preview", cost=cost, in_turn=in_turn)
        return [one.message for one in stage.second_input_findings([other], profile)]

    (message,) = told(2.5)
    assert message.startswith("Each training step takes an element of others, too. It needs up to 2.5 ms of the 10 ms")
    assert told(0.4) == told(2.5, in_turn=False) == []
    assert "up to 1,200 ms of the 10 ms" in told(1200)[0]


def test_validation_follows_as_many_steps_as_fit_takes_in_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    held_out = Consumption(Dataset.range(8), "held_out", "validation", "fit", every=2)
    study = study_here(Dataset.range(1000), held_out)
    study.subject.use.steps_per_epoch = 10
    monkeypatch.setattr(stage, "_OTHERS_SECONDS", 0.0)
    stage.measure_dataset_costs(study, Profile((), ConsumerProfile("none")))
    training, validation = (result.cost for result in study.journal.session.datasets)
    assert training is not None and training.epoch_elements == 1000
    assert validation is not None and validation.training_steps == 20
