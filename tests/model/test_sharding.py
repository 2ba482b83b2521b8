"""How TensorFlow shards pipelines and splits batches, without TensorFlow (`tests/distributed` compares with it)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.errors import PipetuneError
from pipetune.model import coverage
from pipetune.model.coverage import AutoShardPolicy
from tests.words import pipeline

# -- policies

RECORDS = "TFRecordDataset"


@pytest.mark.parametrize(
    ("text", "stopped_at", "divided_at"),
    [
        ("range | batch 4", "n0", ()),
        ("list_files | map | batch 4", "n0", ()),  # a map that reads the file itself
        ("list_files | interleave inner=CSVDataset", "n0", ()),
        (f"{RECORDS} | scan", "n1", ()),
        (f"{RECORDS} | group_by_window | prefetch 1", "n1", ()),
        (f"{RECORDS} | enumerate", "n1", ()),
        (f"a = {RECORDS}; b = range 9; zip a b", "n1", ()),
        (f"{RECORDS} | shuffle 9 | repeat | map | batch 4 | prefetch 1", None, ("n0",)),
        ("list_files | interleave | map | batch 4", None, ("n2",)),
        ("list_files | flat_map inner=TFRecordDatasetV2+MapDataset | batch 4", None, ("n2",)),
        (f"a = {RECORDS}; b = TextLineDataset; zip a b | batch 4", None, ("n1", "n0")),
        (f"{RECORDS} | assert_cardinality | unbatch", None, ("n0",)),
    ],
)
def test_operators_that_are_sharded_by_file(text: str, stopped_at: str | None, divided_at: tuple[str, ...]) -> None:
    files = coverage.find_shardable_files(pipeline(text))
    assert bool(files) is (stopped_at is None) and files.divided_at == divided_at
    assert stopped_at is None or files.stopped_at == stopped_at


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("range | flat_map inner=RangeDataset+BatchDataset", False),
        ("a = range | batch 4; b = range | batch 2; zip a b", False),
        ("a = range | batch 4; b = range | batch 4 | map; zip a b", False),
        ("range | padded_batch 4 | shuffle 9 | repeat | take 3", True),
        ("a = range | batch 4; b = range | batch 4; zip a b | filter", True),
    ],
)
def test_known_batch_size(text: str, known: bool) -> None:
    assert coverage.batch_size_known(pipeline(text)) is known


@pytest.mark.parametrize(
    ("shapes", "known"),
    [(["None, 2"], False), (["4,", "None,"], False), (["4,", "2,"], False), (["4, 2", "4,"], True)],
)
def test_fixed_shapes_determine_batch_size_after_map(shapes: list[str], known: bool) -> None:
    made = pipeline("range | batch 4 | map")
    specs = ", ".join(f"TensorSpec(shape=({one}), dtype=tf.int64, name=None)" for one in shapes)
    output = replace(made.output, spec=specs if len(shapes) == 1 else f"({specs})")
    assert coverage.batch_size_known(replace(made, nodes=(*made.nodes[:-1], output))) is known


@pytest.mark.parametrize(
    ("policy", "from_files", "applied"),
    [
        ("auto", True, "file"),
        ("auto", False, "data"),
        ("file", True, "file"),
        ("data", True, "data"),
        ("off", True, "off"),
    ],
)
def test_applied_policy(policy: str, from_files: bool, applied: str) -> None:
    for workers in (1, 2):
        assert coverage.applied_policy(AutoShardPolicy(policy), from_files=from_files, workers=workers).value == applied


def test_policy_file_requires_files_for_several_workers() -> None:
    assert coverage.applied_policy(AutoShardPolicy.FILE, from_files=False, workers=1) is AutoShardPolicy.FILE
    with pytest.raises(PipetuneError, match="reads files"):
        coverage.applied_policy(AutoShardPolicy.FILE, from_files=False, workers=2)


# -- batches of replicas


@pytest.mark.mission("B2.examples")
@pytest.mark.parametrize(
    ("elements", "replicas", "expected"),
    [
        (6, 2, [[0, 1], [2, 3], [4], [5]]),
        (4, 5, [[0], [1], [2], [3], []]),
        (8, 3, [[0, 1], [2, 3], [], [4, 5], [6, 7], []]),
    ],
)
def test_batches_of_four_in_the_guide(elements: int, replicas: int, expected: list[list[int]]) -> None:
    assert [list(part) for part in coverage.split_batches(coverage.batch_ranges(elements, 4), replicas)] == expected


def test_sizes_of_example_in_tensorflow_source() -> None:
    """`batch_sizes_for_worker`: a global batch of 7, two workers with two replicas each."""
    assert coverage.stream_split_sizes(7, workers=2, replicas_per_worker=2, worker=0) == (2, 2, 2, 1)
    assert coverage.stream_split_sizes(7, workers=2, replicas_per_worker=2, worker=1) == (2, 1, 2, 2)


@pytest.mark.parametrize(
    ("elements", "sizes", "expected"),
    [
        (6, (2, 2), [2, 2, 2]),
        (4, (3,), [3, 1]),
        # the end is detected when an element is requested
        (2, (1, 0), [1, 0, 1, 0]),
        (2, (0, 1), [0, 1, 0, 1, 0]),
        (0, (0, 1), [0]),
        (1, (2, 0), [1]),
    ],
)
def test_stream_is_split_across_batches(elements: int, sizes: tuple[int, ...], expected: list[int]) -> None:
    assert [len(part) for part in coverage.split_stream(elements, sizes)] == expected


@given(st.integers(0, 60), st.integers(1, 40), st.integers(1, 4), st.integers(1, 3))
def test_splitting_keeps_all_elements_in_order(count: int, batch: int, workers: int, replicas: int) -> None:
    by = {"workers": workers, "replicas_per_worker": replicas}
    every = [coverage.stream_split_sizes(batch, **by, worker=one) for one in range(workers)]
    for first in range(0, workers * replicas, replicas):
        assert sum(sum(sizes[first : first + replicas]) for sizes in every) == batch, "in every step"
    batches = coverage.split_batches(coverage.batch_ranges(count, batch), workers * replicas)
    for parts in (coverage.split_stream(count, every[-1]), batches):
        assert list(itertools.chain.from_iterable(parts)) == list(range(count))
