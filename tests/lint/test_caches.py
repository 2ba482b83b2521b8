"""Caches that keep too much, or are never complete; buffers that hold too much; deprecated operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.pipeline import SourceLocation
from pipetune.lint import DatasetUse, find_mistakes
from tests import words as described
from tests.lint.uses import check, codes, found, rows, sharing, use

FIRES = [
    ("range elements=99 | map random | cache", {}, ["cached-augmentation n2"], "draws of the first."),
    ("range elements=99 | interleave random | cache /tmp/x", {}, ["cached-augmentation n2"],
     "every later run that finds the file"),
    ("range elements=99 | shuffle 9 | cache", {}, ["frozen-order n2"], "has the order of the first."),
    ("range elements=99 | shuffle 9 | batch 3 | cache", {}, ["frozen-order n3"], "has the same batches."),
    ("range elements=99 | shuffle 9 | batch 3 | cache | shuffle 9", {}, ["frozen-order n3"],
     "the same batches, in another order."),
    ("list_files | interleave | cache | batch 3", {}, ["frozen-order n3"]),
    ("range elements=99 | shuffle 9 | map random | cache | cache", {}, ["cached-augmentation n3", "frozen-order n3"]),
    ("range elements=99 | cache | map random | cache | batch 9", {}, ["cached-augmentation n3"]),
    ("range elements=99 | repeat | cache", {}, ["endless-cache n2"], "memory grows"),
    ("range elements=99 | cache | batch 10 | take 9", {}, ["partial-cache n1"], "take ends it after 9 elements"),
    ("range elements=99 | cache | repeat | take 98", {}, ["partial-cache n1"]),
    ("range elements=99 | cache | repeat | batch 10 | take 9", {}, ["partial-cache n1"]),
    ("a = range elements=99 | cache; b = range elements=9; zip a b elements=9", {}, ["partial-cache n1"]),
    ("a = range elements=99 | cache | shuffle 9; b = range elements=9; zip a b elements=9", {}, ["partial-cache n1"]),
    ("a = range elements=99 | cache | shuffle 99; b = range elements=9; zip a b elements=9", {}, []),
    ("range elements=99 | cache | shuffle 50 | batch 10 | take 4", {}, ["partial-cache n1"]),
    ("range elements=99 | cache | shuffle 50 | batch 10 | take 5", {}, []),
    ("range elements=99 | cache | batch 10 | prefetch 2", {"steps": 7}, ["partial-cache n1"]),
    ("range elements=99 | cache | batch 10 | prefetch 3", {"steps": 7}, []),
    ("range elements=99 | cache | batch 2 | prefetch -1", {"steps": 33}, ["partial-cache n1"]),
    ("range elements=99 | cache | batch 10 | prefetch -1", {"steps": 9, "role": "validation"}, []),
    ("range elements=99 | batch 10 | cache | map -1", {"steps": 9, "role": "validation"}, []),
    ("range elements=99 | cache | map 9 | batch 10", {"steps": 9, "role": "validation"}, []),
    ("range elements=99 | cache | batch 10", {"steps": 4, "epochs": 2}, ["partial-cache n1"], "(8 of 10 batches)"),
    ("range elements=99 | cache | batch 10", {"steps": 4, "epochs": 3, "role": "validation"}, ["partial-cache n1"]),
    # buffers of batches
    ("range | batch 32 | prefetch 32", {}, ["prefetch-batch-size n2"]),
    ("range | batch 32 | map | repeat | prefetch 32", {}, ["prefetch-batch-size n4"]),
    ("range | padded_batch 8 | prefetch 8", {}, ["prefetch-batch-size n2"]),
]  # fmt: skip

SILENT = [
    ("range elements=99 | cache | map random | shuffle 9 | batch 9", {}),
    ("range elements=99 | map | cache", {}),
    ("range elements=99 | map unknown | cache", {}),
    ("range elements=99 | map random | cache", {"role": "validation"}),
    ("range elements=99 | shuffle 9 reshuffle_each_iteration=False | cache", {}),
    ("list_files shuffle=False | interleave | cache", {}),
    # single elements are shuffled again downstream of the cache
    ("list_files | interleave | cache | shuffle 9 | batch 3", {}),
    ("range elements=99 | shuffle 9 | cache | shuffle 9", {}),
    ("range elements=99 | repeat 2 | cache", {}),
    ("range elements=99 | repeat | cache /tmp/x | take 5", {"role": "preview"}),
    ("range elements=99 | take 10 | cache", {}),
    ("range elements=99 | cache | take 99", {}),
    ("range elements=99 | cache | take 10 | cache", {}),
    ("range elements=99 | cache | repeat | take 99", {}),
    ("range elements=99 | cache | repeat | batch 10 | take 10", {}),
    ("range | cache | take 10", {}),  # unknown cardinality
    ("range elements=99 | cache | filter | take 10", {}),
    ("range elements=99 | cache | take 10", {"role": "preview"}),
    ("a = range elements=9 | cache; b = range elements=99; zip a b elements=9", {}),
    ("range elements=99 | cache | batch 10", {"steps": 10}),
    ("range elements=99 | cache | batch 10", {"steps": 5, "epochs": 2}),  # the second epoch continues
    ("range elements=99 | cache | batch 10 | repeat", {"steps": 4}),
    ("range | batch 32 | prefetch 2", {}),
    ("range | batch 32 | prefetch AUTOTUNE", {}),
    ("range | batch 4 | prefetch 4", {}),
    ("range | prefetch 32 | batch 32", {}),  # a buffer of examples, as intended
    ("range | batch 32 | filter | prefetch 32", {}),
    ("range | batch 64 | batch 2 | prefetch 64", {}),
    ("range | map | shuffle 5000", {}),  # without measured sizes
    ("a = range | batch 32; b = range | batch 32; zip a b | prefetch 32", {}),
]


@pytest.mark.parametrize(("text", "how", "expected", "words"), rows(FIRES, SILENT))
def test_findings(text: str, how: dict[str, Any], expected: list[str], words: str) -> None:
    check(text, expected, words, **how)


@pytest.mark.parametrize(("text", "hint"), [
    ("range elements=99 | shuffle 9 | cache", "Move shuffle() behind cache()."),
    ("range elements=99 | shuffle 9 | batch 3 | cache", "Move shuffle() and batch() behind cache()."),
    ("list_files | interleave | cache | batch 3", "Pass shuffle=False to list_files"),
])  # fmt: skip
def test_what_gives_each_epoch_an_order_of_its_own(text: str, hint: str):
    assert found(text)[-1].hint.startswith(hint)


def test_a_cache_behind_a_shuffle_of_keras_can_only_be_followed_by_another():
    pipeline = use("range elements=99 | shuffle 9 | batch 3 | cache").pipeline
    made = SourceLocation("train.py", 3, 0, 3, 40, "image_dataset_from_directory", library="keras")
    nodes = tuple(replace(node, location=made) if node.op in ("shuffle", "batch") else node for node in pipeline)
    (found,) = find_mistakes(DatasetUse(replace(pipeline, nodes=nodes)))
    assert found.code == "frozen-order"
    assert found.hint.startswith("Pass batch_size=None to image_dataset_from_directory")


CACHED = "range elements=99 | cache"


@pytest.mark.parametrize(
    ("other", "shared", "how", "partial"),
    [
        (f"{CACHED} | skip 9", 2, {"role": "validation"}, False),  # reads all elements
        (f"{CACHED} | batch 9", 2, {"role": "validation"}, False),
        (f"{CACHED} | batch 9", 2, {"role": "preview"}, True),
        (f"{CACHED} | take 50", 2, {"role": "validation"}, True),
        (f"{CACHED} | batch 9", 2, {"role": "validation", "steps": 2}, True),
        (f"{CACHED} | skip 9", 1, {"role": "validation"}, True),  # a separate cache
    ],
)
def test_cache_filled_by_another_reader(other, shared, how, partial):
    training = f"{CACHED} | take 10"
    reader = sharing(use(training), use(other, **how), shared)
    assert ("partial-cache n1" in codes(training, reader)) is partial


def test_message_has_size_of_buffer():
    text = "range | batch 64 | prefetch 64"
    (finding,) = found(text)
    assert "64 batches (4,096 examples)" in finding.message
    # A helper that makes the validation data, too, has one finding.
    (finding,) = found(text, use(text), profile=described.profile("range | batch 64 bytes=50M | prefetch 64"))
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
    findings = [one for one in found(text, profile=described.profile(text)) if one.code != "epochs-blend"]
    assert [one.code for one in findings] == ["large-shuffle"] * reported
    assert all("holds 5,000 elements of 391 KiB: 1,907 MiB" in one.message for one in findings)


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
    pipeline = described.pipeline(f"TFRecordDataset | {label if known else 'opaque'} | prefetch 1")
    called = SourceLocation("train.py", 2, 0, 2, 9, method)
    first, second, last = pipeline
    nodes = (first, replace(second, label="" if known else label, location=called), last)
    found = find_mistakes(DatasetUse(replace(pipeline, nodes=nodes)))
    assert [one.code for one in found] == ["deprecated-operator"] * bool(successor)
    assert all(successor in one.hint and one.line == 2 for one in found)
