"""Bytes that each operator holds, and the predicted peak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Insert, SetArgument, apply_edits
from pipetune.model import memory
from tests.words import parse


@pytest.mark.parametrize(
    ("text", "op", "held"),
    [
        ("from_tensor_slices bytes=1k elements=5000 | shuffle 1000", "from_tensor_slices", 0),
        ("from_tensor_slices bytes=1k elements=5000 | shuffle 1000", "shuffle", 1000 * 1000),
        ("from_tensor_slices bytes=1k elements=50 | shuffle 1000", "shuffle", 50 * 1000),  # at most all elements
        ("from_tensor_slices bytes=1k | prefetch 3", "prefetch", 3 * 1000),
        ("from_tensor_slices bytes=1k | prefetch AUTOTUNE", "prefetch", memory.AUTOTUNE_PREFETCH_ELEMENTS * 1000),
        ("from_tensor_slices elements=2000 | map bytes=600k elements=2000 | cache", "cache", 2000 * 600e3),
        ("from_tensor_slices elements=2000 | map bytes=600k elements=2000 | cache filename=/tmp/x", "cache", 0),
        ("from_tensor_slices bytes=1k | map None bytes=600k", "map", 0),
        ("from_tensor_slices bytes=1k | map 4 bytes=600k", "map", 4 * 600e3),
        ("from_tensor_slices bytes=1k | map AUTOTUNE bytes=600k", "map", 2 * 600e3),  # as many as cores
        ("from_tensor_slices | interleave cycle_length=4 bytes=1k", "interleave", 4 * memory.READER_BYTES),
        # measured: 36 elements, and 396 with blocks of 16
        ("from_tensor_slices | interleave 4 cycle_length=4 bytes=1M", "interleave", 12 * memory.READER_BYTES + 36e6),
        (
            "from_tensor_slices | interleave 4 cycle_length=4 block_length=16 bytes=1M",
            "interleave",
            12 * memory.READER_BYTES + 396e6,
        ),
        (
            "from_tensor_slices elements=2 | interleave 4 cycle_length=4 bytes=1M elements=5",
            "interleave",
            2 * memory.READER_BYTES + 5e6,
        ),
        ("TFRecordDataset num_parallel_reads=4 bytes=1M", "TFRecordDataset", 12 * memory.READER_BYTES + 36e6),
        ("TFRecordDataset bytes=1M", "TFRecordDataset", 0),
        ("from_tensor_slices bytes=1k | batch 32 bytes=32k", "batch", 32e3),
    ],
)
def test_bytes_held_by_an_operator(text: str, op: str, held: float) -> None:
    words = parse(text)
    found = memory.by_operator(words.pipeline, words.profile, cores=2.0)
    assert {node.op: found[node.id] for node in words.pipeline}[op] == pytest.approx(held)


def test_peak_is_the_sum_or_as_measured_and_edits_add_bytes() -> None:
    words = parse("from_tensor_slices bytes=1k | map bytes=50k elements=100 | batch 10 bytes=500k")
    cached = apply_edits(words.pipeline, [Insert("n1", "cache", "cache@n1", {"filename": ""})])
    assert memory.added_bytes(words.pipeline, cached, words.profile) == pytest.approx(100 * 50e3)
    parallel = apply_edits(words.pipeline, [SetArgument("n1", "num_parallel_calls", 3)])
    assert memory.added_bytes(words.pipeline, parallel, words.profile) == pytest.approx(150e3)
    assert memory.predicted_peak_bytes(words.pipeline, words.profile) == pytest.approx(500e3)

    measured = replace(words.profile, peak_rss_mib=20.0)
    assert memory.expected_peak_bytes(words.pipeline, words.pipeline, measured) == 20 * 2**20
    assert memory.expected_peak_bytes(words.pipeline, cached, measured) == pytest.approx(20 * 2**20 + 100 * 50e3)
    # not measured, or less than the size of the buffers: the buffers alone
    assert memory.expected_peak_bytes(words.pipeline, cached, words.profile) == pytest.approx(500e3 + 100 * 50e3)
    low = replace(words.profile, peak_rss_mib=0.1)
    assert memory.expected_peak_bytes(words.pipeline, words.pipeline, low) == pytest.approx(500e3)
