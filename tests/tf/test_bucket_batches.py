"""Batches by length on real elements: the share of padding, the same rows in other batches, the patched source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, Rewrite, Safety
from pipetune.core.padding import Padding
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.rules.base import RuleContext
from pipetune.rules.bucket_batches import RULE
from pipetune.tf.equality.compare import compare
from pipetune.tf.equality.reproduction import digests
from pipetune.tf.measure.padding import measure_padding
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay
from tests.tf.patching import check_patch
from tests.tf.test_capture import Sample


def tokens(number: Any) -> Any:
    return tf.range(1, 2 + number * 37 % 60), number % 5


def sentences(count: int = 480) -> Any:
    return tf.data.Dataset.range(count).map(tokens)


def named(words: Any, label: Any) -> Any:
    return {"words": tf.cast(words, tf.int32), "pair": (label, tf.strings.as_string(words))}


def measured(dataset: Any) -> dict[str, Padding]:
    return measure_padding(live.read(dataset), {})


def share_counted(dataset: Any) -> float:
    """Of the values of the first component, those behind the last that is no padding; none of them is zero itself."""
    filled = whole = 0
    for words, _ in dataset:
        filled, whole = filled + np.count_nonzero(words), whole + int(tf.size(words))
    return 1 - filled / whole


def proposed(dataset: Any) -> tuple[live.LivePipeline, Rewrite]:
    source = live.read(dataset)
    operators = tuple(
        OperatorProfile(node, Stage.TRANSFORM, padding=padding)
        for node, padding in measure_padding(source, {}).items()
    )
    context = RuleContext(source.pipeline, Profile(operators, ConsumerProfile("none")), cores=2)
    (rewrite,) = RULE.propose(context)
    assert isinstance(rewrite, Rewrite)
    return source, rewrite


def test_the_shares_are_those_of_the_batches_themselves() -> None:
    dataset = sentences().padded_batch(8)
    (found,) = measured(dataset).values()
    assert found.why_not == "" and found.batches == 60
    assert found.share == pytest.approx(share_counted(dataset))
    assert found.length_of == (0,) and found.unpacked
    source, rewrite = proposed(dataset)
    bucketed = replay(source, apply_edits(source.pipeline, rewrite.edits))
    whole = bucketed.filter(lambda words, _: tf.shape(words)[0] == 8)
    assert found.bucketed_share == pytest.approx(share_counted(whole))
    assert found.bucketed_share < found.share / 2


NOT_LOOKED_AT: dict[str, Callable[[], Any]] = {
    "all of one size": lambda: tf.data.Dataset.range(99).map(lambda x: tf.fill([7], x)).padded_batch(8),
    "one a batch": lambda: sentences().padded_batch(1),
    "plain batches": lambda: tf.data.Dataset.range(99).batch(8),
    "too few": lambda: sentences(20).padded_batch(8),
}

NOT_BY_LENGTH: dict[str, tuple[Callable[[], Any], str]] = {
    "a fixed shape": (lambda: sentences().padded_batch(8, ([64], [])), "shapes of its own"),
    "a value of its own": (
        lambda: sentences().padded_batch(8, padding_values=(tf.constant(-1, tf.int64), None)),
        "values of its own",
    ),
    "wider, not longer": (
        lambda: sentences().map(lambda words, _: tf.ensure_shape([words, words], [2, None])).padded_batch(8),
        "longer or shorter in its first dimension",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_LOOKED_AT)
def test_where_there_is_nothing_to_see(name: str) -> None:
    assert measured(NOT_LOOKED_AT[name]()) == {}


@pytest.mark.parametrize("name", NOT_BY_LENGTH)
def test_where_batches_must_stay(name: str) -> None:
    make, why = NOT_BY_LENGTH[name]
    (found,) = measured(make()).values()
    assert found.share > 0.1 and why in found.why_not


def test_an_epoch_must_hold_batches_for_every_bucket() -> None:
    source = live.read(sentences().padded_batch(8))
    (node,) = (one for one in source.pipeline if one.op == "padded_batch")
    few = measure_padding(source, {node.inputs[0]: 100})[node.id]
    some = measure_padding(source, {node.inputs[0]: 240})[node.id]
    assert "too few batches" in few.why_not
    assert len(some.boundaries) + 1 <= 3


RIGHT: dict[str, Callable[[], Any]] = {
    "in order": lambda: sentences().padded_batch(8),
    "shuffled, a map behind, epochs joined": lambda: (
        sentences().shuffle(50, seed=3).padded_batch(8).map(lambda words, label: (words * 2, label)).repeat(2)
    ),
    "nested": lambda: sentences().map(named).padded_batch(8).prefetch(1),
    "one component": lambda: sentences().map(lambda words, _: words).padded_batch(8),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_rows_once_an_epoch(name: str) -> None:
    source, rewrite = proposed(RIGHT[name]())
    edited = apply_edits(source.pipeline, rewrite.edits)
    proof = compare(source, edited, rewrite.safety, elements=96)
    assert proof.proven and proof.equal, proof
    assert replay(source, edited).element_spec == source.dataset.element_spec


def test_a_map_behind_that_makes_something_of_the_padding_is_refused() -> None:
    source, rewrite = proposed(sentences().padded_batch(8).map(lambda words, label: (words + 1, label)))
    assert not compare(source, apply_edits(source.pipeline, rewrite.edits), rewrite.safety).equal


def test_rows_that_are_cut_or_missing_are_seen() -> None:
    source, rewrite = proposed(sentences().padded_batch(8))
    right = apply_edits(source.pipeline, rewrite.edits)
    (bucket,) = (node for node in right if node.id not in source.pipeline)
    fewer = apply_edits(right, [Insert(bucket.id, "take", f"take@{bucket.id}", {"count": 5})])
    assert not compare(source, fewer, Safety.REORDERS, elements=96).equal
    smaller = _with(right, bucket.id, batch_size=4)
    assert not compare(source, smaller, Safety.REORDERS, elements=96).equal


def _with(pipeline: Pipeline, node: str, **arguments: Any) -> Pipeline:
    changed = replace(pipeline[node], arguments={**pipeline[node].arguments, **arguments})
    return replace(pipeline, nodes=tuple(changed if one.id == node else one for one in pipeline))


HEAD = """
import tensorflow as tf

def tokens(number):
    return tf.range(1, 2 + number * 37 % 60), number % 5

"""

PATCHES: dict[str, tuple[str, str]] = {
    "statements": (
        "ds = tf.data.Dataset.range(480)\nds = ds.map(tokens)\nds = ds.padded_batch(8)  # as long as the longest\n",
        "ds = ds.map(tokens)\nds = ds.bucket_by_sequence_length(lambda *element: tf.shape(element[0])[0], [",
    ),
    "a dictionary": (
        "ds = (\n    tf.data.Dataset.range(480)\n    .map(tokens)\n"
        '    .map(lambda words, label: {"words": words, "label": label})\n    .padded_batch(8)\n)\n',
        '    .bucket_by_sequence_length(lambda element: tf.shape(element["words"])[0], [',
    ),
}


@pytest.mark.parametrize("name", PATCHES)
def test_the_patched_source_makes_the_batches_of_the_plan(name: str, tmp_path: Path) -> None:
    text, expected = PATCHES[name]
    sample = Sample(tmp_path, HEAD + text)
    source, rewrite = proposed(sample.run().ds)
    check_patch(sample, source, rewrite, expected=expected, elements=96)
    assert "padded_batch" not in sample.file.read_text()
    planned = replay(source, apply_edits(source.pipeline, rewrite.edits))
    assert digests(sample.run().ds, count=40) == digests(planned, count=40)
