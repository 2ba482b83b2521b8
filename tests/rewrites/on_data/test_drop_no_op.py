"""No-op operators and repeats of repeats on real elements, and which no-ops TensorFlow removes itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import tensorflow_private
from pipetune.core.edits import Remove, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.pipeline import passes_components
from pipetune.pipelines import live
from pipetune.rewrites import drop_no_op, shuffle_repeat
from pipetune.rewrites.rule import Rule
from tests.rewrites.on_data.patching import check_equal, check_patch, compared, proposed, script

_OFF = tf.data.Options()
_OFF.experimental_optimization.noop_elimination = False


def numbers() -> Any:
    return tf.data.Dataset.range(30)


def rows() -> Any:
    return tf.data.Dataset.from_tensor_slices((np.arange(60).reshape(30, 2), {"y": np.arange(30), "x": np.ones(30)}))


def pairs() -> Any:
    return tf.data.Dataset.zip((numbers(), numbers().skip(1)))


def found(rule: Rule, dataset: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    return proposed(rule.propose, dataset)


def given_back(*parts: Any) -> Any:
    return parts if len(parts) > 1 else parts[0]


NO_OPS: dict[str, Callable[[], Any]] = {
    "a map that gives what it gets": lambda: numbers().map(lambda x: x),
    "of several components": lambda: rows().map(given_back),
    "through copies": lambda: rows().map(lambda a, d: (tf.identity(a), {**d})),
    "take of all": lambda: numbers().take(-1),
    "skip of none": lambda: numbers().skip(0),
    "one epoch": lambda: numbers().repeat(1),
    "one shard": lambda: numbers().shard(1, 0),
}

RESTRUCTURED = {"in another structure": lambda: rows().map(lambda a, d: {"a": a, "b": d["x"], "c": d["y"]})}
"""What TensorFlow removes, too: its graph knows components alone, in the order of `tf.nest.flatten`."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NO_OPS)
def test_no_op_is_removed(name: str) -> None:
    dataset = NO_OPS[name]().batch(4)
    assert found(drop_no_op.RULE, dataset)[1] == []  # TensorFlow does it
    source, (rewrite,) = found(drop_no_op.RULE, dataset.with_options(_OFF))
    assert len(apply_edits(source.pipeline, rewrite.edits).nodes) == len(source.pipeline.nodes) - 1
    assert rewrite.safety is Safety.EXACT and check_equal(source, rewrite, elements=30)


@pytest.mark.parametrize("name", [*NO_OPS, *RESTRUCTURED])
def test_tensorflow_removes_the_same_no_ops(name: str) -> None:
    dataset = (NO_OPS | RESTRUCTURED)[name]()
    source = live.read(dataset)
    assert passes_components(source.pipeline.output)
    assert source.pipeline.has_no_effect(source.pipeline.output) is (name in NO_OPS)
    before, after = (
        [node.op for node in tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(one)).node]
        for one in (dataset, tensorflow_private.with_graph_passes(dataset, ("noop_elimination",), autotune=True))
    )
    kind = dataset.__class__.__name__.strip("_").removesuffix("Dataset")
    assert any(op.startswith(kind) for op in before)
    assert not any(op.startswith(kind) for op in after)


def shaped(x: Any) -> Any:
    x.set_shape([2])
    return x


def counted(x: Any) -> Any:
    _COUNTER.assign_add(1)
    return x


_COUNTER = tf.Variable(0)

NO_NO_OPS: dict[str, Callable[[], Any]] = {
    "sets a shape": lambda: numbers().batch(2).map(shaped),
    "checks a shape": lambda: numbers().batch(2).map(lambda x: tf.ensure_shape(x, [None])),
    "prints": lambda: numbers().map(lambda x: (tf.print(x), x)[1]),
    "asserts": lambda: numbers().map(lambda x: (tf.debugging.assert_less(x, tf.constant(99, tf.int64)), x)[1]),
    "counts": lambda: numbers().map(counted),
    "draws": lambda: numbers().map(lambda x: (tf.random.uniform([]), x)[1]),
    "runs Python": lambda: numbers().map(lambda x: tf.py_function(lambda y: y, [x], tf.int64)),
    "casts to what it is": lambda: numbers().map(lambda x: x + 0),
    "other structure": lambda: rows().map(lambda a, d: (a, d["x"], d["y"])),
    "other names": lambda: rows().map(lambda a, d: (a, {"z": d["x"], "y": d["y"]})),
    "names exchanged": lambda: rows().map(lambda a, d: (a, {"y": tf.cast(d["x"], tf.int64), "x": d["x"]})),
    "places exchanged": lambda: pairs().map(lambda a, b: (b, a)),
    "one of two": lambda: pairs().map(lambda a, b: a),
    "one twice": lambda: pairs().map(lambda a, b: (a, a)),
    "a list of it": lambda: numbers().map(lambda x: [x]),
    "a batch of it": lambda: numbers().batch(1),
    "batches in batches": lambda: numbers().batch(2).batch(3),
    "a filter of all": lambda: numbers().filter(lambda x: True),
    "a shuffle of one": lambda: numbers().shuffle(1),
}


@pytest.mark.parametrize("name", NO_NO_OPS)
def test_operator_with_an_effect_is_kept(name: str) -> None:
    assert found(drop_no_op.RULE, NO_NO_OPS[name]().with_options(_OFF))[1] == []


WRONG = ["sets a shape", "other structure", "other names", "names exchanged", "places exchanged", "one of two",
         "one twice", "a batch of it", "batches in batches", "a filter of all", "a shuffle of one"]  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_removing_an_effective_operator_is_rejected(name: str) -> None:
    source = live.read(NO_NO_OPS[name]())
    assert not compared(source, [Remove(source.pipeline.output.id)], Safety.EXACT, elements=30).equal


@pytest.mark.parametrize(("sizes", "left"), [((5, 2), 5), ((3, -1), -1)])
def test_larger_of_two_prefetches_is_kept(sizes: tuple[int, int], left: int) -> None:
    dataset = numbers().shuffle(9).map(lambda x: x * 2).prefetch(sizes[0]).prefetch(sizes[1])
    source, (rewrite,) = found(drop_no_op.RULE, dataset)
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert [node.argument("buffer_size") for node in edited if node.op == "prefetch"] == [left]
    check_equal(source, rewrite, elements=30)


REPEATS: dict[str, tuple[Callable[[], Any], int]] = {
    "finite": (lambda: numbers().repeat(2).repeat(3).batch(7), 6),
    "in the same order": (lambda: numbers().shuffle(9, seed=3, reshuffle_each_iteration=False).repeat(3).repeat(2), 6),
    "drawn in each": (lambda: numbers().map(lambda x: (x, tf.random.uniform([]))).repeat(2).repeat(2).batch(7), 4),
    "endlessly": (lambda: numbers().repeat(2).repeat().shuffle(9).batch(7), -1),
    "without end, then some": (lambda: numbers().repeat().repeat(4).batch(7), -1),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(("make", "count"), REPEATS.values(), ids=REPEATS)
def test_merged_repeats_return_the_same_epochs(make: Callable[[], Any], count: int) -> None:
    source, (rewrite,) = found(shuffle_repeat.MERGE_REPEATS_RULE, make())
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert [node.argument("count") for node in edited if node.op == "repeat"] == [count]
    assert rewrite.safety is Safety.EXACT and check_equal(source, rewrite, elements=30)


def test_repeats_after_a_shuffle_are_not_merged() -> None:
    """Merging them changes the orders of a whole second iteration."""
    twice, again, once = (numbers().shuffle(9, seed=3).repeat(count) for count in (2, 2, 6))
    drawn = [[[int(x) for x in dataset] for _ in range(2)] for dataset in (twice.repeat(3), again.repeat(3), once)]
    assert drawn[0] == drawn[1] and drawn[0][0] == drawn[2][0] and drawn[0][1] != drawn[2][1]
    source, rewrites = found(shuffle_repeat.MERGE_REPEATS_RULE, twice.repeat(3))
    assert rewrites == []
    assert not compared(source, [Remove("n3"), SetArgument("n2", "count", 6)], Safety.EXACT, elements=30).equal


@pytest.mark.parametrize("count", [5, -1])
def test_wrong_number_of_epochs_is_rejected(count: int) -> None:
    source, (rewrite,) = found(shuffle_repeat.MERGE_REPEATS_RULE, numbers().repeat(2).repeat(3))
    wrong = [replace(edit, value=count) if isinstance(edit, SetArgument) else edit for edit in rewrite.edits]
    assert not compared(source, wrong, Safety.EXACT, elements=30).equal


CASES: dict[str, tuple[Rule, str, str]] = {
    "repeats": (
        shuffle_repeat.MERGE_REPEATS_RULE, "ds = tf.data.Dataset.range(30).repeat(2).repeat(count=3).batch(4)",
        "ds = tf.data.Dataset.range(30).repeat(6).batch(4)"),
    "a map that gives what it gets": (
        drop_no_op.RULE,
        "options = tf.data.Options()\noptions.experimental_optimization.noop_elimination = False\n"
        "ds = tf.data.Dataset.range(30).map(lambda x: x).batch(4).with_options(options)",
        "ds = tf.data.Dataset.range(30).batch(4).with_options(options)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "text", "expected"), CASES.values(), ids=CASES)
def test_patched_source_builds_planned_pipeline(rule: Rule, text: str, expected: str, tmp_path: Path) -> None:
    sample = script(tmp_path, text)
    source, (rewrite,) = found(rule, sample.run().ds)
    check_patch(sample, source, rewrite, expected=expected, elements=30)
