"""Deprecated operators, which are named with their successors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.lint import DatasetUse, find_mistakes
from pipetune.testing.words import pipeline


@pytest.mark.parametrize(
    ("label", "successor"),
    [
        ("_MapAndBatchDataset", ".map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(n)"),
        ("_ShuffleAndRepeatDataset", ".shuffle(n).repeat()"),
        ("ParallelInterleaveDataset", ".interleave("),
        ("_SomethingElseDataset", ""),
    ],
)
def test_deprecated_operator_is_named_with_its_successor(label: str, successor: str) -> None:
    described = pipeline("TFRecordDataset | opaque | prefetch 1")
    nodes = [replace(node, label=label) if node.op == "opaque" else node for node in described]
    found = find_mistakes(DatasetUse(replace(described, nodes=tuple(nodes))))
    assert [one.code for one in found] == ["deprecated-operator"] * bool(successor)
    assert all(successor in one.hint and one.line == 2 for one in found)
