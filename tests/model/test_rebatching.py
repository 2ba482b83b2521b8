"""The worked examples of the "Distributed Input" guide for batches, and what holds of both ways to cut them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.model.rebatching import (
    Rebatching,
    batches,
    even,
    even_sizes,
    per_replica_batch,
    rebatch,
    rebatching,
    split,
)
from pipetune.model.sharding import AutoShardPolicy

COUNT = st.integers(0, 60)
BATCH = st.integers(1, 40)
REPLICAS = st.integers(1, 9)


@pytest.mark.mission("B2.examples")
def test_six_elements_in_batches_of_four_on_two_replicas() -> None:
    assert rebatch([*range(6)], 4, 2) == [[[0, 1], [2, 3]], [[4], [5]]]


@pytest.mark.mission("B2.examples")
def test_four_elements_in_batches_of_four_on_five_replicas() -> None:
    assert rebatch([*range(4)], 4, 5) == [[[0], [1], [2], [3], []]]


@pytest.mark.mission("B2.examples")
def test_eight_elements_in_batches_of_four_on_three_replicas() -> None:
    assert rebatch([*range(8)], 4, 3) == [[[0, 1], [2, 3], []], [[4, 5], [6, 7], []]]


def test_the_sizes_of_the_example_in_tensorflow_s_source() -> None:
    """`batch_sizes_for_worker`: a global batch of 7, two workers with two replicas each."""
    assert even_sizes(7, workers=2, replicas_per_worker=2, worker=0) == (2, 2, 2, 1)
    assert even_sizes(7, workers=2, replicas_per_worker=2, worker=1) == (2, 1, 2, 2)


def test_an_even_cut_does_not_stop_at_the_end_of_a_batch() -> None:
    assert [len(part) for part in even(6, (2, 2))] == [2, 2, 2]
    assert [len(part) for part in even(8, (2, 1, 1))] == [2, 1, 1, 2, 1, 1]
    assert [len(part) for part in even(5, (2, 1))] == [2, 1, 2]
    assert [len(part) for part in even(4, (3,))] == [3, 1]


def test_the_end_is_noticed_only_when_an_element_is_wanted() -> None:
    assert [len(part) for part in even(2, (1, 0))] == [1, 0, 1, 0]
    assert [len(part) for part in even(2, (0, 1))] == [0, 1, 0, 1, 0]
    assert [len(part) for part in even(0, (0, 1))] == [0]
    assert [len(part) for part in even(1, (2, 0))] == [1]


@pytest.mark.parametrize(
    ("policy", "known", "way"),
    [
        ("file", True, Rebatching.EVEN),
        ("off", True, Rebatching.EVEN),
        ("data", True, Rebatching.SPLIT),
        ("file", False, Rebatching.SPLIT),
        ("off", False, Rebatching.SPLIT),
        ("data", False, Rebatching.SPLIT),
    ],
)
def test_which_way_tensorflow_cuts(policy: str, known: bool, way: Rebatching) -> None:
    assert rebatching(AutoShardPolicy(policy), batch_size_known=known) is way


@given(COUNT, BATCH, REPLICAS)
def test_splitting_keeps_every_element_in_order(count: int, batch: int, replicas: int) -> None:
    found = rebatch([*range(count)], batch, replicas)
    assert [element for step in found for part in step for element in part] == list(range(count))
    assert all(len(step) == replicas for step in found)
    assert all(len(part) <= per_replica_batch(batch, replicas) for step in found for part in step)


@given(st.lists(st.integers(1, 20), max_size=5), REPLICAS)
def test_the_parts_of_a_batch_are_as_large_as_possible_one_after_the_other(sizes: list[int], replicas: int) -> None:
    ends = list(itertools.accumulate(sizes, initial=0))
    whole = [range(first, last) for first, last in itertools.pairwise(ends)]
    parts = list(split(whole, replicas))
    for index, batch in enumerate(whole):
        mine = [len(part) for part in parts[index * replicas : (index + 1) * replicas]]
        assert sum(mine) == len(batch)
        assert mine == sorted(mine, reverse=True)
        assert mine[0] == per_replica_batch(len(batch), replicas)


@given(COUNT, BATCH, st.integers(1, 4), st.integers(1, 3))
def test_even_sizes_add_up_to_the_global_batch_at_every_step(
    count: int, batch: int, workers: int, replicas: int
) -> None:
    every = [even_sizes(batch, workers=workers, replicas_per_worker=replicas, worker=one) for one in range(workers)]
    for sizes in every:
        assert len(sizes) == workers * replicas and sum(sizes) == batch and max(sizes) - min(sizes) <= 1
    for first in range(0, workers * replicas, replicas):
        assert sum(sum(sizes[first : first + replicas]) for sizes in every) == batch
    parts = list(even(count, every[-1]))
    assert [position for part in parts for position in part] == list(range(count))
    wanted = itertools.cycle(every[-1])
    assert all(len(part) == next(wanted) for part in parts[:-1])


@given(COUNT, BATCH, st.booleans())
def test_batches(count: int, size: int, drop: bool) -> None:
    found = list(batches(count, size, drop_remainder=drop))
    assert [position for batch in found for position in batch] == list(range(count - count % size if drop else count))
    assert all(len(batch) == size for batch in found[:-1])


def test_batches_without_end() -> None:
    assert list(itertools.islice(batches(None, 3), 2)) == [range(0, 3), range(3, 6)]


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="replicas"):
        rebatch(range(3), 2, 0)
    with pytest.raises(ValueError, match="global_batch"):
        even_sizes(0, workers=1, replicas_per_worker=1, worker=0)
