"""Filtering before the maps, on real elements: when a predicate decides equally there, and when it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Move, Rewrite, Safety, apply_edits
from pipetune.core.functions import PredicatePushdown
from pipetune.equality.compare import compare, compare_datasets
from pipetune.pipelines import live
from pipetune.probes import batches
from pipetune.rewrites import reorder
from pipetune.rewrites.rule import RuleContext
from tests.pipelines.test_recorder import Sample
from tests.rewrites.on_data.patching import check_patch

_DRAW = np.random.default_rng(5)
_PHOTOS = [
    tf.io.encode_jpeg(_DRAW.integers(0, 256, (9, 7 + number % 3, 3)).astype(np.uint8)).numpy() for number in range(40)
]
_LABELS = _DRAW.integers(0, 10, 40)
_WANTED = tf.constant([2, 3, 5, 7], tf.int64)
_NAMES = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.range(10, dtype=tf.int64), [str(number) for number in range(10)]), "?"
)


def photos() -> Any:
    return tf.data.Dataset.from_tensor_slices((_PHOTOS, _LABELS))


def decoded(photo: Any, label: Any) -> Any:
    return tf.image.resize(tf.io.decode_jpeg(photo, channels=3), [6, 6]) / 255.0, label


def answers(dataset: Any) -> tuple[PredicatePushdown, ...]:
    source = live.read(dataset)
    (node,) = [one for one in batches.annotate_predicates(source, source.pipeline) if one.op == "filter"]
    assert node.function is not None
    return node.function.on_inputs or ()


def proposed(dataset: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    source = live.read(dataset)
    told = batches.annotate_predicates(source, source.pipeline)
    found = list(reorder.FILTER_EARLY_RULE.propose(RuleContext(told, cores=2)))
    return source, [one for one in found if isinstance(one, Rewrite)]


RIGHT: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "by label": (
        lambda: photos().map(decoded).filter(lambda image, label: label < 5).batch(4),
        ["from_tensor_slices", "filter", "map", "batch"],
    ),
    "by a captured list": (
        lambda: photos().map(decoded, 2).filter(lambda image, label: tf.reduce_any(label == _WANTED)).batch(4).repeat(),
        ["from_tensor_slices", "filter", "map", "batch", "repeat"],
    ),
    "by a table": (
        lambda: photos().map(decoded).filter(lambda image, label: _NAMES.lookup(label) != "3").batch(4),
        ["from_tensor_slices", "filter", "map", "batch"],
    ),
    "by name": (
        lambda: (
            tf.data.Dataset.from_tensor_slices({"photo": _PHOTOS, "label": _LABELS})
            .map(lambda d: {"image": tf.io.decode_jpeg(d["photo"]), "label": d["label"]})
            .filter(lambda d: d["label"] % 2 == 0)
            .shuffle(9)
        ),
        ["from_tensor_slices", "filter", "map", "shuffle"],
    ),
    "above two maps and what is read ahead": (
        lambda: (
            photos()
            .shuffle(40)
            .map(decoded)
            .prefetch(3)
            .map(lambda image, label: (image * 2.0, label))
            .filter(lambda image, label: label > 4)
            .batch(3)
        ),
        ["from_tensor_slices", "shuffle", "filter", "map", "prefetch", "map", "batch"],
    ),
    "behind draws that stay where they are": (
        lambda: (
            photos()
            .map(lambda photo, label: (photo, label + tf.random.uniform([], maxval=3, dtype=tf.int64)))
            .map(decoded)
            .filter(lambda image, label: label < 5)
            .map(lambda image, label: (tf.image.random_flip_left_right(image), label))
            .batch(4)
        ),
        ["from_tensor_slices", "map", "filter", "map", "map", "batch"],
    ),
    "a place that the map gives another number": (
        lambda: (
            tf.data.Dataset.range(40)
            .map(lambda x: {"b": x, "a": x * 2})
            .map(lambda d: {"z": d["a"] + 1, "b": d["b"]})
            .filter(lambda d: d["b"] < 9)
        ),
        ["range", "map", "filter", "map"],
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RIGHT)
def test_moved_filter_returns_equal_elements(name: str) -> None:
    make, operators = RIGHT[name]
    source, (rewrite,) = proposed(make())
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert [node.op for node in edited] == operators
    proof = compare(source, edited, rewrite.safety, elements=40)
    assert rewrite.safety is Safety.EXACT and proof.proven and proof.equal, proof
    assert proof.epochs == 3


def of_two(x: Any, y: Any) -> Any:
    x.set_shape([2])
    return x, y


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # These can be called upstream of the map without an error, but decide differently there.
    "reads a component that the map computes": (
        lambda: tf.data.Dataset.range(40).map(lambda x: x * 3).filter(lambda x: x < 30),
        "reads a component that the map computes",
    ),
    "components change places": (
        lambda: (
            tf.data.Dataset.from_tensor_slices((_LABELS, _LABELS[::-1].copy()))
            .map(lambda x, y: (y, x))
            .filter(lambda x, y: x < 5)
        ),
        "something different",
    ),
    "one of two is made": (
        lambda: photos().map(decoded).filter(lambda image, label: (tf.reduce_mean(image) < 0.5) & (label < 5)),
        "",
    ),
    "as many as it gets": (
        lambda: (
            tf.data.Dataset.from_tensor_slices((_LABELS, _LABELS))
            .map(lambda x, y: (x, y, x + y))
            .filter(lambda *row: len(row) < 3 or row[0] < 5)
        ),
        "something different",
    ),
    "a shape that the map sets": (
        lambda: (
            tf.data.Dataset.from_generator(
                lambda: iter([([1, 2], 3), ([3, 4], 5)]),
                output_signature=(tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int64)),
            )
            .map(of_two)
            .filter(lambda x, y: y < (4 if x.shape[0] == 2 else 9))
        ),
        "something different",
    ),
    # These cannot be called there.
    "other names": (
        lambda: tf.data.Dataset.range(40).map(lambda x: {"x": x}).filter(lambda d: d["x"] < 9),
        "cannot be called there",
    ),
    "different arguments": (
        lambda: tf.data.Dataset.range(40).map(lambda x: (x, x * 2)).filter(lambda x, y: x < 9),
        "cannot be called there",
    ),
    # What these do is unknown.
    "branches": (
        lambda: photos().map(decoded).filter(lambda image, label: tf.cond(label < 5, lambda: True, lambda: label > 7)),
        "calls other functions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsuitable_predicate_is_refused(name: str) -> None:
    make, why = REFUSED[name]
    dataset = make()
    (answer,) = answers(dataset)
    assert answer.why_not and why in answer.why_not, answer
    _, rewrites = proposed(dataset)
    assert rewrites == []


def test_predicate_with_a_late_bound_value_is_refused() -> None:
    limit = 5
    dataset = photos().map(decoded).filter(lambda image, label: label < limit)
    limit = 7
    (answer,) = answers(dataset)
    assert "something different" in answer.why_not


WRONG: dict[str, Callable[[], Any]] = {
    "a map whose result it reads": lambda: tf.data.Dataset.range(40).map(lambda x: x * 3).filter(lambda x: x < 30),
    "a random map": lambda: (
        tf.data.Dataset.range(40)
        .map(lambda x: x + tf.random.uniform([], maxval=9, dtype=tf.int64))
        .filter(lambda x: x < 30)
    ),
    "a shuffle": lambda: tf.data.Dataset.range(40).shuffle(9, seed=2).filter(lambda x: x < 30),
    "a take": lambda: tf.data.Dataset.range(40).take(9).filter(lambda x: x % 3 == 0),
    "a skip": lambda: tf.data.Dataset.range(40).skip(9).filter(lambda x: x % 3 == 0),
    "a shard": lambda: tf.data.Dataset.range(40).shard(3, 0).filter(lambda x: x % 3 == 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_filter_move_without_a_proposal_changes_elements(name: str) -> None:
    source, rewrites = proposed(WRONG[name]())
    assert rewrites == []
    edited = apply_edits(source.pipeline, [Move(source.pipeline.output.id, "n0")])
    assert not compare(source, edited, Safety.EXACT, elements=40).equal


def test_changed_predicate_is_rejected() -> None:
    source = photos()
    found = compare_datasets(
        source.map(decoded).filter(lambda image, label: label < 5),
        source.filter(lambda image, label: label < 6).map(decoded),
        Safety.EXACT,
        elements=40,
    )
    assert not found.equal


def test_patched_source_builds_planned_pipeline(tmp_path: Path) -> None:
    text = """
        import tensorflow as tf

        def scale(x, y):
            return tf.cast(x, tf.float32) / 255.0, y

        ds = tf.data.Dataset.range(30).map(lambda x: (x, x % 7))
        ds = ds.map(scale)  # every row
        ds = ds.filter(lambda x, y: y < 3)
        ds = ds.batch(4)
        """
    sample = Sample(tmp_path, text)
    source, (rewrite,) = proposed(sample.run().ds)
    expected = "ds = ds.filter(lambda x, y: y < 3)\nds = ds.map(scale)  # every row\nds = ds.batch(4)\n"
    check_patch(sample, source, rewrite, expected=expected, elements=30)
