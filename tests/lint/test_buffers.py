"""Prefetch buffers with as many batches as a batch has examples."""

from __future__ import annotations

import pytest

from pipetune.core.profile import Profile
from pipetune.testing import words
from tests.lint.uses import codes, found

FIRES = [
    ("range | batch 32 | prefetch 32", "prefetch-batch-size n2"),
    ("range | batch 32 | map | repeat | prefetch 32", "prefetch-batch-size n4"),
    ("range | padded_batch 8 | prefetch 8", "prefetch-batch-size n2"),
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


@pytest.mark.parametrize(("text", "expected"), FIRES)
def test_finding_is_reported(text, expected):
    assert codes(text) == [expected]


@pytest.mark.parametrize("text", SILENT)
def test_no_finding(text):
    assert codes(text) == []


def test_message_has_size_of_buffer():
    text = "range | batch 64 | prefetch 64"
    (finding,) = found(text)
    assert "64 batches (4,096 examples)" in finding.message
    measured: Profile = words.profile("range | batch 64 bytes=50M | prefetch 64")
    (finding,) = found(text, profile=measured)
    assert "64 batches (4,096 examples, 3,052 MiB)" in finding.message
