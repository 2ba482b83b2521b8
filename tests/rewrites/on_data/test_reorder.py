"""Operators that move upstream, or have no effect, on real elements: what is proposed is equal."""

from __future__ import annotations

from collections.abc import Callable
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
from pipetune.probes import batches
from pipetune.rewrites import reorder, shuffle_repeat
from pipetune.rewrites.rule import Rule
from tests.rewrites.on_data.patching import check_equal, check_patch, compared, proposed, script

FILTER, SPLIT, SHARD = reorder.FILTER_EARLY_RULE, reorder.SPLIT_EARLY_RULE, reorder.SHARD_EARLY_RULE

_DRAW = np.random.default_rng(5)
_PHOTOS = [tf.io.encode_jpeg(_DRAW.integers(0, 256, (9, 7 + n % 3, 3)).astype(np.uint8)).numpy() for n in range(40)]
_LABELS = _DRAW.integers(0, 10, 40)
_NAMES = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.range(10, dtype=tf.int64), [str(number) for number in range(10)]), "?"
)
Make = Callable[[], Any]


def numbers(count: int = 30) -> Any:
    return tf.data.Dataset.range(count)


def photos() -> Any:
    return tf.data.Dataset.from_tensor_slices((_PHOTOS, _LABELS))


def decoded(photo: Any, label: Any) -> Any:
    return tf.image.resize(tf.io.decode_jpeg(photo, channels=3), [6, 6]) / 255.0, label


def named(image: Any, label: Any) -> Any:
    return {"image": image, "label": tf.one_hot(label, 40)}


def noisy(photo: Any, label: Any) -> Any:
    return photo, label + tf.random.uniform([], maxval=3, dtype=tf.int64)


def flipped(image: Any, label: Any) -> Any:
    return tf.image.random_flip_left_right(image), label


def found(rule: Rule, dataset: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    return proposed(rule.propose, dataset, batches.annotate_predicates)


RIGHT: dict[str, tuple[Rule, Make, str]] = {
    "filtered by a table": (
        FILTER, lambda: photos().map(decoded).filter(lambda image, label: _NAMES.lookup(label) != "3").batch(4),
        "from_tensor_slices filter map batch"),
    "filtered above two maps and what is read ahead": (
        FILTER, lambda: photos().shuffle(40).map(decoded).prefetch(3).map(lambda image, label: (image * 2.0, label))
        .filter(lambda image, label: label > 4).batch(3),
        "from_tensor_slices shuffle filter map prefetch map batch"),
    "filtered behind draws that stay where they are": (
        FILTER, lambda: photos().map(noisy).map(decoded).filter(lambda image, label: label < 5).map(flipped).batch(4),
        "from_tensor_slices map filter map map batch"),
    "filtered by a component that the map gives another place": (
        FILTER, lambda: numbers(40).map(lambda x: {"b": x, "a": x * 2}).map(lambda d: {"z": d["a"] + 1, "b": d["b"]})
        .filter(lambda d: d["b"] < 9), "range map filter map"),
    "a split in order, several calls, read ahead": (
        SPLIT,
        lambda: photos().map(decoded, 3).prefetch(2).map(named, 2, deterministic=True).skip(11).batch(4).repeat(2),
        "from_tensor_slices skip map prefetch map batch repeat"),
    "a few of many read ahead": (
        SPLIT, lambda: photos().shuffle(40, seed=3).map(decoded, 4).prefetch(9).take(7).batch(3),
        "from_tensor_slices shuffle take map prefetch batch"),
    "a worker's part of the training split": (
        SHARD, lambda: photos().map(decoded, 2).map(named, 2).skip(7).shard(4, 1).batch(4).repeat(),
        "from_tensor_slices skip shard map map batch repeat"),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(("rule", "make", "operators"), RIGHT.values(), ids=RIGHT)
def test_proposed_move_returns_equal_elements(rule: Rule, make: Make, operators: str) -> None:
    source, (rewrite,) = found(rule, make())
    assert " ".join(node.op for node in apply_edits(source.pipeline, rewrite.edits)) == operators
    assert rewrite.safety is Safety.EXACT and check_equal(source, rewrite).epochs == 3


def drawn(x: Any) -> Any:
    return tf.cast(x, tf.float32) + tf.random.uniform([])


RANDOM: dict[str, tuple[Rule, Make]] = {
    "skip, then take, behind a shuffle": (SPLIT, lambda: numbers().shuffle(30).map(drawn).skip(3).take(20)),
    "shard": (SHARD, lambda: numbers().map(drawn).shard(2, 1).batch(4)),
    "filter": (FILTER, lambda: photos().map(noisy).filter(lambda photo, label: tf.strings.length(photo) % 2 == 0)),
}


@pytest.mark.parametrize(("rule", "make"), RANDOM.values(), ids=RANDOM)
def test_draws_of_the_map_meet_different_elements_of_the_same_distribution(rule: Rule, make: Make) -> None:
    source, (rewrite,) = found(rule, make())
    assert rewrite.safety is Safety.STATISTICAL and "meet different elements" in rewrite.notes[-1]
    assert check_equal(source, rewrite).epochs == 3
    assert not compared(source, rewrite.edits, Safety.EXACT).equal


def two_labels() -> Any:
    return tf.data.Dataset.from_tensor_slices((_LABELS, _LABELS[::-1].copy()))


REFUSED: dict[str, tuple[Make, str]] = {
    # These can be called upstream of the map without an error, but decide differently there.
    "reads a component that the map computes": (
        lambda: numbers(40).map(lambda x: x * 3).filter(lambda x: x < 30), "reads a component that the map computes"),
    "other places": (lambda: two_labels().map(lambda x, y: (y, x)).filter(lambda x, y: x < 5), "something different"),
    "one of two is made": (
        lambda: photos().map(decoded).filter(lambda image, label: (tf.reduce_mean(image) < 0.5) & (label < 5)), ""),
    "as many as it gets": (
        lambda: two_labels().map(lambda x, y: (x, y, x + y)).filter(lambda *row: len(row) < 3 or row[0] < 5),
        "something different"),
    # These cannot be called there.
    "other names": (lambda: numbers(40).map(lambda x: {"x": x}).filter(lambda d: d["x"] < 9), "cannot be called there"),
    "other arity": (lambda: numbers(40).map(lambda x: (x, x * 2)).filter(lambda x, y: x < 9), "cannot be called there"),
    # What these do is unknown.
    "branches": (
        lambda: photos().map(decoded).filter(lambda image, label: tf.cond(label < 5, lambda: True, lambda: label > 7)),
        "calls other functions"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_unsuitable_predicate_is_refused(make: Make, why: str) -> None:
    source, rewrites = found(FILTER, make())
    (answer,) = (one.function.on_inputs for one in source.pipeline if one.op == "filter" and one.function is not None)
    assert answer is not None and len(answer) == 1 and answer[0].why_not and why in answer[0].why_not
    assert rewrites == []


# -- operators without an effect

_OFF = tf.data.Options()
_OFF.experimental_optimization.noop_elimination = False


def rows() -> Any:
    return tf.data.Dataset.from_tensor_slices((np.arange(60).reshape(30, 2), {"y": np.arange(30), "x": np.ones(30)}))


def pairs() -> Any:
    return tf.data.Dataset.zip((numbers(), numbers().skip(1)))


NO_OPS: dict[str, Callable[[], Any]] = {
    "a map that gives what it gets": lambda: numbers().map(lambda x: x),
    "of several components": lambda: rows().map(lambda *parts: parts),
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
    assert found(shuffle_repeat.RULE, dataset)[1] == []  # TensorFlow does it
    source, (rewrite,) = found(shuffle_repeat.RULE, dataset.with_options(_OFF))
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
}


@pytest.mark.parametrize("name", NO_NO_OPS)
def test_operator_with_an_effect_is_kept(name: str) -> None:
    assert found(shuffle_repeat.RULE, NO_NO_OPS[name]().with_options(_OFF))[1] == []


REPEATS: dict[str, tuple[Callable[[], Any], int]] = {
    "finite": (lambda: numbers().repeat(2).repeat(3).batch(7), 6),
    "drawn in each": (lambda: numbers().map(lambda x: (x, tf.random.uniform([]))).repeat(2).repeat(2).batch(7), 4),
    "endlessly": (lambda: numbers().repeat(2).repeat().shuffle(9).batch(7), -1),
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


CASES: dict[str, tuple[Rule, str, str]] = {
    "a worker's part": (SHARD, """
        WORKERS, WORKER = 3, 1
        ds = tf.data.Dataset.range(30).map(lambda x: x * 2).skip(2).shard(WORKERS, index=WORKER).batch(4)
        """, ".range(30).skip(2).shard(WORKERS, index=WORKER).map(lambda x: x * 2).batch(4)"),
    "a filter": (FILTER, """
        def scale(x, y):
            return tf.cast(x, tf.float32) / 255.0, y
        ds = tf.data.Dataset.range(30).map(lambda x: (x, x % 7))
        ds = ds.map(scale)  # every row
        ds = ds.filter(lambda x, y: y < 3)
        ds = ds.batch(4)
        """, "ds = ds.filter(lambda x, y: y < 3)\nds = ds.map(scale)  # every row\nds = ds.batch(4)\n"),
    "repeats": (
        shuffle_repeat.MERGE_REPEATS_RULE, "ds = tf.data.Dataset.range(30).repeat(2).repeat(count=3).batch(4)",
        "ds = tf.data.Dataset.range(30).repeat(6).batch(4)"),
    "a map that gives what it gets": (
        shuffle_repeat.RULE,
        "options = tf.data.Options()\noptions.experimental_optimization.noop_elimination = False\n"
        "ds = tf.data.Dataset.range(30).map(lambda x: x).batch(4).with_options(options)",
        "ds = tf.data.Dataset.range(30).batch(4).with_options(options)",
    ),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rule", "text", "expected"), CASES.values(), ids=CASES)
def test_patched_source_builds_planned_pipeline(rule: Rule, text: str, expected: str, tmp_path: Path) -> None:
    sample = script(tmp_path, text)
    source, (rewrite,) = found(rule, sample.run().ds)
    check_patch(sample, source, rewrite, expected=expected, elements=30)
