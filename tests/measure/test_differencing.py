"""Costs by prefix differencing on live pipelines: CPU time and waiting, each at the right operator.

The machine is shared, so absolute times have wide tolerances. Waiting must not be counted as work, and no cost at a
neighbouring operator; a wait of 4 ms is long on any machine.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks import known_costs
from pipetune.core.measurement import RunFailed
from pipetune.measure import differencing
from pipetune.measure.differencing import Cost
from pipetune.pipelines import live

Dataset = tf.data.Dataset
WORKS, WAITS = known_costs.sorting_function(4), known_costs.sleeping_function(0.004)


def cpu_seconds(known: known_costs.KnownFunction) -> float:
    """The true cost of a call."""
    alone = known_costs.IsolatedCalls(known)
    for _ in range(5):
        alone.measure_window()
    return alone.true_cost.cpu_seconds


def about_work(*, share: float = 0.5) -> Any:
    """The cost of `WORKS`, within this share of it plus the cost of waking up."""
    known = cpu_seconds(WORKS)
    return pytest.approx(known, abs=share * known + 1.5 * waking())


def waking() -> float:
    """CPU seconds of a wait: few on most machines, a millisecond where other processes keep the memory busy."""
    return cpu_seconds(WAITS)


def measure(dataset: Any, *, seconds: float = 1.2) -> tuple[differencing.DifferencingResult, dict[str, Cost]]:
    """The result, and the costs by operator: "map", "map 2" for the second."""
    source = live.read(dataset)
    found = differencing.measure_costs(source, {}, seconds=seconds)
    names: dict[str, Cost] = {}
    for node in source.pipeline:
        if node.id in found.costs:
            number = sum(name.split()[0] == node.op for name in names)
            names[f"{node.op} {number + 1}" if number else node.op] = found.costs[node.id]
    return found, names


@pytest.mark.parametrize("calls", [None, 2])
def test_waiting_is_not_cpu_time_and_belongs_to_its_operator(calls: int | None) -> None:
    numbers = Dataset.range(500)
    dataset = numbers.map(WORKS.function, num_parallel_calls=calls).map(WAITS.function, num_parallel_calls=calls)
    found, costs = measure(dataset.batch(2).prefetch(1))
    works, waits = costs["map"], costs["map 2"]
    assert works.cpu.median == about_work()
    assert works.waiting.median < waits.waiting.median
    assert waits.waiting.median > 2e-3
    assert waits.cpu.median < waits.waiting.median
    assert costs["batch"].wall.median < 0.5 * waits.wall.median
    assert works.cpu.pairs >= differencing.FEWEST_ROUNDS
    assert found.visits == {"n0": 2, "n1": 2, "n2": 2, "n3": 1, "n4": 1}


@pytest.mark.exhaustive
def test_visits_and_costs_of_a_filter_and_of_branches() -> None:
    """The other cases of `bench.attribution` are measured there."""
    worked = Dataset.range(500).map(WORKS.function)
    found, costs = measure(Dataset.zip((worked.filter(lambda x: x % 2 == 0), Dataset.range(500).map(WAITS.function))))
    assert found.visits["n1"] == pytest.approx(2, rel=0.05)
    assert costs["map"].cpu.median == about_work()
    assert costs["filter"].cpu.median < 0.5 * cpu_seconds(WORKS) + waking()
    assert costs["map 2"].waiting.median > 2e-3


def test_operator_upstream_of_a_cache_has_a_cost_and_no_visits() -> None:
    found, costs = measure(Dataset.range(60).map(WORKS.function).cache().map(lambda x: x + 1).batch(5))
    assert found.visits["n1"] == 0 and found.visits["n3"] == 5
    assert costs["map"].cpu.median == about_work()
    assert costs["map 2"].cpu.median < 0.5 * costs["map"].cpu.median


@pytest.mark.exhaustive
@pytest.mark.parametrize("dataset", [
    Dataset.range(3).map(WORKS.function),
    Dataset.range(3).map(WORKS.function).repeat(),
    Dataset.range(4).shuffle(100).map(WORKS.function).batch(3).take(1),
    Dataset.range(100_000).shuffle(50_000, reshuffle_each_iteration=False).map(WORKS.function).repeat(2),
])  # fmt: skip
def test_cost_in_tiny_endless_and_shuffled_datasets(dataset: Any) -> None:
    _, costs = measure(dataset)
    assert costs["map"].cpu.median == about_work(share=0.6)


@pytest.mark.exhaustive
def test_elements_of_every_structure_can_be_measured() -> None:
    ragged = tf.ragged.constant([[1, 2], [3], []])
    nested = Dataset.from_tensor_slices({"a": ragged, "b": [1.0, 2.0, 3.0]}).map(lambda x: (x,))
    windowed = Dataset.range(20).window(3).flat_map(lambda part: part.batch(3))
    for dataset in (nested, windowed):
        measure(dataset.filter(lambda *_: True), seconds=3)


def test_measurement_keeps_to_its_time() -> None:
    started = time.perf_counter()
    measure(Dataset.range(500).map(WORKS.function).batch(4))
    assert time.perf_counter() - started < 60  # generous for a busy machine

    with pytest.raises(RunFailed, match="longer than the time"):
        measure(Dataset.range(500).map(known_costs.sleeping_function(0.4).function), seconds=0.5)


def test_failures_of_the_pipeline_are_reported() -> None:
    with pytest.raises(RunFailed, match="theirs"):
        measure(Dataset.range(3).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(x, tf.float32), "theirs")))
    with pytest.raises(RunFailed, match="cannot be rebuilt"):
        measure(known_costs.with_sleep(Dataset.range(9).map(lambda x: x, num_parallel_calls=2), 10).batch(2))
