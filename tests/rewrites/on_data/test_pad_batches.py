"""Which functions only pad, that a padded batch gives the same, and what the patch looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Rewrite, apply_edits
from pipetune.core.functions import Padding
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay
from pipetune.probes.pad_batches import annotate_padding
from pipetune.rewrites.pad_batches import propose
from tests.rewrites.on_data.patching import check_equal, check_patch, proposed, script

Function = Callable[..., Any]


def sequences(count: int = 11) -> Any:
    """Yields 0 to 4 numbers."""
    return tf.data.Dataset.range(count).map(lambda number: tf.range(number % 5) + 1)


def matrices() -> Any:
    return tf.data.Dataset.range(11).map(lambda number: tf.ones([number % 5, 3]) * tf.cast(number, tf.float32))


def pairs() -> Any:
    return sequences().map(lambda x: ({"tokens": x, "one": tf.constant([7, 8])}, tf.reduce_sum(x)))


def fill(x: Any, size: int, **given: Any) -> Any:
    return tf.ensure_shape(tf.pad(x, [[0, size - tf.size(x)]], **given), [size])


def _rows_to_six(x: Any) -> Any:
    padded = tf.pad(x, [[0, 6 - tf.shape(x)[0]], [0, 0]])
    padded.set_shape([6, 3])
    return padded


def _one_of_three(features: Any, label: Any) -> Any:
    x = features["tokens"]
    return {"one": tf.identity(features["one"]), "tokens": tf.ensure_shape(tf.pad(x, [[0, 6 - len(x)]]), [6])}, label


PADS: dict[str, tuple[Function, Function, str]] = {
    "numbers": (sequences, lambda x: fill(x, 6), "[6]"),
    "rows, in a tf.function": (matrices, tf.function(_rows_to_six), "[6, 3]"),
    "rows, and columns by a fixed number": (
        matrices, lambda x: tf.ensure_shape(tf.pad(x, [[0, 6 - tf.shape(x)[0]], [0, 2]], constant_values=0.0), [6, 5]),
        "[6, 5]"),
    "one component of three": (pairs, _one_of_three, '({"one": [2], "tokens": [6]}, [])'),
}  # fmt: skip


def _asserted(x: Any) -> Any:
    tf.debugging.assert_less(tf.size(x), 5)
    return fill(x, 6)


DOES_MORE: dict[str, tuple[Function, Function, str]] = {
    "in front": (sequences, lambda x: tf.ensure_shape(tf.pad(x, [[6 - tf.size(x), 0]]), [6]), "in front of the values"),
    "by ones": (sequences, lambda x: fill(x, 6, constant_values=1), "with another value than zero"),
    "by a fixed number, so that only one size is accepted": (
        sequences, lambda x: tf.ensure_shape(tf.pad(x, [[0, 2]]), [6]), "does not fill up"),
    "to another size than the one that is checked": (
        sequences, lambda x: tf.ensure_shape(tf.pad(x, [[0, 7 - tf.size(x)]]), [6]), "does not fill up"),
    "by the size of another axis": (
        matrices, lambda x: tf.ensure_shape(tf.pad(x, [[0, 6 - tf.shape(x)[1]], [0, 0]]), [6, 3]), "does not fill up"),
    "what is too long is cut": (sequences, lambda x: fill(x[:3], 3), "does more than pad"),
    "an assertion": (sequences, _asserted, "checks values"),
    "mirror": (
        sequences, lambda x: tf.ensure_shape(tf.pad(tf.ensure_shape(x, [4]), [[0, 2]], mode="REFLECT"), [6]), ""),
    "without a fixed shape": (sequences, lambda x: tf.pad(x, [[0, 6 - tf.size(x)]]), "a fixed shape"),
    "noise": (sequences, lambda x: fill(x + tf.random.uniform([], 0, 9, tf.int64), 6), "has state"),
    "another component": (
        pairs, lambda features, label: ({"one": features["one"], "tokens": tf.pad(features["one"], [[0, 4]])}, label),
        "does more than pad"),
    "another structure": (pairs, lambda of, label: (fill(of["tokens"], 6), label), "another structure"),
}  # fmt: skip


def _found(dataset: Any) -> tuple[live.LivePipeline, Padding | None, list[Rewrite]]:
    source, rewrites = proposed(propose, dataset, annotate_padding)
    maps = [node.function.padding for node in source.pipeline if node.op == "map" and node.function is not None]
    return source, maps[-1], rewrites


@pytest.mark.sample(2)
@pytest.mark.parametrize(("elements", "function", "why"), DOES_MORE.values(), ids=DOES_MORE)
def test_functions_that_do_more_are_left_alone(elements: Function, function: Function, why: str) -> None:
    _, padding, rewrites = _found(elements().map(function).batch(4))
    assert rewrites == []
    assert padding is None if not why else padding is not None and why in padding.why_not


@pytest.mark.sample(2)
@pytest.mark.parametrize(("elements", "function", "shapes"), PADS.values(), ids=PADS)
@pytest.mark.parametrize("drops", [False, True])
def test_a_padded_batch_gives_the_same(elements: Function, function: Function, shapes: str, drops: bool) -> None:
    dataset = elements().map(function, num_parallel_calls=2).shuffle(5, seed=3).repeat(2).batch(4, drop_remainder=drops)
    source, padding, rewrites = _found(dataset)
    assert padding == Padding(shapes=shapes)
    (rewrite,) = rewrites
    assert replay(source, apply_edits(source.pipeline, rewrite.edits)).element_spec == dataset.element_spec
    check_equal(source, rewrite, elements=22)


def test_what_is_too_long_is_an_error_before_and_after() -> None:
    source, _, (rewrite,) = _found(sequences().map(lambda x: fill(x, 3)).batch(4))
    for pipeline in (source.pipeline, apply_edits(source.pipeline, rewrite.edits)):
        with pytest.raises(tf.errors.OpError):
            list(replay(source, pipeline))


PATCHES: dict[str, tuple[str, str]] = {
    "the name that the function has for the size": ("""
        from tests.rewrites.on_data.test_pad_batches import sequences
        LONGEST = 6
        ROWS = 6
        def pad(x):
            return tf.ensure_shape(tf.pad(x, [[0, LONGEST - tf.size(x)]]), [LONGEST])
        ds = sequences().map(pad, num_parallel_calls=2).shuffle(5, seed=1).batch(ROWS, True)
        """, "ds = sequences().shuffle(5, seed=1).padded_batch(ROWS, drop_remainder=True, padded_shapes=[LONGEST])\n"),
    "a number, where it has several names or none": ("""
        from tests.rewrites.on_data.test_pad_batches import pairs
        FIRST, SIZE = 0, 6
        SIZE = 6
        def pad(features, label):
            x = features["tokens"]
            tokens = tf.ensure_shape(tf.pad(x, [[FIRST, SIZE - len(x)]]), [SIZE])
            return {"one": features["one"], "tokens": tokens}, label
        ds = (
            pairs()
            .map(pad)
            .batch(
                batch_size=4,
                drop_remainder=True,
            )
        )
        """,
        """\
            .padded_batch(
                batch_size=4,
                drop_remainder=True,
                padded_shapes=({"one": [2], "tokens": [6]}, []),
            )
"""),
    "a long dict, one line for each component": ("""
        from tests.rewrites.on_data.test_pad_batches import sequences
        ds = sequences().map(lambda x: {"the numbers of a sequence, from one on": x, "the same numbers once more": x})
        ds = ds.map(lambda of: {name: tf.ensure_shape(tf.pad(x, [[0, 6 - tf.size(x)]]), [6]) for name, x in of.items()})
        ds = ds.batch(4)
        """,
        """\
        ds = ds.padded_batch(4, padded_shapes={
            "the numbers of a sequence, from one on": [6],
            "the same numbers once more": [6],
        })
"""),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize(("text", "expected"), PATCHES.values(), ids=PATCHES)
def test_patched_source_builds_planned_pipeline(text: str, expected: str, tmp_path: Path) -> None:
    sample = script(tmp_path, text)
    source, _, (rewrite,) = _found(sample.run().ds)
    check_patch(
        sample, source, rewrite, expected=expected.replace("\n        ", "\n").removeprefix("        "), elements=11
    )
