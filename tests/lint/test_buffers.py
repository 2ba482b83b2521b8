"""Buffers that hold too much: prefetch buffers in batches, shuffles of decoded elements; deprecated operators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.pipeline import SourceLocation
from pipetune.lint import DatasetUse, find_mistakes
from tests import words
from tests.lint.uses import codes, found, use

FIRES = [
    ("range | batch 32 | prefetch 32", ["prefetch-batch-size n2"]),
    ("range | batch 32 | map | repeat | prefetch 32", ["prefetch-batch-size n4"]),
    ("range | padded_batch 8 | prefetch 8", ["prefetch-batch-size n2"]),
]

SILENT = [
    "range | batch 32 | prefetch 2",
    "range | batch 32 | prefetch AUTOTUNE",
    "range | batch 2 | prefetch 2",
    "range | batch 4 | prefetch 4",
    "range | prefetch 32 | batch 32",  # a buffer of examples, as intended
    "range | batch 32 | unbatch | prefetch 32",
    "range | batch 32 | filter | prefetch 32",
    "range | batch 32 | window 32 | prefetch 32",
    "range | batch 64 | batch 2 | prefetch 64",
    "range | prefetch 32",
    "a = range | batch 32; b = range | batch 32; zip a b | prefetch 32",
]


@pytest.mark.parametrize(("text", "expected"), [*FIRES, *((text, []) for text in SILENT)])
def test_findings(text, expected):
    assert codes(text) == expected


def test_message_has_size_of_buffer():
    text = "range | batch 64 | prefetch 64"
    (finding,) = found(text)
    assert "64 batches (4,096 examples)" in finding.message
    # A helper that makes the validation data, too, has one finding.
    (finding,) = found(text, use(text), profile=words.profile("range | batch 64 bytes=50M | prefetch 64"))
    assert "64 batches (4,096 examples, 3,052 MiB)" in finding.message


LARGE = "range bytes=20k | map bytes=400k"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (f"{LARGE} | shuffle 5000 bytes=400k | batch 32", 1),
        (f"{LARGE} | repeat bytes=400k | shuffle 5000 bytes=400k | batch 32", 1),
        (f"{LARGE} | map bytes=400k | shuffle 5000 bytes=400k", 1),
        ("range bytes=20k | shuffle 5000 bytes=20k | map bytes=400k", 0),
        (f"{LARGE} | shuffle 100 bytes=400k", 0),
        ("range elements=50 bytes=20k | map bytes=400k | shuffle 5000 bytes=400k", 0),
        ("range bytes=200k | map bytes=400k | shuffle 5000 bytes=400k", 0),
        ("range bytes=400k | shuffle 5000 bytes=400k", 0),
        (f"{LARGE} | batch 8 bytes=3M | shuffle 5000 bytes=3M", 0),
    ],
)
def test_large_shuffle_of_elements_with_a_smaller_input_is_reported(text: str, reported: int) -> None:
    findings = [one for one in found(text, profile=words.profile(text)) if one.code != "epochs-blend"]
    assert [one.code for one in findings] == ["large-shuffle"] * reported
    assert all("holds 5,000 elements of 391 KiB: 1,907 MiB" in one.message for one in findings)


def test_without_measured_sizes_no_shuffle_is_reported() -> None:
    assert codes("range | map | shuffle 5000") == []


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
    described = words.pipeline(f"TFRecordDataset | {label if known else 'opaque'} | prefetch 1")
    called = SourceLocation("train.py", 2, 0, 2, 9, method)
    first, second, last = described
    nodes = (first, replace(second, label="" if known else label, location=called), last)
    found = find_mistakes(DatasetUse(replace(described, nodes=nodes)))
    assert [one.code for one in found] == ["deprecated-operator"] * bool(successor)
    assert all(successor in one.hint and one.line == 2 for one in found)
