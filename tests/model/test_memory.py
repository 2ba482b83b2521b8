"""Memory: bytes that operators hold, the predicted peak, growth from readings, and padding with its buckets."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from pipetune.core.edits import Insert, SetArgument, apply_edits
from pipetune.core.profile import MemoryGrowth
from pipetune.model import memory
from pipetune.model.memory import FEWEST_READINGS, growth
from tests.words import parse


@pytest.mark.parametrize(("text", "op", "held"), [
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
    ("from_tensor_slices | interleave 4 cycle_length=4 block_length=16 bytes=1M", "interleave",
        12 * memory.READER_BYTES + 396e6),
    ("from_tensor_slices elements=2 | interleave 4 cycle_length=4 bytes=1M elements=5", "interleave",
        2 * memory.READER_BYTES + 5e6),
    ("TFRecordDataset num_parallel_reads=4 bytes=1M", "TFRecordDataset", 12 * memory.READER_BYTES + 36e6),
    ("TFRecordDataset bytes=1M", "TFRecordDataset", 0),
    ("from_tensor_slices bytes=1k | batch 32 bytes=32k", "batch", 32e3),
])  # fmt: skip
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


MIB = 2**20
BASE = 500 * MIB


def watched(sizes: list[float], *, per_reading: int = 100) -> MemoryGrowth:
    found = growth([(per_reading * index, BASE + size) for index, size in enumerate(sizes)], epoch_elements=600)
    assert found is not None
    return found


def test_leak_is_steady_with_correct_slope() -> None:
    draw = random.Random(1)
    found = watched([index * MIB + draw.uniform(-0.2, 0.2) * MIB for index in range(24)])
    assert found.steady
    slope = found.bytes_per_element
    assert slope.low < MIB / 100 < slope.high and slope.median == pytest.approx(MIB / 100, rel=0.05)
    assert found.elements == 2300 and found.epochs == pytest.approx(23 / 6)
    assert found.grown_bytes == pytest.approx(23 * MIB, rel=0.05)


@pytest.mark.parametrize("sizes", [
    pytest.param([0.0] * 24, id="constant"),
    pytest.param([60 * MIB * (1 - math.exp(-index / 6)) for index in range(24)], id="a buffer that fills"),
    pytest.param([min(index, 10) * 4 * MIB for index in range(24)], id="a buffer that is full"),
    pytest.param([0.0] * 20 + [64.0 * MIB] * 4, id="a single jump"),
    pytest.param([-index * MIB for index in range(24)], id="shrinking"),
    pytest.param([index * 4096.0 for index in range(24)], id="within the noise of an allocator"),
])  # fmt: skip
def test_what_is_not_a_leak(sizes: list[float]) -> None:
    assert not watched(sizes).steady


def test_random_walk_is_rarely_reported_as_leak() -> None:
    """A random walk rises and falls for long stretches; a fitted line would be 'significant'."""
    called = 0
    for seed in range(400):
        draw = random.Random(seed)
        steps = [draw.gauss(0, 3) * MIB for _ in range(24)]
        called += watched(list(itertools.accumulate(steps))).steady
    assert called <= 400 * 0.01


def test_too_few_readings_give_no_result() -> None:
    assert growth([(index, BASE) for index in range(FEWEST_READINGS - 1)]) is None
    assert growth([(0, BASE)] * 24) is None
    assert watched([index * MIB for index in range(24)]).bytes_per_element.pairs == 23


def sequences(*lengths: int) -> list[list[tuple[int, ...]]]:
    return [[(length,)] for length in lengths]


def test_batch_is_padded_to_longest_element() -> None:
    assert memory.padded_share(sequences(2, 8, 5, 5), [4], [[0, 1], [2, 3]]) == pytest.approx(6 / 26)
    assert memory.padded_share(sequences(2, 8, 5, 5), [4], [[0, 1, 2, 3]]) == pytest.approx(12 / 32)
    assert memory.padded_share(sequences(5, 5), [4], [[0, 1]]) == 0
    assert memory.padded_share(sequences(0, 0), [4], [[0, 1]]) == 0  # empty, and no padding
    assert memory.padded_share(sequences(3), [4], []) == 0
    # components count by bytes, and all dimensions are padded
    elements = [[(2,), (2, 3)], [(4,), (1, 5)]]
    filled = 8 * (2 + 4) + 1 * (6 + 5)
    padded = 8 * 2 * 4 + 1 * 2 * (2 * 5)
    assert memory.padded_share(elements, [8, 1], [[0, 1]]) == pytest.approx(1 - filled / padded)


def test_batches_are_complete_and_boundary_length_belongs_to_next_bucket() -> None:
    assert memory.sequential_batches(7, 3) == [range(3), range(3, 6)] and memory.sequential_batches(2, 3) == []
    assert memory.bucketed_batches([4, 5, 3, 9, 5, 8], [5, 9], 2) == [[0, 2], [1, 4]]  # 9 and 8: of incomplete ones


def test_quantile_boundaries_give_buckets_of_similar_size() -> None:
    assert memory.quantile_boundaries(range(1, 101), 4) == (26, 51, 76)
    assert memory.quantile_boundaries([7] * 50, 4) == ()  # all of equal length
    assert memory.quantile_boundaries([1] * 90 + [50] * 10, 2) == ()  # no boundary between equal lengths
    assert memory.quantile_boundaries([1] * 40 + [2] * 60, 4) == (2,)


def best(lengths: list[int], most: int = 8) -> tuple[tuple[int, ...], float]:
    return memory.best_buckets(sequences(*lengths), lengths, [4], batch_size=8, bucket_limit=most)


def test_smallest_sufficient_number_of_buckets_is_chosen() -> None:
    draw = random.Random(3)
    assert best([draw.choice((10, 100)) for _ in range(400)]) == ((100,), 0)
    many = [draw.randrange(1, 200) for _ in range(2000)]
    boundaries, share = best(many)
    assert 5 <= len(boundaries) <= 7
    as_written = memory.padded_share(sequences(*many), [4], memory.sequential_batches(2000, 8))
    assert as_written > 0.35 and share < 0.12
    assert best(many, 2)[0] == memory.quantile_boundaries(many, 2)
    assert best([5] * 50) == best([1, 2, 3]) == ((), 0.0)


def test_number_of_buckets_is_limited_by_batches() -> None:
    assert memory.max_buckets(-2, 32) == memory.max_buckets(-1, 32) == memory.max_buckets(10**6, 32) == 8
    assert memory.max_buckets(32 * 10 * 3, 32) == 3
    assert memory.max_buckets(500, 32) == 1
