"""Sharding policies, and shards of files and of elements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.errors import PipetuneError
from pipetune.model.sharding import (
    AutoShardPolicy,
    Stream,
    applied_policy,
    shard,
    shard_by_element,
    shard_by_file,
    worker_streams,
)

FILES = st.lists(st.integers(0, 20), min_size=1, max_size=12)


def numbers(stream: Stream) -> list[int]:
    return [number for series in stream.between(0, stream.size) for number in series]


def test_files_are_assigned_to_workers_in_turn() -> None:
    first, second = worker_streams([2, 3, 1], 2, AutoShardPolicy.FILE)
    assert numbers(first) == [0, 1, 5]
    assert numbers(second) == [2, 3, 4]


@pytest.mark.parametrize("policy", [AutoShardPolicy.DATA, AutoShardPolicy.OFF])
def test_all_workers_read_everything_unless_sharded_by_file(policy: AutoShardPolicy) -> None:
    assert [numbers(one) for one in worker_streams([2, 1], 3, policy)] == [[0, 1, 2]] * 3


def test_fewer_files_than_workers_are_rejected_with_hint() -> None:
    with pytest.raises(PipetuneError, match="2 files") as raised:
        worker_streams([6, 6], 3, AutoShardPolicy.FILE)
    assert "DATA" in raised.value.hint


def test_empty_list_of_files_is_sharded_without_error() -> None:
    assert [one.size for one in worker_streams([], 3, AutoShardPolicy.FILE)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("policy", "from_files", "applied"),
    [
        ("auto", True, "file"),
        ("auto", False, "data"),
        ("file", True, "file"),
        ("data", True, "data"),
        ("data", False, "data"),
        ("off", True, "off"),
        ("off", False, "off"),
    ],
)
def test_applied_policy(policy: str, from_files: bool, applied: str) -> None:
    for workers in (1, 2):
        found = applied_policy(AutoShardPolicy(policy), from_files=from_files, workers=workers)
        assert found is AutoShardPolicy(applied)


def test_policy_file_requires_files_for_several_workers() -> None:
    assert applied_policy(AutoShardPolicy.FILE, from_files=False, workers=1) is AutoShardPolicy.FILE
    with pytest.raises(PipetuneError, match="reads files"):
        applied_policy(AutoShardPolicy.FILE, from_files=False, workers=2)


@given(FILES, st.integers(1, 6))
def test_each_element_goes_to_exactly_one_worker(files: list[int], workers: int) -> None:
    for divide in (shard_by_file, shard_by_element):
        shards = [numbers(divide(files, workers, index)) for index in range(workers)]
        assert sorted(number for one in shards for number in one) == list(range(sum(files)))
        assert all(one == sorted(one) for one in shards)


@given(st.integers(0, 60), st.integers(1, 9))
def test_shards_differ_by_at_most_one_element(count: int, workers: int) -> None:
    sizes = [len(shard(range(count), workers, index)) for index in range(workers)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1


@given(FILES, st.integers(1, 4), st.integers(0, 80), st.integers(0, 30))
def test_stream_restarts_at_its_end(files: list[int], workers: int, start: int, length: int) -> None:
    stream = shard_by_file(files, workers, 0)
    once = numbers(stream)
    found = [number for series in stream.between(start, start + length) for number in series]
    assert found == [once[position % len(once)] for position in range(start, start + length) if once]


def test_invalid_sizes_are_rejected() -> None:
    with pytest.raises(ValueError, match="workers"):
        worker_streams([3], 0, AutoShardPolicy.OFF)
    with pytest.raises(ValueError, match="shard 2 of 2"):
        shard(range(3), 2, 2)
    with pytest.raises(ValueError, match="shard -1 of 2"):
        shard_by_element([3], 2, -1)
