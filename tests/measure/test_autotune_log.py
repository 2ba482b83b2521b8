"""AUTOTUNE's values read from the runtime: to which operator each belongs, and when it last changed."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.results import BUFFER_SIZE, PARALLELISM, AutotuneValues
from pipetune.measure.runtime_choices import ParameterLog, log_parameters
from pipetune.pipelines import live
from tests.measure.test_profiler import write_records

Dataset = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE


def chosen(dataset: Any, *, seconds: float = 0.1) -> AutotuneValues:
    return log_parameters(dataset, seconds=seconds).reading(live.read(dataset).pipeline)


def square(x: Any) -> Any:
    return x * x


def found(reading: AutotuneValues) -> dict[tuple[str, str], tuple[str, bool]]:
    return {(one.node, one.parameter): (one.kernel, one.tunable) for one in reading.values}


def test_values_of_the_script_are_not_tunable_and_those_of_autotune_are() -> None:
    dataset = Dataset.range(99).map(square, num_parallel_calls=2).map(square, num_parallel_calls=AUTOTUNE)
    reading = chosen(dataset.batch(4).prefetch(3))
    seen = found(reading)
    assert seen["n1", PARALLELISM] == ("ParallelMapV2", False)
    assert seen["n2", PARALLELISM] == ("MapAndBatch", True)  # fused with the downstream batch
    assert seen["n4", BUFFER_SIZE] == ("Prefetch", False)
    assert not reading.added and not reading.note
    fixed, free = reading.value("n1", PARALLELISM), reading.value("n2", PARALLELISM)
    assert fixed is not None and fixed.value == 2 and fixed.moved_seconds is None
    assert free is not None and free.low <= free.value <= free.high and free.first is not None


@pytest.mark.one_core
def test_parallelized_map_and_added_prefetch_are_read() -> None:
    reading = chosen(Dataset.range(99).map(square).shuffle(4).repeat())
    assert found(reading) == {("n1", PARALLELISM): ("ParallelMapV2", True), ("", BUFFER_SIZE): ("Prefetch", True)}
    assert [one.kernel for one in reading.added] == ["Prefetch"]
    assert reading.kernels["n1"] == "ParallelMapV2" and reading.kernels["n0"] == "Range"


def test_repeat_of_the_window_is_not_an_operator_of_the_script() -> None:
    reading = chosen(Dataset.range(99).map(square).prefetch(2))  # TensorFlow adds a prefetch downstream of our repeat
    assert not reading.added
    own = reading.value("n2", BUFFER_SIZE)
    assert own is not None and own.value <= 2


def test_map_upstream_of_other_operators_is_found() -> None:
    dataset = Dataset.range(99).map(square).shuffle(9).repeat().filter(lambda x: x > 0).take(10_000).batch(2)
    assert found(chosen(dataset))["n1", PARALLELISM] == ("ParallelMapV2", True)


def test_interleave_and_its_upstream_operators_are_read(tmp_path: Any) -> None:
    names = Dataset.from_tensor_slices(write_records(tmp_path))
    files = names.map(lambda name: name, num_parallel_calls=AUTOTUNE).prefetch(AUTOTUNE)
    dataset = files.interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=AUTOTUNE)
    pipeline = live.read(dataset.prefetch(AUTOTUNE)).pipeline
    reading = log_parameters(dataset.prefetch(AUTOTUNE), seconds=0.15).reading(pipeline)
    by_operator = {(pipeline[one.node].op, one.parameter) for one in reading.values if one.node}
    assert {("interleave", PARALLELISM), ("prefetch", BUFFER_SIZE)} <= by_operator
    interleave = next(one for one in reading.values if one.node and pipeline[one.node].op == "interleave")
    assert interleave.tunable and interleave.value <= 2


def test_values_of_an_exhausted_branch_are_not_assigned_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = Dataset.range(99).map(square, num_parallel_calls=2), Dataset.range(99).map(square)
    dataset = Dataset.zip((left, right))
    pipeline, iterator, log = live.read(dataset).pipeline, iter(dataset), ParameterLog(repeated=False)
    next(iterator)
    ended = tf.data.experimental.get_model_proto(iterator)
    for node in ended.nodes.values():
        if node.name.startswith("Zip"):
            del node.inputs[1]  # as the model is between two epochs
    monkeypatch.setattr(tf.data.experimental, "get_model_proto", lambda iterator: ended)
    log.poll(iterator)
    assert not {node for node, _ in found(log.reading(pipeline))} & {"n1", "n3"}
    monkeypatch.undo()
    log.poll(iterator)
    monkeypatch.setattr(tf.data.experimental, "get_model_proto", lambda iterator: ended)
    log.poll(iterator)
    seen = found(log.reading(pipeline))
    assert seen["n1", PARALLELISM][1] is False and seen["n3", PARALLELISM][1] is True


def test_reading_without_a_model_has_a_note() -> None:
    options = tf.data.Options()
    options.autotune.enabled = False
    reading = chosen(Dataset.range(9).map(square).with_options(options))
    assert reading.values == () and "no model" in reading.note and not reading.converged


@pytest.mark.one_core
def test_last_change_of_a_value_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipetune.measure import runtime_choices

    clock = iter([10.0, 11.0, 12.0, 13.0])
    values = iter([16.0, 4.0, 4.0, 4.0])
    real = iter(Dataset.range(99).map(square))
    next(real)
    model = tf.data.experimental.get_model_proto(real)

    def look(_iterator: Any) -> Any:
        copy = type(model).FromString(model.SerializeToString())
        number = next(values)
        for node in copy.nodes.values():
            for one in node.parameters:
                if one.name == PARALLELISM:
                    one.state_value = number
        return copy

    monkeypatch.setattr(tf.data.experimental, "get_model_proto", look)
    monkeypatch.setattr(runtime_choices.time, "perf_counter", lambda: next(clock))
    log = ParameterLog(repeated=False)
    for _ in range(2):
        log.poll(None)
    pipeline = live.read(Dataset.range(99).map(square)).pipeline
    assert not log.reading(pipeline).converged  # it changed at the last poll
    for _ in range(2):
        log.poll(None)
    reading = log.reading(pipeline)
    one = reading.value("n1", PARALLELISM)
    assert one is not None and (one.first, one.value, one.moved_seconds) == (16.0, 4.0, 1.0)
    assert reading.seconds == 3.0 and reading.converged
