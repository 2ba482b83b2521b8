"""TensorFlow's graph passes on real datasets: which apply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune import tensorflow_private
from pipetune.core.operators import DEFAULT_PASSES
from pipetune.core.results import OptimizationPasses
from pipetune.measure import runtime_choices
from pipetune.pipelines import live

Dataset = tf.data.Dataset
AUTOTUNE = tf.data.AUTOTUNE


def read(dataset: Any) -> OptimizationPasses:
    found = runtime_choices.read_passes(live.read(dataset), limit_seconds=60)
    assert not found.note, found.note
    return found


def with_options(dataset: Any, **values: Any) -> Any:
    options = tf.data.Options()
    for name, value in values.items():
        target, _, last = name.rpartition("__")
        setattr(getattr(options, target) if target else options, last, value)
    return dataset.with_options(options)


def fired(found: OptimizationPasses) -> set[str]:
    return {one.name for one in found.passes}


def square(x: Any) -> Any:
    return x * x


def kernels_that_run(dataset: Any) -> set[str]:
    """Kernel names from the runtime's own model, which shows what really runs."""
    iterator = iter(dataset)
    next(iterator)
    return {node.name for node in tf.data.experimental.get_model_proto(iterator).nodes.values()}


def test_single_pass_changes_the_graph_but_not_the_values() -> None:
    dataset = Dataset.range(7).map(square).batch(2)
    fused = tensorflow_private.with_graph_passes(dataset, ("map_and_batch_fusion",), autotune=True)
    graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(fused))
    assert "MapAndBatchDataset" in {node.op for node in graph.node}
    assert [x.tolist() for x in fused.as_numpy_iterator()] == [x.tolist() for x in dataset.as_numpy_iterator()]
    assert fused.element_spec == dataset.element_spec


@pytest.mark.parametrize(("name", "make", "kernel"), [
    ("map_parallelization", lambda: Dataset.range(9).map(square).prefetch(1), "ParallelMapV2"),
    ("map_and_batch_fusion", lambda: Dataset.range(9).map(square).batch(2).prefetch(1), "MapAndBatch"),
    ("shuffle_and_repeat_fusion", lambda: Dataset.range(9).shuffle(3).repeat().prefetch(1), "ShuffleAndRepeat"),
    ("inject_prefetch", lambda: Dataset.range(9), "Prefetch"),
])  # fmt: skip
def test_default_pass_is_in_force_at_runtime_unless_switched_off(name: str, make: Any, kernel: str) -> None:
    assert name in fired(read(make())) and any(one.startswith(kernel) for one in kernels_that_run(make()))
    off = with_options(make(), **{f"experimental_optimization__{name}": False})
    assert name not in fired(read(off)) and not any(one.startswith(kernel) for one in kernels_that_run(off))


def test_noop_elimination_is_on_by_default() -> None:
    dataset = Dataset.range(9).skip(0).prefetch(1)
    assert "noop_elimination" in fired(read(dataset)) and not any("Skip" in name for name in kernels_that_run(dataset))


def test_fired_passes_describe_their_changes() -> None:
    found = read(Dataset.range(9).map(square).shuffle(3).batch(2))
    assert fired(found) == {"map_parallelization", "parallel_batch", "inject_prefetch"}
    changes = {one.name: one.changes for one in found.passes}
    assert changes["map_parallelization"] == ("Map becomes ParallelMap",)
    assert changes["inject_prefetch"] == ("Prefetch added",)
    assert changes["parallel_batch"] == ("elements are copied into the batch by several threads",)


def test_passes_that_are_switched_off_are_not_tried() -> None:
    assert set(runtime_choices.PASSES) >= DEFAULT_PASSES
    dataset = Dataset.range(9).map(square).map(square).prefetch(1)
    assert "map_fusion" not in fired(read(dataset))
    on = {"experimental_optimization__map_fusion": True}
    assert "map_fusion" in fired(read(with_options(dataset, **on)))
    off = {"experimental_optimization__apply_default_optimizations": False}
    assert fired(read(with_options(dataset, **off))) == set()


def test_large_array_is_not_copied_into_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = tensorflow_private.serialized_graph
    monkeypatch.setattr(
        tensorflow_private, "serialized_graph", lambda dataset: (g := original(dataset), seen.append(len(g)))[0]
    )
    arrays = (np.zeros([2000, 1000], np.float32), np.arange(2000))
    found = read(Dataset.from_tensor_slices(arrays).map(lambda x, y: (x + 1, y)).batch(2))
    assert "map_and_batch_fusion" in fired(found) and max(seen) < 100_000


def test_unreadable_graph_becomes_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_dataset: Any) -> bytes:
        raise tf.errors.InvalidArgumentError(None, None, "no graph today")

    monkeypatch.setattr(tensorflow_private, "serialized_graph", fail)
    found = runtime_choices.read_passes(live.read(Dataset.range(3)))
    assert found.passes == () and "no graph today" in found.note
