"""Caches that keep too much, or are never complete."""

from __future__ import annotations

import pytest

from tests.lint.uses import codes, found, sharing, use

FIRES = [
    ("range elements=99 | map random | cache", {}, ["cached-augmentation n2"]),
    ("range elements=99 | map python_random | batch 9 | cache", {}, ["cached-augmentation n3"]),
    ("range elements=99 | interleave random | cache /tmp/x", {}, ["cached-augmentation n2"]),
    ("range elements=99 | shuffle 9 | cache", {}, ["frozen-order n2"]),
    ("range elements=99 | shuffle 9 | batch 3 | cache", {}, ["frozen-order n3"]),
    ("range elements=99 | shuffle 9 | batch 3 | cache | shuffle 9", {}, ["frozen-order n3"]),
    ("list_files | interleave | cache | batch 3", {}, ["frozen-order n3"]),
    ("range elements=99 | shuffle 9 | map random | cache | cache", {}, ["cached-augmentation n3", "frozen-order n3"]),
    ("range elements=99 | cache | map random | cache | batch 9", {}, ["cached-augmentation n3"]),
    ("range elements=99 | repeat | cache", {}, ["endless-cache n2"]),
    ("range elements=99 | cache | take 10", {}, ["partial-cache n1"]),
    ("range elements=99 | cache | batch 10 | take 9", {}, ["partial-cache n1"]),
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
    ("range elements=99 | cache | batch 10", {"steps": 4, "epochs": 2}, ["partial-cache n1"]),
    ("range elements=99 | cache | batch 10", {"steps": 4, "epochs": 3, "role": "validation"}, ["partial-cache n1"]),
]

SILENT = [
    ("range elements=99 | map random", {}),
    ("range elements=99 | cache", {}),
    ("range elements=99 | cache | map random | shuffle 9 | batch 9", {}),
    ("range elements=99 | map | cache", {}),
    ("range elements=99 | map unknown | cache", {}),
    ("range elements=99 | map random | cache", {"role": "validation"}),
    ("range elements=99 | map random | cache", {"role": "evaluation"}),
    ("range elements=99 | shuffle 9 reshuffle_each_iteration=False | cache", {}),
    ("list_files shuffle=False | interleave | cache", {}),
    # single elements are shuffled again downstream of the cache
    ("list_files | interleave | cache | shuffle 9 | batch 3", {}),
    ("range elements=99 | shuffle 9 | cache | shuffle 9", {}),
    ("range elements=99 | shuffle 9 | batch 3 | cache", {"role": "validation"}),
    ("range elements=99 | cache | repeat", {}),
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
]


@pytest.mark.parametrize(("text", "how", "expected"), [*FIRES, *((*row, []) for row in SILENT)])
def test_findings(text, how, expected):
    assert codes(text, **how) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("range elements=99 | shuffle 9 | cache", "has the order of the first."),
        ("range elements=99 | shuffle 9 | batch 3 | cache", "has the same batches."),
        ("range elements=99 | shuffle 9 | batch 3 | cache | shuffle 9", "the same batches, in another order."),
        ("range elements=99 | map random | cache | batch 3", "draws of the first."),
        ("range elements=99 | map random | cache x | batch 3", "every later run that finds the file"),
        ("range elements=99 | cache | batch 10 | take 9", "take ends it after 9 elements"),
        ("range elements=99 | repeat | cache", "memory grows"),
        (("range elements=99 | cache | batch 10", {"steps": 4, "epochs": 2}), "(8 of 10 batches)"),
    ],
)
def test_message_describes_consequence(text, word):
    text, how = (text, {}) if isinstance(text, str) else text
    (finding,) = found(text, **how)
    assert word in finding.message and finding.hint


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
