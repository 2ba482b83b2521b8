"""Bytes that each operator holds, and the predicted peak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Insert, SetArgument, apply_edits
from pipetune.model.memory import READER_BYTES, added_bytes, by_operator, expected_peak_bytes, predicted_peak_bytes
from pipetune.testing.words import parse


def held(text: str, *, cores: float = 1.0) -> dict[str, float]:
    words = parse(text)
    found = by_operator(words.pipeline, words.profile, cores=cores)
    return {node.op: found[node.id] for node in words.pipeline}


def test_shuffle_and_prefetch_hold_elements() -> None:
    found = held("from_tensor_slices bytes=1k elements=5000 | shuffle 1000 | prefetch 3")
    assert found["from_tensor_slices"] == 0
    assert found["shuffle"] == 1000 * 1000
    assert found["prefetch"] == 3 * 1000


def test_shuffle_holds_at_most_all_elements() -> None:
    assert held("from_tensor_slices bytes=1k elements=50 | shuffle 1000")["shuffle"] == 50 * 1000


def test_autotuned_prefetch_is_bounded() -> None:
    assert 0 < held("from_tensor_slices bytes=1k | prefetch AUTOTUNE")["prefetch"] <= 16_000


def test_cache_in_memory_holds_all_elements() -> None:
    text = "from_tensor_slices bytes=1k elements=2000 | map bytes=600k elements=2000 | cache{}"
    assert held(text.format(""))["cache"] == pytest.approx(2000 * 600e3)
    assert held(text.format(" filename=/tmp/x"))["cache"] == 0


def test_parallel_calls_hold_results_in_flight() -> None:
    text = "from_tensor_slices bytes=1k | map {} bytes=600k"
    assert held(text.format("None"))["map"] == 0
    assert held(text.format("4"))["map"] == 4 * 600e3
    assert held(text.format("AUTOTUNE"), cores=2)["map"] == 2 * 600e3


def test_interleave_holds_its_readers() -> None:
    found = held("from_tensor_slices | interleave cycle_length=4 bytes=1k")["interleave"]
    assert found == 4 * READER_BYTES


def test_batch_holds_one_batch() -> None:
    assert held("from_tensor_slices bytes=1k | batch 32 bytes=32k")["batch"] == 32e3


def test_predicted_peak_is_sum_and_edits_add_bytes() -> None:
    words = parse("from_tensor_slices bytes=1k | map bytes=50k elements=100 | batch 10 bytes=500k")
    cached = apply_edits(words.pipeline, [Insert("n1", "cache", "cache@n1", {"filename": ""})])
    assert added_bytes(words.pipeline, cached, words.profile) == pytest.approx(100 * 50e3)
    parallel = apply_edits(words.pipeline, [SetArgument("n1", "num_parallel_calls", 3)])
    assert added_bytes(words.pipeline, parallel, words.profile) == pytest.approx(150e3)
    assert predicted_peak_bytes(words.pipeline, words.profile) == pytest.approx(500e3)


def test_expected_peak_is_measured_peak_plus_added_bytes() -> None:
    words = parse("from_tensor_slices bytes=1k | map bytes=50k elements=100 | batch 10 bytes=500k")
    cached = apply_edits(words.pipeline, [Insert("n1", "cache", "cache@n1", {"filename": ""})])
    measured = replace(words.profile, peak_rss_mib=20.0)
    assert expected_peak_bytes(words.pipeline, words.pipeline, measured) == 20 * 2**20
    assert expected_peak_bytes(words.pipeline, cached, measured) == pytest.approx(20 * 2**20 + 100 * 50e3)
    # not measured, or less than the size of the buffers: the buffers alone
    assert expected_peak_bytes(words.pipeline, cached, words.profile) == pytest.approx(500e3 + 100 * 50e3)
    low = replace(words.profile, peak_rss_mib=0.1)
    assert expected_peak_bytes(words.pipeline, words.pipeline, low) == pytest.approx(500e3)
