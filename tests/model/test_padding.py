"""The share of padding in batches, and the buckets that reduce it."""

from __future__ import annotations

import random

import pytest

from pipetune.model import memory


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
