"""Deprecated operators, which are named with their successors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.pipeline import SourceLocation
from pipetune.lint import DatasetUse, find_mistakes
from tests.words import pipeline


@pytest.mark.parametrize(
    ("label", "method", "successor"),
    [
        ("_MapAndBatchDataset", "apply", ".map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(n)"),
        ("_ShuffleAndRepeatDataset", "shuffle_and_repeat", ".shuffle(n).repeat()"),
        ("parallel_interleave", "apply", ".interleave("),
        ("parallel_interleave", "make_batched_features_dataset", ""),
        ("_SomethingElseDataset", "apply", ""),
    ],
)
def test_deprecated_operator_is_named_with_its_successor(label: str, method: str, successor: str) -> None:
    known = label == "parallel_interleave"
    described = pipeline(f"TFRecordDataset | {label if known else 'opaque'} | prefetch 1")
    called = SourceLocation("train.py", 2, 0, 2, 9, method)
    first, second, last = described
    nodes = (first, replace(second, label="" if known else label, location=called), last)
    found = find_mistakes(DatasetUse(replace(described, nodes=nodes)))
    assert [one.code for one in found] == ["deprecated-operator"] * bool(successor)
    assert all(successor in one.hint and one.line == 2 for one in found)
