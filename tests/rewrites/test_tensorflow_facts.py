"""What the rules assume of TensorFlow, checked against TensorFlow: a version that differs fails here."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest

from pipetune.rewrites.legality import tensorflow_parallelizes
from pipetune.rewrites.map_and_batch_fusion import is_fused
from pipetune.rewrites.parallel_reads import effective_cycle_length
from tests.rules import context

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

AUTOTUNE = -1
_OPTIMIZATION = "experimental_optimization."


def _plain(x: Any) -> Any:
    return x + 1


def _random(x: Any) -> Any:
    return tf.cast(x, tf.float32) + tf.random.uniform([])


def _python(x: Any) -> Any:
    return tf.py_function(lambda y: y, [x], tf.int64)


def _numbers() -> Any:
    return tf.data.Dataset.range(40)


def _with(dataset: Any, **optimizations: Any) -> Any:
    options = tf.data.Options()
    for name, value in optimizations.items():
        setattr(options.experimental_optimization, name, value)
    return dataset.with_options(options)


def _kernels(dataset: Any) -> list[str]:
    """Kernels of the running pipeline, last first."""
    iterator = iter(dataset)
    next(iterator)
    proto = tf.data.experimental.get_model_proto(iterator)
    names, identifier = [], proto.output
    while True:
        node = proto.nodes[identifier]
        names.append(node.name)
        if not node.inputs:
            break
        identifier = node.inputs[0]
    del iterator
    gc.collect()
    return names


FUSION: list[tuple[str, dict[str, Any], Callable[[], Any]]] = [
    ("range 9 | map | batch 4", {}, lambda: _numbers().map(_plain).batch(4)),
    ("range 9 | map random | batch 4", {}, lambda: _numbers().map(_random).batch(4)),
    ("range 9 | map python | batch 4", {}, lambda: _numbers().map(_python).batch(4)),
    ("range 9 | map 2 | batch 4", {}, lambda: _numbers().map(_plain, num_parallel_calls=2).batch(4)),
    ("range 9 | map 2 random | batch 4", {}, lambda: _numbers().map(_random, num_parallel_calls=2).batch(4)),
    ("range 9 | map | batch 4 num_parallel_calls=2", {},
     lambda: _numbers().map(_plain).batch(4, num_parallel_calls=2)),
    ("range 9 | map | prefetch 2 | batch 4", {}, lambda: _numbers().map(_plain).prefetch(2).batch(4)),
    ("range 9 | map | take 9 | batch 4", {}, lambda: _numbers().map(_plain).take(9).batch(4)),
    ("range 9 | map | shuffle 9 | batch 4", {}, lambda: _numbers().map(_plain).shuffle(9).batch(4)),
    ("range 9 | map | enumerate | batch 4", {}, lambda: _numbers().map(_plain).enumerate().batch(4)),
    ("range 9 | map 2 use_unbounded_threadpool=True | batch 4", {},
     lambda: _numbers().map(_plain, num_parallel_calls=2, use_unbounded_threadpool=True).batch(4)),
    ("range 9 | map | batch 4", {_OPTIMIZATION + "map_and_batch_fusion": False},
     lambda: _with(_numbers().map(_plain).batch(4), map_and_batch_fusion=False)),
    ("range 9 | map | batch 4", {_OPTIMIZATION + "apply_default_optimizations": False},
     lambda: _with(_numbers().map(_plain).batch(4), apply_default_optimizations=False)),
    ("range 9 | map | batch 4", {_OPTIMIZATION + "apply_default_optimizations": False,
                                 _OPTIMIZATION + "map_and_batch_fusion": True},
     lambda: _with(_numbers().map(_plain).batch(4),
                   apply_default_optimizations=False, map_and_batch_fusion=True)),
]  # fmt: skip


@pytest.mark.parametrize(("words", "options", "dataset"), FUSION)
def test_fusion_matches_the_runtime(words: str, options: dict[str, Any], dataset: Callable[[], Any]) -> None:
    described = context(words, options=options)
    (batch,) = [node for node in described.pipeline if node.op == "batch"]
    assert ("MapAndBatch" in _kernels(dataset())) == is_fused(batch, described)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"map_parallelization": False},
        {"apply_default_optimizations": False},
        {"apply_default_optimizations": False, "map_parallelization": True},
    ],
)
def test_maps_that_tensorflow_runs_in_parallel_are_known(options: dict[str, bool]) -> None:
    described = context("range 9 | map | prefetch 2", options={_OPTIMIZATION + key: on for key, on in options.items()})
    kernels = _kernels(_with(_numbers().map(_plain).prefetch(2), **options))
    parallel = any(kernel.startswith("ParallelMap") for kernel in kernels)
    assert parallel == tensorflow_parallelizes(described.pipeline["n1"], described)


def test_map_with_two_readers_is_fused() -> None:
    mapped = _numbers().map(_plain)
    assert "MapAndBatch" in _kernels(tf.data.Dataset.zip(mapped.batch(4), mapped))


def test_padded_batch_is_never_fused() -> None:
    assert "MapAndBatch" not in _kernels(_numbers().map(_plain).padded_batch(4))


def _order(**arguments: Any) -> list[int]:
    outer = tf.data.Dataset.range(40)
    dataset = outer.interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(3), **arguments)
    return [int(number) for number in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(("words", "arguments"), [("", {}), ("AUTOTUNE", {"num_parallel_calls": AUTOTUNE})])
def test_default_cycle_length(words: str, arguments: dict[str, Any]) -> None:
    described = context(f"list_files | interleave {words}", cores=len(os.sched_getaffinity(0)))
    length = effective_cycle_length(described.pipeline["n2"], described)
    assert _order(**arguments) == _order(cycle_length=length, block_length=1, num_parallel_calls=AUTOTUNE)


def test_more_calls_than_the_cycle_length_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="cycle_length"):
        _order(cycle_length=2, num_parallel_calls=3)


def _epochs(dataset: Any) -> list[list[int]]:
    return [[int(number) for number in dataset.as_numpy_iterator()] for _ in range(3)]


def test_shuffle_commutes_with_a_map() -> None:
    behind = _numbers().map(_plain).shuffle(10, seed=3)
    before = _numbers().shuffle(10, seed=3).map(_plain)
    first = _epochs(behind)
    assert first == _epochs(before)
    assert first[0] != first[1]


def test_repeat_right_after_the_shuffle_returns_the_same_stream() -> None:
    below = _numbers().shuffle(10, seed=3).map(_plain).repeat(3)
    behind = _numbers().shuffle(10, seed=3).repeat(3).map(_plain)
    stream = [int(number) for number in below.as_numpy_iterator()]
    assert stream == [int(number) for number in behind.as_numpy_iterator()]
    assert stream[:40] != stream[40:80] and sorted(stream[:40]) == sorted(stream[40:80])
