"""Fused maps on real elements: when the composed function computes the same, and when fusion is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from tensorflow.python.eager import context

from pipetune.core.edits import Rewrite, Safety, apply_edits
from pipetune.core.functions import FunctionVariant, MapFusion
from pipetune.pipelines import live, replay
from pipetune.probes import annotate_graph_edits
from pipetune.rewrites import batch_first, where_to_cond
from pipetune.rewrites.conflicts import find_conflict
from pipetune.rewrites.rule import RuleContext
from tests.rewrites.on_data.patching import check_equal, check_patch, proposed, script

_DRAW = np.random.default_rng(5)
_IMAGES = _DRAW.integers(0, 256, (30, 5, 4, 3)).astype(np.uint8)
_LABELS = np.arange(30)


class Point(NamedTuple):
    x: Any
    y: Any


def images() -> Any:
    return tf.data.Dataset.from_tensor_slices((_IMAGES, _LABELS))


def numbers() -> Any:
    return tf.data.Dataset.range(30)


def reals() -> Any:
    return tf.data.Dataset.from_tensor_slices(_DRAW.random((30, 5), np.float32))


def scale(image: Any, label: Any) -> Any:
    return tf.cast(image, tf.float32) / 255.0, label


def named(image: Any, label: Any) -> Any:
    return {"image": tf.image.resize(image, [7, 9]), "label": tf.one_hot(label, 30)}


def flat(element: Any) -> Any:
    return tf.reshape(element["image"], [-1]), element["label"]


def answer(dataset: Any) -> MapFusion | None:
    source = live.read(dataset)
    lowest = [node for node in replay.annotate_fusions(source, source.pipeline) if node.op == "map"][-1]
    return None if lowest.function is None else lowest.function.fused


def found(dataset: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    return proposed(batch_first.propose_map_fusion, dataset, replay.annotate_fusions)


_TABLE = tf.constant(_DRAW.standard_normal((5, 2)).astype(np.float32))

RIGHT: dict[str, tuple[Callable[[], Any], str]] = {
    "three, several calls": (
        lambda: images().shuffle(9).map(scale, 2).map(named, 2).map(flat, 2).batch(4).repeat(2),
        "from_tensor_slices shuffle map batch repeat"),
    "a named tuple": (
        lambda: numbers().map(lambda x: Point(x, x * 2)).map(lambda p: p.x + p.y), "range map"),
    "a branch in a branch": (
        lambda: numbers().map(lambda x: tf.cond(x > 3, lambda: tf.cond(x > 5, lambda: x, lambda: -x), lambda: -x))
        .map(lambda x: x + 1), "range map"),
    "arithmetic that stays apart": (
        lambda: reals().map(lambda x: x / 255.0).map(lambda x: (x - 0.3) * 2.0 - 1.0), "from_tensor_slices map"),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(("make", "operators"), RIGHT.values(), ids=RIGHT)
def test_fused_maps_return_equal_elements(make: Callable[[], Any], operators: str) -> None:
    source, (rewrite,) = found(make())
    assert " ".join(node.op for node in apply_edits(source.pipeline, rewrite.edits)) == operators
    assert rewrite.safety is Safety.EXACT and check_equal(source, rewrite, elements=30).epochs == 3


_DIFFERENT = "something different"

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a number of Python's": (
        lambda: numbers().map(lambda x: (x, 3))
        .map(lambda x, n: x if isinstance(n, int) else x * tf.cast(n, tf.int64)), _DIFFERENT),
    "a branch that differs": (
        lambda: numbers().map(lambda x: (x, 3))
        .map(lambda x, n: tf.cond(x > 3, lambda: x * 3 if isinstance(n, int) else x * 2, lambda: x)), _DIFFERENT),
    "a loop": (
        lambda: numbers().map(lambda x: tf.while_loop(lambda i: i < 9, lambda i: (i + 2,), (x,))[0])
        .map(lambda x: x + 1), "calls other functions"),
    "a draw in a branch": (
        lambda: numbers().map(lambda x: tf.cond(x > 3, lambda: tf.random.uniform([]), lambda: 0.0))
        .map(lambda x: x + 1), "draws random numbers in a branch"),
    "a number of NumPy's, drawn when the function is traced": (
        lambda: numbers().map(lambda x: x + tf.random.uniform([], 0, 9, tf.int64))
        .map(lambda x: x + int(_DRAW.integers(1_000_000))), _DIFFERENT),
    # What TensorFlow reorders or fuses within one function, but not in two.
    "two products": (lambda: reals().map(lambda x: x * 0.3).map(lambda x: x * 0.7), "result of Mul differently"),
    "two sums": (lambda: reals().map(lambda x: (x, x + 0.3)).map(lambda x, y: x + y), "result of AddV2 differently"),
    "log1p": (lambda: reals().map(lambda x: x * x + 1.0).map(tf.math.log), "result of Log differently"),
    "expm1": (lambda: reals().map(tf.exp).map(lambda x: x - 1.0), "result of Sub differently"),
    "rsqrt": (lambda: reals().map(tf.sqrt).map(lambda x: 3.0 / x), "result of RealDiv differently"),
    "log_softmax": (lambda: reals().map(tf.nn.softmax).map(tf.math.log), "result of Log differently"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_unsuitable_functions_are_refused(make: Callable[[], Any], why: str) -> None:
    dataset = make()
    fusion = answer(dataset)
    assert fusion is not None and why in fusion.why_not and fusion.why_not, fusion
    assert found(dataset)[1] == []


def _flipped(image: Any, label: Any) -> Any:
    return tf.image.random_flip_left_right(image), label


def _noisy(image: Any, label: Any) -> Any:
    noise = tf.random.normal([4, 1])
    return tf.image.random_contrast(image, 0.5, 1.5) + noise * tf.random.uniform([]), label


RANDOM: dict[str, tuple[Callable[[], Any], str]] = {
    "random first": (lambda: images().map(_flipped).map(scale).map(named).batch(4), "from_tensor_slices map batch"),
    "several, with several calls": (
        lambda: images().shuffle(9).map(scale, 2).map(_flipped, 2).map(_noisy, 2).map(_noisy, 2).batch(4),
        "from_tensor_slices shuffle map map batch"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize(("make", "operators"), RANDOM.values(), ids=RANDOM)
def test_fused_random_maps_draw_from_the_same_distributions(make: Callable[[], Any], operators: str) -> None:
    source, rewrites = found(make())
    (rewrite,) = (one for one in rewrites if one.safety is Safety.STATISTICAL)
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert " ".join(node.op for node in edited) == operators
    fused = next(node.function for node in reversed(edited.nodes) if node.function is not None and node.function.first)
    assert fused.random  # also where only a function that it calls draws: nothing may be cached behind it
    proof = check_equal(source, rewrite, elements=30)
    assert not any("constant" in note for note in proof.notes)  # draw by draw, with real numbers


def test_global_seed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds that TensorFlow derives from it differ from function to function."""
    monkeypatch.setattr(context.context(), "_seed", None)  # restored at the end
    tf.random.set_seed(5)
    fusion = answer(images().map(scale).map(_noisy).map(_noisy))
    assert fusion is not None and "something different" in fusion.why_not


CASES: dict[str, tuple[str, str]] = {
    "in a chain": ("""
        def pair(x):
            return x, x % 7
        def join(x, y):
            return {"x": tf.cast(x, tf.float32) / 255.0, "y": y}
        def parts(element):
            return element["x"], element["y"]
        ds = (
            tf.data.Dataset.range(30)
            .map(pair, num_parallel_calls=2)
            .map(join, num_parallel_calls=2)  # names
            .map(parts, num_parallel_calls=2)
            .batch(4)
        )
        """,
        "    tf.data.Dataset.range(30)\n"
        "    .map(lambda element: parts(join(*pair(element))), num_parallel_calls=2)\n"
        "    .batch(4)\n"),
    "more than three, line by line": ("""
        def both(function):
            return lambda x, y: (function(x), function(y))
        def make():
            ds = tf.data.Dataset.range(30)
            ds = ds.map(lambda x: (x, x % 7))
            ds = ds.map(both(tf.math.square))
            ds = ds.map(lambda x, y: {"x": x, "y": y})
            ds = ds.map(lambda element: element["x"] + element["y"])
            return ds.batch(4)
        ds = make()
        """,
        "    both_square = both(tf.math.square)\n"
        "\n"
        "    def fused(element):\n"
        "        element = (lambda x: (x, x % 7))(element)\n"
        "        element = both_square(*element)\n"
        '        element = (lambda x, y: {"x": x, "y": y})(*element)\n'
        '        return (lambda element: element["x"] + element["y"])(element)\n'
        "\n"
        "    ds = ds.map(fused)\n"),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_patched_source_builds_planned_pipeline(text: str, expected: str, tmp_path: Path) -> None:
    sample = script(tmp_path, text)
    source, (rewrite,) = found(sample.run().ds)
    check_patch(sample, source, rewrite, expected=expected, elements=30)


SELECTING = """
from tests.rewrites.on_data.test_where_to_cond import images
def both(function):
    return lambda x, y: (function(x), function(y))
def brighter(image):
    return tf.image.random_brightness(image, 0.2)
def maybe_grey(image):
    grey = tf.tile(tf.image.rgb_to_grayscale(image), [1, 1, 3])
    return tf.where(tf.random.uniform([]) < 0.5, grey, image)
def side_by_side(x, y):
    return tf.concat([x, y], -1)
ds = images(fixed=True).map(lambda image: (image, -image))
ds = ds.map(both(brighter))
ds = ds.map(both(maybe_grey))
ds = ds.map(side_by_side)
"""


def test_function_whose_graph_was_edited_is_fused(tmp_path: Path) -> None:
    sample = script(tmp_path, SELECTING)
    source = live.read(sample.run().ds)
    known = replay.annotate_fusions(source, annotate_graph_edits(source, source.pipeline))
    context = RuleContext(known, cores=2)
    rules = (where_to_cond.RULE, batch_first.MAP_FUSION_RULE)
    rewrites = [one for rule in rules for one in rule.propose(context) if isinstance(one, Rewrite)]
    assert [one.node for one in rewrites] == ["n3", "n4"] and find_conflict(context, rewrites) == ""
    assert find_conflict(context, reversed(rewrites)) != ""

    edited = apply_edits(source.pipeline, [edit for one in rewrites for edit in one.edits])
    fused = edited.output.function
    assert fused is not None and fused.first == ("n2", "n3")
    assert fused.edited_forms == {FunctionVariant.BRANCHING}
    built = live.read(replay.replay(source, edited)).pipeline.output.function
    assert built is not None and {"If", "StatelessIf"} & set(built.operations)
    check_patch(sample, source, *rewrites, expected="lambda *element: side_by_side(*both_maybe_grey(", elements=12)
