"""How much of batches is padding: by hand for a few elements, and against a count of every value for many."""

from __future__ import annotations

import random

import pytest

from pipetune.model.padding import best_buckets, in_buckets, in_order, most_buckets, padded_share, quantiles


def sequences(*lengths: int) -> list[list[tuple[int, ...]]]:
    return [[(length,)] for length in lengths]


def test_a_batch_is_as_long_as_its_longest() -> None:
    assert padded_share(sequences(2, 8, 5, 5), [4], [[0, 1], [2, 3]]) == pytest.approx(6 / 26)
    assert padded_share(sequences(2, 8, 5, 5), [4], [[0, 1, 2, 3]]) == pytest.approx(12 / 32)
    assert padded_share(sequences(5, 5), [4], [[0, 1]]) == 0
    assert padded_share(sequences(0, 0), [4], [[0, 1]]) == 0  # nothing in it, and nothing added
    assert padded_share(sequences(3), [4], []) == 0


def test_every_component_counts_by_its_bytes_and_every_dimension_is_padded() -> None:
    elements = [[(2,), (2, 3)], [(4,), (1, 5)]]
    filled = 8 * (2 + 4) + 1 * (6 + 5)
    padded = 8 * 2 * 4 + 1 * 2 * (2 * 5)
    assert padded_share(elements, [8, 1], [[0, 1]]) == pytest.approx(1 - filled / padded)


def test_batches_in_order_are_whole() -> None:
    assert in_order(7, 3) == [range(3), range(3, 6)]
    assert in_order(2, 3) == []


def test_an_element_as_long_as_a_boundary_is_in_the_bucket_that_begins_there() -> None:
    assert in_buckets([4, 5, 3, 9, 5, 8], [5, 9], 2) == [[0, 2], [1, 4]]  # 9 and 8 wait for others


def test_boundaries_give_buckets_about_as_many_each() -> None:
    assert quantiles(range(1, 101), 4) == (26, 51, 76)
    assert quantiles([7] * 50, 4) == ()  # one length
    assert quantiles([1] * 90 + [50] * 10, 2) == ()  # no cut in the middle of equal lengths
    assert quantiles([1] * 40 + [2] * 60, 4) == (2,)


def test_the_fewest_buckets_that_are_about_as_good_as_any() -> None:
    draw = random.Random(3)
    two = [draw.choice((10, 100)) for _ in range(400)]
    boundaries, share = best_buckets(sequences(*two), two, [4], batch_size=8, most=8)
    assert boundaries == (100,) and share == 0
    many = [draw.randrange(1, 200) for _ in range(2000)]
    boundaries, share = best_buckets(sequences(*many), many, [4], batch_size=8, most=8)
    assert 5 <= len(boundaries) <= 7
    as_written = padded_share(sequences(*many), [4], in_order(2000, 8))
    assert as_written > 0.35 and share < 0.12
    assert best_buckets(sequences(*many), many, [4], batch_size=8, most=2)[0] == quantiles(many, 2)
    assert best_buckets(sequences(*[5] * 50), [5] * 50, [4], batch_size=8, most=8) == ((), 0.0)
    assert best_buckets(sequences(1, 2, 3), [1, 2, 3], [4], batch_size=8, most=8) == ((), 0.0)


def test_every_bucket_gets_batches_enough() -> None:
    assert most_buckets(-2, 32) == most_buckets(-1, 32) == most_buckets(10**6, 32) == 8
    assert most_buckets(32 * 10 * 3, 32) == 3
    assert most_buckets(500, 32) == 1
