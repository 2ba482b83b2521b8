"""What-if scenarios: the predicted rate and the limit for each change of the hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Insert, apply_edits
from pipetune.core.results import Scenario
from pipetune.core.storage import FileUse
from pipetune.model.bottleneck import what_if
from tests.words import parse

# Per element: 8 ms of a map that runs on any number of cores, 1 ms of a serial map downstream.
TEXT = "range cpu=0us | map AUTOTUNE cpu=8ms | map random cpu=1ms | prefetch 2 cpu=0us"


def table(text: str = TEXT, *, cores: float = 2, **more: object) -> dict[str, Scenario]:
    words = parse(text)
    return {row.name: row for row in what_if(words.pipeline, words.profile, cores, **more)}  # type: ignore[arg-type]


STEP = {"step_seconds": 0.010}


@pytest.mark.parametrize(
    ("options", "scenario", "expected"),
    [
        # cores help until a thread is the limit
        ({}, "as it is", {"input_rate": 2 / 9e-3, "bound": "cores", "node": "n1"}),
        ({}, "2 times the cores", {"input_rate": 4 / 9e-3}),
        ({}, "4 times the cores", {"input_rate": 8 / 9e-3}),
        ({"cores": 8}, "2 times the cores", {"input_rate": 1000, "node": "n2"}),
        # a faster model helps until the input is the limit
        (STEP, "as it is", {"training_rate": 100, "binds": "model"}),
        (STEP, "a training step 2 times as fast", {"training_rate": 200}),
        (STEP, "a training step 10 times as fast", {"training_rate": 2 / 9e-3, "binds": "input"}),
        # replicas share one input
        (STEP, "2 replicas on this host", {"training_rate": 100}),
        (STEP, "4 replicas on this host", {"training_rate": 2 / 9e-3 / 4, "binds": "input"}),
    ],
)
def test_scenario(options: dict[str, float], scenario: str, expected: dict[str, object]) -> None:
    row = table(**options)[scenario]  # type: ignore[arg-type]
    assert {name: getattr(row, name) for name in expected} == {
        name: pytest.approx(value) if isinstance(value, float | int) else value for name, value in expected.items()
    }


def test_storage_scenarios_require_known_bandwidth() -> None:
    text = "TFRecordDataset bytes=100k cpu=0us | map AUTOTUNE cpu=1ms | prefetch 2 cpu=0us"
    assert not any("storage" in name for name in table(text))
    rows = table(text, storage_bytes_per_second=50e6)
    assert rows["as it is"].input_rate == pytest.approx(500)
    assert rows["as it is"].bound == "storage"
    assert rows["storage 4 times as fast"].input_rate == pytest.approx(2000, rel=0.01)


def test_memory_scenario_uses_pipelines_that_need_more_memory() -> None:
    rows = table()
    assert rows["twice the memory"].input_rate == rows["as it is"].input_rate
    cache = Insert("n1", "cache", "cache@n1", {"filename": ""})
    rows = table(larger_memory_pipelines=[apply_edits(parse(TEXT).pipeline, [cache])])
    assert rows["twice the memory"].input_rate == pytest.approx(1000, rel=0.01)
    assert rows["twice the memory"].node == "n2"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("range | map python", "map runs Python code"),
        ("from_generator | batch 2", "from_generator runs Python code"),
        ("range | opaque | batch 2", "does not know the operator"),
    ],
)
def test_unpredictable_pipeline_has_reason(text: str, why: str) -> None:
    (row,) = table(text).values()
    assert why in row.why
    assert row.input_rate is None and row.training_rate is None
    assert not table(f"{text} | cache | map cpu=1ms")["as it is"].why  # it does not run in later epochs


def test_remote_storage_is_unpredictable_unless_cached() -> None:
    for text, known in (("TFRecordDataset | map cpu=1ms", False), ("TFRecordDataset | cache | map cpu=1ms", True)):
        words = parse(text)
        profile = replace(words.profile, files=FileUse(remote=("gs",), remote_files=3))
        row = what_if(words.pipeline, profile, 2)[0]
        assert (row.input_rate is not None) is known
        assert known or "remote storage (gs://)" in row.why
