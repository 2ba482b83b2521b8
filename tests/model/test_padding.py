"""The share of padding in batches, and the buckets that reduce it."""

from __future__ import annotations

import random

import pytest

from pipetune.model.memory import (
    best_buckets,
    bucketed_batches,
    max_buckets,
    padded_share,
    quantile_boundaries,
    sequential_batches,
)


def sequences(*lengths: int) -> list[list[tuple[int, ...]]]:
    return [[(length,)] for length in lengths]


def test_batch_is_padded_to_longest_element() -> None:
    assert padded_share(sequences(2, 8, 5, 5), [4], [[0, 1], [2, 3]]) == pytest.approx(6 / 26)
    assert padded_share(sequences(2, 8, 5, 5), [4], [[0, 1, 2, 3]]) == pytest.approx(12 / 32)
    assert padded_share(sequences(5, 5), [4], [[0, 1]]) == 0
    assert padded_share(sequences(0, 0), [4], [[0, 1]]) == 0  # empty, and no padding
    assert padded_share(sequences(3), [4], []) == 0


def test_components_count_by_bytes_and_all_dimensions_are_padded() -> None:
    elements = [[(2,), (2, 3)], [(4,), (1, 5)]]
    filled = 8 * (2 + 4) + 1 * (6 + 5)
    padded = 8 * 2 * 4 + 1 * 2 * (2 * 5)
    assert padded_share(elements, [8, 1], [[0, 1]]) == pytest.approx(1 - filled / padded)


def test_sequential_batches_are_complete() -> None:
    assert sequential_batches(7, 3) == [range(3), range(3, 6)]
    assert sequential_batches(2, 3) == []


def test_boundary_length_belongs_to_next_bucket() -> None:
    assert bucketed_batches([4, 5, 3, 9, 5, 8], [5, 9], 2) == [[0, 2], [1, 4]]  # 9 and 8 are in incomplete batches


def test_quantile_boundaries_give_buckets_of_similar_size() -> None:
    assert quantile_boundaries(range(1, 101), 4) == (26, 51, 76)
    assert quantile_boundaries([7] * 50, 4) == ()  # all of equal length
    assert quantile_boundaries([1] * 90 + [50] * 10, 2) == ()  # no boundary between equal lengths
    assert quantile_boundaries([1] * 40 + [2] * 60, 4) == (2,)


def test_smallest_sufficient_number_of_buckets_is_chosen() -> None:
    draw = random.Random(3)
    two = [draw.choice((10, 100)) for _ in range(400)]
    boundaries, share = best_buckets(sequences(*two), two, [4], batch_size=8, bucket_limit=8)
    assert boundaries == (100,) and share == 0
    many = [draw.randrange(1, 200) for _ in range(2000)]
    boundaries, share = best_buckets(sequences(*many), many, [4], batch_size=8, bucket_limit=8)
    assert 5 <= len(boundaries) <= 7
    as_written = padded_share(sequences(*many), [4], sequential_batches(2000, 8))
    assert as_written > 0.35 and share < 0.12
    assert best_buckets(sequences(*many), many, [4], batch_size=8, bucket_limit=2)[0] == quantile_boundaries(many, 2)
    assert best_buckets(sequences(*[5] * 50), [5] * 50, [4], batch_size=8, bucket_limit=8) == ((), 0.0)
    assert best_buckets(sequences(1, 2, 3), [1, 2, 3], [4], batch_size=8, bucket_limit=8) == ((), 0.0)


def test_number_of_buckets_is_limited_by_batches() -> None:
    assert max_buckets(-2, 32) == max_buckets(-1, 32) == max_buckets(10**6, 32) == 8
    assert max_buckets(32 * 10 * 3, 32) == 3
    assert max_buckets(500, 32) == 1
