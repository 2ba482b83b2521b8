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
from pipetune.rewrites.pad_batches import suggest_length_buckets
from pipetune.rewrites.rule import RuleContext


def sentences(count: int = 480) -> Any:
    return tf.data.Dataset.range(count).map(lambda number: (tf.range(1, 2 + number * 37 % 60), number % 5))


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


NOT_BY_LENGTH: dict[str, tuple[Callable[[], Any], str]] = {  # why not; "" where it is not looked at
    "all of one size": (lambda: tf.data.Dataset.range(99).map(lambda x: tf.fill([7], x)).padded_batch(8), ""),
    "one a batch": (lambda: sentences().padded_batch(1), ""),
    "plain batches": (lambda: tf.data.Dataset.range(99).batch(8), ""),
    "too few": (lambda: sentences(20).padded_batch(8), ""),
    "a fixed shape": (lambda: sentences().padded_batch(8, ([64], [])), "shapes of its own"),
    "a value of its own": (lambda: sentences().padded_batch(8, padding_values=(tf.constant(-1, tf.int64), None)),
        "values of its own"),
    "wider, not longer": (
        lambda: sentences().map(lambda words, _: tf.ensure_shape([words, words], [2, None])).padded_batch(8),
        "longer or shorter in its first dimension"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_BY_LENGTH)
def test_reason_is_given_where_bucketing_is_impossible(name: str) -> None:
    make, why = NOT_BY_LENGTH[name]
    found = measured(make()).values()
    assert len(found) == bool(why) and all(one.share > 0.1 and why in one.why_not for one in found)


def test_bucketing_needs_enough_batches_per_bucket() -> None:
    source = live.read(sentences().padded_batch(8))
    (node,) = (one for one in source.pipeline if one.op == "padded_batch")
    few = measure_padding(source, {node.inputs[0]: 100})[node.id]
    some = measure_padding(source, {node.inputs[0]: 240})[node.id]
    assert "too few batches" in few.why_not
    assert len(some.boundaries) + 1 <= 3


def test_suggested_call_returns_each_element_once() -> None:
    """Also where the words, none of which is zero, are the last of nested components."""
    elements = sentences().map(lambda words, label: {"pair": (label, tf.strings.as_string(words)), "words": words})
    batched = elements.padded_batch(8)
    call = advised(batched, measured(batched))
    batches = eval(f"elements.{call}", {"elements": elements, "tf": tf})
    rows = [row for batch in batches for row in batch["words"].numpy()]
    assert sorted(map(np.count_nonzero, rows)) == sorted(len(element["words"]) for element in elements)
