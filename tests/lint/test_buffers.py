"""Buffers that hold too much: prefetch buffers in batches, shuffles of decoded elements."""

from __future__ import annotations

import pytest

from pipetune.core.profile import Profile
from tests import words
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


LARGE = "range bytes=20k | map bytes=400k"


@pytest.mark.parametrize(
    "text",
    [
        f"{LARGE} | shuffle 5000 bytes=400k | batch 32",
        f"{LARGE} | repeat bytes=400k | shuffle 5000 bytes=400k | batch 32",
        f"{LARGE} | map bytes=400k | shuffle 5000 bytes=400k",
    ],
)
def test_large_shuffle_of_decoded_elements_is_reported(text: str) -> None:
    (finding,) = [one for one in found(text, profile=words.profile(text)) if one.code == "large-shuffle"]
    assert "holds 5,000 elements of 391 KiB: 1,907 MiB" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "range bytes=20k | shuffle 5000 bytes=20k | map bytes=400k",
        f"{LARGE} | shuffle 100 bytes=400k",
        "range elements=50 bytes=20k | map bytes=400k | shuffle 5000 bytes=400k",
        "range bytes=200k | map bytes=400k | shuffle 5000 bytes=400k",
        "range bytes=400k | shuffle 5000 bytes=400k",
        f"{LARGE} | batch 8 bytes=3M | shuffle 5000 bytes=3M",
    ],
)
def test_small_shuffles_and_those_without_a_smaller_input_are_silent(text: str) -> None:
    assert [one.code for one in found(text, profile=words.profile(text))] == []


def test_without_measured_sizes_no_shuffle_is_reported() -> None:
    assert codes("range | map | shuffle 5000") == []
