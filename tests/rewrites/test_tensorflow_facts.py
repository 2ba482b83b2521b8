"""What the rules assume of TensorFlow, checked against TensorFlow: a version that differs fails here."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest

from pipetune.rewrites.map_and_batch_fusion import is_fused
from pipetune.rewrites.parallel_reads import effective_cycle_length
from pipetune.rewrites.rule import RuleContext, tensorflow_parallelizes
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
    nodes = [proto.nodes[proto.output]]
    while nodes[-1].inputs:
        nodes.append(proto.nodes[nodes[-1].inputs[0]])
    del iterator
    gc.collect()
    return [node.name for node in nodes]


FUSION: list[tuple[str, Callable[[Any], Any], dict[str, bool]]] = [
    ("range 9 | map | batch 4", lambda ds: ds.map(_plain).batch(4), {}),
    ("range 9 | map random | batch 4", lambda ds: ds.map(_random).batch(4), {}),
    ("range 9 | map python | batch 4", lambda ds: ds.map(_python).batch(4), {}),
    ("range 9 | map 2 | batch 4", lambda ds: ds.map(_plain, num_parallel_calls=2).batch(4), {}),
    ("range 9 | map 2 random | batch 4", lambda ds: ds.map(_random, num_parallel_calls=2).batch(4), {}),
    ("range 9 | map | batch 4 num_parallel_calls=2", lambda ds: ds.map(_plain).batch(4, num_parallel_calls=2), {}),
    ("range 9 | map | prefetch 2 | batch 4", lambda ds: ds.map(_plain).prefetch(2).batch(4), {}),
    ("range 9 | map | take 9 | batch 4", lambda ds: ds.map(_plain).take(9).batch(4), {}),
    ("range 9 | map | shuffle 9 | batch 4", lambda ds: ds.map(_plain).shuffle(9).batch(4), {}),
    ("range 9 | map | enumerate | batch 4", lambda ds: ds.map(_plain).enumerate().batch(4), {}),
    ("range 9 | map 2 use_unbounded_threadpool=True | batch 4",
     lambda ds: ds.map(_plain, num_parallel_calls=2, use_unbounded_threadpool=True).batch(4), {}),
    ("range 9 | map | batch 4", lambda ds: ds.map(_plain).batch(4), {"map_and_batch_fusion": False}),
    ("range 9 | map | batch 4", lambda ds: ds.map(_plain).batch(4), {"apply_default_optimizations": False}),
    ("range 9 | map | batch 4", lambda ds: ds.map(_plain).batch(4),
     {"apply_default_optimizations": False, "map_and_batch_fusion": True}),
]  # fmt: skip


def _described(words: str, optimizations: dict[str, bool]) -> RuleContext:
    return context(words, options={_OPTIMIZATION + name: on for name, on in optimizations.items()})


@pytest.mark.parametrize(("words", "make", "options"), FUSION)
def test_fusion_matches_the_runtime(words: str, make: Callable[[Any], Any], options: dict[str, bool]) -> None:
    described = _described(words, options)
    (batch,) = [node for node in described.pipeline if node.op == "batch"]
    assert ("MapAndBatch" in _kernels(_with(make(_numbers()), **options))) == is_fused(batch, described)


@pytest.mark.parametrize("options", [
    {},
    {"map_parallelization": False},
    {"apply_default_optimizations": False},
    {"apply_default_optimizations": False, "map_parallelization": True},
])  # fmt: skip
def test_maps_that_tensorflow_runs_in_parallel_are_known(options: dict[str, bool]) -> None:
    described = _described("range 9 | map | prefetch 2", options)
    kernels = _kernels(_with(_numbers().map(_plain).prefetch(2), **options))
    parallel = any(kernel.startswith("ParallelMap") for kernel in kernels)
    assert parallel == tensorflow_parallelizes(described.pipeline["n1"], described)


def test_map_with_two_readers_is_fused_and_one_in_front_of_a_padded_batch_is_not() -> None:
    mapped = _numbers().map(_plain)
    assert "MapAndBatch" in _kernels(tf.data.Dataset.zip(mapped.batch(4), mapped))
    assert "MapAndBatch" not in _kernels(mapped.padded_batch(4))


def _order(**arguments: Any) -> list[int]:
    outer = tf.data.Dataset.range(40)
    dataset = outer.interleave(lambda x: tf.data.Dataset.from_tensors(x).repeat(3), **arguments)
    return [int(number) for number in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(("words", "arguments"), [("", {}), ("AUTOTUNE", {"num_parallel_calls": AUTOTUNE})])
def test_default_cycle_length(words: str, arguments: dict[str, Any]) -> None:
    described = context(f"list_files | interleave {words}", cores=len(os.sched_getaffinity(0)))
    length = effective_cycle_length(described.pipeline["n2"], described)
    assert _order(**arguments) == _order(cycle_length=length, block_length=1, num_parallel_calls=AUTOTUNE)


def test_repeat_right_after_the_shuffle_returns_the_same_stream() -> None:
    below = _numbers().shuffle(10, seed=3).map(_plain).repeat(3)
    behind = _numbers().shuffle(10, seed=3).repeat(3).map(_plain)
    stream = [int(number) for number in below.as_numpy_iterator()]
    assert stream == [int(number) for number in behind.as_numpy_iterator()]
    assert stream[:40] != stream[40:80] and sorted(stream[:40]) == sorted(stream[40:80])
