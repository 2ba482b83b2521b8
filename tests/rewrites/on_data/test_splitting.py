"""Functions split in two, on real elements: the parts compute what the whole does, where they are split, and what
is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Edit, Insert, Move, Safety, SplitFunction, apply_edits
from pipetune.core.functions import FunctionSplit, SplitPosition
from pipetune.core.pipeline import Pipeline
from pipetune.equality.compare import compare
from pipetune.measure.variant_costs import measure_cut_costs
from pipetune.pipelines import live
from pipetune.pipelines.function_splitting import SplittableFunction, first_random_op
from pipetune.pipelines.replay import replay
from pipetune.probes import batches, splits

_DRAW = np.random.default_rng(7)
_COUNT = 15
_IMAGES = _DRAW.integers(0, 256, (_COUNT, 6, 5, 3)).astype(np.uint8)
_ENCODED = [tf.io.encode_png(image).numpy() for image in _IMAGES]
_MEAN = tf.constant(_DRAW.uniform(0, 255, (8, 7, 3)).astype(np.float32))


def images() -> Any:
    return tf.data.Dataset.from_tensor_slices((_IMAGES, np.arange(_COUNT)))


def encoded() -> Any:
    return tf.data.Dataset.from_tensor_slices((_ENCODED, np.arange(_COUNT)))


def told(dataset: Any) -> tuple[live.LivePipeline, Pipeline]:
    source = live.read(dataset)
    return source, splits.annotate_splits(source, batches.annotate_batches(source, source.pipeline))


def found(dataset: Any) -> tuple[live.LivePipeline, FunctionSplit | None]:
    source, pipeline = told(dataset)
    asked = [node.function.cuts for node in pipeline if node.op == "map" and node.function is not None]
    return source, next((cut for some in asked for cut in some or ()), None)


def _seeded(image: Any, label: Any) -> Any:
    image = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    image = tf.image.random_flip_left_right(image, seed=3)
    return image + tf.random.uniform([], seed=4), label


def _unseeded(image: Any, label: Any) -> Any:
    small = tf.image.resize(tf.cast(image, tf.float32), [8, 7]) - _MEAN
    mean = tf.reduce_mean(small)
    drawn = tf.random.normal([2])
    return {"image": tf.image.random_crop(small, [5, 5, 3]) - mean, "label": tf.cast(label, tf.float32) + drawn}


def _in_a_branch(image: Any, label: Any) -> Any:
    image = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    if tf.random.uniform([]) > 0.5:
        image = image * tf.random.uniform([])
    return image, label


def _in_one_expression(image: Any, label: Any) -> Any:
    return tf.image.random_flip_left_right(tf.image.resize(tf.cast(image, tf.float32), [8, 7])), label


_TRACED = tf.function(lambda image: image + tf.random.normal([3]))


def _in_a_function_of_tensorflows(image: Any, label: Any) -> Any:
    image = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    return _TRACED(image), label


_KEYS = tf.lookup.KeyValueTensorInitializer(tf.range(_COUNT, dtype=tf.int64), tf.range(_COUNT) * 3)
_TABLE = tf.lookup.StaticHashTable(_KEYS, default_value=-1)


def _checked(image: Any, label: Any) -> Any:
    tf.debugging.assert_less(label, tf.constant(100, tf.int64))
    small = tf.image.resize(tf.cast(image, tf.float32), [8, 7])
    for _ in tf.range(tf.cast(label, tf.int32) % 3):
        small = small * 0.5
    found = _TABLE.lookup(label)
    drawn = tf.random.uniform([])
    return {"a": small * drawn, "b": (small, image), "c": small, "label": [label, tf.cast(found, tf.int64)]}


DRAWING: dict[str, tuple[Callable[..., Any], int | None, int]] = {
    "seeded": (_seeded, 1, 2),
    "unseeded, a captured tensor, three handed on": (_unseeded, 2, 3),
    "a check, a loop, a table, tensors given twice": (_checked, 4, 4),
    "in a branch": (_in_a_branch, 1, 2),
    "in one expression": (_in_one_expression, None, 2),
    "in a traced function": (_in_a_function_of_tensorflows, 1, 2),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", DRAWING)
def test_head_before_random_draws_is_cached(name: str) -> None:
    function, statement, handed = DRAWING[name]
    source, cut = found(images().map(function).shuffle(5).batch(4).prefetch(1))
    assert cut is not None and not cut.why_not, cut
    assert (cut.kind, cut.statement, cut.handed) == (SplitPosition.BEFORE_DRAWS, statement, handed)
    edited = apply_edits(source.pipeline, _cached("n1", cut))
    proof = compare(source, edited, Safety.STATISTICAL, elements=_COUNT)
    assert proof.proven and proof.equal and proof.epochs == 3, proof


def _cached(node: str, cut: FunctionSplit) -> list[Edit]:
    split = SplitFunction(node, cut)
    return [split, Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})]


def test_seeded_draws_are_kept() -> None:
    source, cut = found(images().map(_seeded))
    assert cut is not None
    edited = replay(source, apply_edits(source.pipeline, _cached("n1", cut)))
    assert edited.element_spec == source.dataset.element_spec
    epochs = [[image.numpy() for image, _ in source.dataset] for _ in range(2)]
    again = [[image.numpy() for image, _ in edited] for _ in range(2)]
    assert np.array_equal(epochs, again)


def test_split_after_a_random_draw_is_rejected() -> None:
    source, cut = found(images().map(_unseeded).batch(4))
    assert cut is not None
    whole = SplittableFunction(source.datasets["n1"]._map_func)
    late = replace(cut, position=first_random_op(whole) + 1)
    proof = compare(source, apply_edits(source.pipeline, _cached("n1", late)), Safety.STATISTICAL, elements=_COUNT)
    assert not proof.equal


def _decode(data: Any) -> Any:
    image = tf.io.decode_png(data, channels=3)
    image.set_shape([6, 5, 3])
    return image


def _normalised(data: Any, label: Any) -> Any:
    image = _decode(data)
    image = tf.cast(image, tf.float32) / 255.0
    return (image - [0.1, 0.2, 0.3]) * 2.0, tf.one_hot(label, 20)


def _in_one(data: Any, label: Any) -> Any:
    return {"x": tf.image.convert_image_dtype(_decode(data), tf.float32), "y": label}


def _only_at_the_end(data: Any, label: Any) -> Any:
    image = tf.cast(_decode(data), tf.float32)
    image = tf.reshape(image, [15, 6])
    image = tf.clip_by_value(image * 3.0 - 5.0, 0.0, 200.0)
    return image, label


def _rooted(data: Any, label: Any) -> Any:
    image = _decode(data)
    return tf.exp(tf.cast(image, tf.float32) / 255.0), label


ENDING: dict[str, tuple[Callable[..., Any], int | None, int, tuple[str, ...]]] = {
    "cast, scale, one-hot": (_normalised, 1, 90 + 8, ()),
    "inside one expression": (_in_one, None, 90 + 8, ()),
    "no smaller than at the end": (_only_at_the_end, 2, 360 + 8, ()),
    "last bits": (_rooted, 1, 90 + 8, ("Exp",)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("drop", [False, True], ids=["partial batch", "whole batches"])
@pytest.mark.parametrize("name", ENDING)
def test_tail_moves_downstream_of_the_batch(name: str, drop: bool) -> None:
    function, statement, size, inexact = ENDING[name]
    source, cut = found(encoded().map(function, num_parallel_calls=2).shuffle(5).batch(4, drop_remainder=drop))
    assert cut is not None and not cut.why_not, cut
    assert (cut.kind, cut.statement) == (SplitPosition.BEFORE_ELEMENTWISE_OPS, statement)
    assert (cut.element_bytes, cut.inexact) == (size, inexact)
    edited = apply_edits(source.pipeline, [SplitFunction("n1", cut), Move("n1", "n3")])
    safety = Safety.APPROXIMATE if inexact else Safety.EXACT
    proof = compare(source, edited, safety, elements=_COUNT)
    assert proof.proven and proof.equal and proof.epochs == 3, proof


def test_tail_moves_downstream_of_a_cache() -> None:
    source, cut = found(encoded().map(_normalised).cache().shuffle(5).batch(4))
    assert cut is not None
    edited = apply_edits(source.pipeline, [SplitFunction("n1", cut), Move("n1", "n4")])
    proof = compare(source, edited, Safety.EXACT, elements=_COUNT)
    assert proof.proven and proof.equal, proof


REFUSED: dict[str, tuple[Callable[[], Any], str | None]] = {
    "it draws at once": (
        lambda: images().map(lambda image, label: (tf.random.uniform([]) * tf.cast(image, tf.float32), label)),
        "no work before its first random draw",
    ),
    "one of several shapes": (
        lambda: encoded().map(lambda data, _: tf.cast(tf.io.decode_png(data), tf.float32) / 255.0).batch(1).batch(4),
        "not fixed",
    ),
    "numbers of an element with one number of it": (
        lambda: encoded().map(lambda data, label: _decode(data) * tf.cast(label, tf.uint8)).batch(4),
        "mix the rows",
    ),
    "a constant beside it": (
        lambda: encoded().map(lambda data, _: (tf.cast(_decode(data), tf.float32) / 255.0, 5)).batch(4),
        "once per batch",
    ),
    "no such end": (
        lambda: encoded().map(lambda data, _: tf.reduce_mean(tf.cast(_decode(data), tf.float32))).batch(4),
        None,
    ),
    "flipped at the end": (lambda: encoded().map(lambda data, _: tf.reverse(_decode(data), [1])).batch(4), None),
    "batched": (lambda: encoded().map(_normalised), None),
    "all of it may stand behind the batch": (
        lambda: images().map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label)).batch(4),
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsuitable_function_is_refused(name: str) -> None:
    make, why = REFUSED[name]
    _, cut = found(make())
    assert (cut is None) if why is None else (cut is not None and why in cut.why_not), cut


def _printing(image: Any, _: Any) -> Any:
    tf.print(image[0, 0, 0])
    return tf.cast(image, tf.float32) + tf.random.uniform([])


STATE: dict[str, Callable[[Any, Any], Any]] = {
    "python": lambda image, _: tf.py_function(lambda one: one, [image], tf.uint8),
    "a variable": lambda image, _: tf.cast(image, tf.float32) * _VARIABLE + tf.random.uniform([]),
    "a generator": lambda image, _: tf.cast(image, tf.float32) * _GENERATOR.uniform([]),
    "a print": _printing,
}
_VARIABLE = tf.Variable(2.0)
_GENERATOR = tf.random.Generator.from_seed(3)


@pytest.mark.parametrize("name", STATE)
def test_stateful_function_is_not_probed(name: str) -> None:
    assert found(images().map(STATE[name]).batch(4))[1] is None


def test_costs_of_both_parts_are_measured() -> None:
    source, pipeline = told(encoded().map(_normalised).batch(4))
    (costs,) = measure_cut_costs(source, pipeline)["n1"].values()
    assert 0 <= costs.head_share <= 1 and costs.on_batch_seconds is not None and costs.saved_seconds is not None
    source, pipeline = told(images().map(_seeded).batch(4))
    measured = measure_cut_costs(source, pipeline)
    assert list(measured) == ["n1"] and list(measured["n1"]) == [SplitPosition.BEFORE_DRAWS]
    assert 0 < measured["n1"][SplitPosition.BEFORE_DRAWS].head_share < 1
