"""`bucket-batches` on real elements: the share of padding, equal rows after bucketing, and the suggested call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.profile import ConsumerProfile, OperatorProfile, PaddingShares, Profile, Stage
from pipetune.measure.memory import measure_padding
from pipetune.pipelines import live
from pipetune.rewrites.bucket_batches import suggest_length_buckets
from pipetune.rewrites.rule import RuleContext


def tokens(number: Any) -> Any:
    return tf.range(1, 2 + number * 37 % 60), number % 5


def sentences(count: int = 480) -> Any:
    return tf.data.Dataset.range(count).map(tokens)


def named(words: Any, label: Any) -> Any:
    return {"words": tf.cast(words, tf.int32), "pair": (label, tf.strings.as_string(words))}


def measured(dataset: Any) -> dict[str, PaddingShares]:
    return measure_padding(live.read(dataset), {})


def share_counted(dataset: Any) -> float:
    """The padded share of the first component's values; the values themselves are never zero."""
    filled = whole = 0
    for words, _ in dataset:
        filled, whole = filled + np.count_nonzero(words), whole + int(tf.size(words))
    return 1 - filled / whole


def advised(dataset: Any, measured: dict[str, PaddingShares]) -> str:
    operators = tuple(OperatorProfile(node, Stage.TRANSFORM, padding=one) for node, one in measured.items())
    profile = Profile(operators, ConsumerProfile("none"))
    (found,) = suggest_length_buckets(RuleContext(live.read(dataset).pipeline, profile, cores=2))
    return found.hint.removeprefix("Use ").partition(" instead of ")[0]


def test_padding_shares_match_counted_padding() -> None:
    dataset = sentences().padded_batch(8)
    measurements = measured(dataset)
    (found,) = measurements.values()
    assert found.why_not == "" and found.batches == 60
    assert found.share == pytest.approx(share_counted(dataset))
    assert found.length_of == (0,) and found.unpacked
    bucketed = eval(f"sentences().{advised(dataset, measurements)}", {"sentences": sentences, "tf": tf})
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
    "a value of its own": (lambda: sentences().padded_batch(8, padding_values=(tf.constant(-1, tf.int64), None)),
        "values of its own"),
    "wider, not longer": (
        lambda: sentences().map(lambda words, _: tf.ensure_shape([words, words], [2, None])).padded_batch(8),
        "longer or shorter in its first dimension"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_LOOKED_AT)
def test_padding_is_not_measured_where_it_does_not_apply(name: str) -> None:
    assert measured(NOT_LOOKED_AT[name]()) == {}


@pytest.mark.parametrize("name", NOT_BY_LENGTH)
def test_reason_is_given_where_bucketing_is_impossible(name: str) -> None:
    make, why = NOT_BY_LENGTH[name]
    (found,) = measured(make()).values()
    assert found.share > 0.1 and why in found.why_not


def test_bucketing_needs_enough_batches_per_bucket() -> None:
    source = live.read(sentences().padded_batch(8))
    (node,) = (one for one in source.pipeline if one.op == "padded_batch")
    few = measure_padding(source, {node.inputs[0]: 100})[node.id]
    some = measure_padding(source, {node.inputs[0]: 240})[node.id]
    assert "too few batches" in few.why_not
    assert len(some.boundaries) + 1 <= 3


RIGHT: dict[str, Callable[[], Any]] = {
    "pairs": sentences,
    "nested": lambda: sentences().map(named),
    "one component": lambda: sentences().map(lambda words, _: words),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RIGHT)
def test_suggested_call_returns_each_element_once(name: str) -> None:
    elements = RIGHT[name]()
    batched = elements.padded_batch(8)
    call = advised(batched, measured(batched))
    batches = eval(f"elements.{call}", {"elements": elements, "tf": tf})
    place = -1 if name == "nested" else 0  # of the words, none of which is zero
    rows = [row for batch in batches for row in tf.nest.flatten(batch)[place].numpy()]
    wanted = [len(tf.nest.flatten(element)[place]) for element in elements]
    assert sorted(np.count_nonzero(row) for row in rows) == sorted(wanted)
