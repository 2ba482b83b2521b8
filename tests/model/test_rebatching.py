"""Rebatching: examples of the "Distributed Input" guide, and properties of both ways to split batches."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.model.sharding import (
    AutoShardPolicy,
    Rebatching,
    batch_ranges,
    choose_rebatching,
    per_replica_batch,
    split_batches,
    split_stream,
    stream_split_sizes,
)

COUNT = st.integers(0, 60)
BATCH = st.integers(1, 40)
REPLICAS = st.integers(1, 9)


def rebatch(elements: int, global_batch: int, replicas: int) -> list[list[list[int]]]:
    """The elements by global batch and replica, as one worker delivers them with policy DATA."""
    return [[list(part) for part in split_batches([batch], replicas)] for batch in batch_ranges(elements, global_batch)]


@pytest.mark.mission("B2.examples")
def test_six_elements_in_batches_of_four_on_two_replicas() -> None:
    assert rebatch(6, 4, 2) == [[[0, 1], [2, 3]], [[4], [5]]]


@pytest.mark.mission("B2.examples")
def test_four_elements_in_batches_of_four_on_five_replicas() -> None:
    assert rebatch(4, 4, 5) == [[[0], [1], [2], [3], []]]


@pytest.mark.mission("B2.examples")
def test_eight_elements_in_batches_of_four_on_three_replicas() -> None:
    assert rebatch(8, 4, 3) == [[[0, 1], [2, 3], []], [[4, 5], [6, 7], []]]


def test_sizes_of_example_in_tensorflow_source() -> None:
    """`batch_sizes_for_worker`: a global batch of 7, two workers with two replicas each."""
    assert stream_split_sizes(7, workers=2, replicas_per_worker=2, worker=0) == (2, 2, 2, 1)
    assert stream_split_sizes(7, workers=2, replicas_per_worker=2, worker=1) == (2, 1, 2, 2)


def test_even_split_continues_across_batches() -> None:
    assert [len(part) for part in split_stream(6, (2, 2))] == [2, 2, 2]
    assert [len(part) for part in split_stream(8, (2, 1, 1))] == [2, 1, 1, 2, 1, 1]
    assert [len(part) for part in split_stream(5, (2, 1))] == [2, 1, 2]
    assert [len(part) for part in split_stream(4, (3,))] == [3, 1]


def test_end_is_detected_when_an_element_is_requested() -> None:
    assert [len(part) for part in split_stream(2, (1, 0))] == [1, 0, 1, 0]
    assert [len(part) for part in split_stream(2, (0, 1))] == [0, 1, 0, 1, 0]
    assert [len(part) for part in split_stream(0, (0, 1))] == [0]
    assert [len(part) for part in split_stream(1, (2, 0))] == [1]


@pytest.mark.parametrize(
    ("policy", "known", "way"),
    [
        ("file", True, Rebatching.STREAM),
        ("off", True, Rebatching.STREAM),
        ("data", True, Rebatching.PER_BATCH),
        ("file", False, Rebatching.PER_BATCH),
        ("off", False, Rebatching.PER_BATCH),
        ("data", False, Rebatching.PER_BATCH),
    ],
)
def test_rebatching_by_policy_and_known_batch_size(policy: str, known: bool, way: Rebatching) -> None:
    assert choose_rebatching(AutoShardPolicy(policy), batch_size_known=known) is way


@given(COUNT, BATCH, REPLICAS)
def test_splitting_keeps_all_elements_in_order(count: int, batch: int, replicas: int) -> None:
    found = rebatch(count, batch, replicas)
    assert [element for step in found for part in step for element in part] == list(range(count))
    assert all(len(step) == replicas for step in found)
    assert all(len(part) <= per_replica_batch(batch, replicas) for step in found for part in step)


@given(st.lists(st.integers(1, 20), max_size=5), REPLICAS)
def test_parts_of_batch_are_filled_in_order(sizes: list[int], replicas: int) -> None:
    ends = list(itertools.accumulate(sizes, initial=0))
    whole = [range(first, last) for first, last in itertools.pairwise(ends)]
    parts = list(split_batches(whole, replicas))
    for index, batch in enumerate(whole):
        mine = [len(part) for part in parts[index * replicas : (index + 1) * replicas]]
        assert sum(mine) == len(batch)
        assert mine == sorted(mine, reverse=True)
        assert mine[0] == per_replica_batch(len(batch), replicas)


@given(COUNT, BATCH, st.integers(1, 4), st.integers(1, 3))
def test_even_sizes_sum_up_to_global_batch_at_every_step(count: int, batch: int, workers: int, replicas: int) -> None:
    every = [
        stream_split_sizes(batch, workers=workers, replicas_per_worker=replicas, worker=one) for one in range(workers)
    ]
    for sizes in every:
        assert len(sizes) == workers * replicas and sum(sizes) == batch and max(sizes) - min(sizes) <= 1
    for first in range(0, workers * replicas, replicas):
        assert sum(sum(sizes[first : first + replicas]) for sizes in every) == batch
    parts = list(split_stream(count, every[-1]))
    assert [position for part in parts for position in part] == list(range(count))
    wanted = itertools.cycle(every[-1])
    assert all(len(part) == next(wanted) for part in parts[:-1])


@given(COUNT, BATCH, st.booleans())
def test_batches_contain_all_elements_in_order(count: int, size: int, drop: bool) -> None:
    found = list(batch_ranges(count, size, drop_remainder=drop))
    assert [position for batch in found for position in batch] == list(range(count - count % size if drop else count))
    assert all(len(batch) == size for batch in found[:-1])


def test_infinite_batches() -> None:
    assert list(itertools.islice(batch_ranges(None, 3), 2)) == [range(0, 3), range(3, 6)]


def test_sizes_below_one_are_rejected() -> None:
    with pytest.raises(ValueError, match="replicas"):
        rebatch(3, 2, 0)
    with pytest.raises(ValueError, match="global_batch"):
        stream_split_sizes(0, workers=1, replicas_per_worker=1, worker=0)
