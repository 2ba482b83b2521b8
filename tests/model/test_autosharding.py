"""Which pipelines TensorFlow can shard by file, and where it knows the batch size (`tests/distributed` compares)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.pipeline import Pipeline
from pipetune.model.sharding import batch_size_known, find_shardable_files
from pipetune.testing.words import pipeline

RECORDS = "TFRecordDataset"


@pytest.mark.parametrize(
    ("text", "stopped_at"),
    [
        ("range | batch 4", "n0"),
        ("from_generator | batch 4", "n0"),
        ("list_files | map | batch 4", "n0"),  # a map that reads the file itself
        ("list_files | interleave inner=CSVDataset", "n0"),
        ("CsvDataset | batch 4", "n0"),
        (f"{RECORDS} | scan", "n1"),
        (f"{RECORDS} | ignore_errors | batch 4", "n1"),
        (f"{RECORDS} | group_by_window | prefetch 1", "n1"),
        (f"{RECORDS} | enumerate", "n1"),
        (f"a = {RECORDS}; b = range 9; zip a b", "n1"),
    ],
)
def test_operator_where_sharding_by_file_stops(text: str, stopped_at: str) -> None:
    files = find_shardable_files(pipeline(text))
    assert not files and files.stopped_at == stopped_at and files.divided_at == ()


@pytest.mark.parametrize(
    ("text", "divided_at"),
    [
        (f"{RECORDS} | shuffle 9 | repeat | map | batch 4 | prefetch 1", ["n0"]),
        ("list_files | interleave | map | batch 4", ["n2"]),
        ("list_files | flat_map inner=TFRecordDatasetV2+MapDataset | batch 4", ["n2"]),
        (f"a = {RECORDS}; b = TextLineDataset; zip a b | batch 4", ["n1", "n0"]),
        (f"{RECORDS} | assert_cardinality | unbatch", ["n0"]),
    ],
)
def test_operators_that_are_sharded_by_file(text: str, divided_at: list[str]) -> None:
    files = find_shardable_files(pipeline(text))
    assert files and list(files.divided_at) == divided_at


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("range | batch 4 | map", False),
        ("range | batch 4 num_parallel_calls=2", False),
        ("range | batch 4 | rebatch 2", False),
        ("range | batch 4 | ignore_errors", False),
        ("range | flat_map inner=RangeDataset+BatchDataset", False),
        ("a = range | batch 4; b = range | batch 2; zip a b", False),
        ("a = range | batch 4; b = range | batch 4 | map; zip a b", False),
        ("range", False),
        ("range | batch 4", True),
        ("range | map | batch 4 | prefetch 1", True),
        ("range | padded_batch 4 | shuffle 9 | repeat | take 3", True),
        ("a = range | batch 4; b = range | batch 4; zip a b | filter", True),
    ],
)
def test_known_batch_size(text: str, known: bool) -> None:
    assert batch_size_known(pipeline(text)) is known


@pytest.mark.parametrize(
    ("spec", "known"),
    [
        ("TensorSpec(shape=(None, 2), dtype=tf.int64, name=None)", False),
        ("(TensorSpec(shape=(4,), dtype=tf.int64, name=None), TensorSpec(shape=(None,), dtype=tf.int64))", False),
        ("(TensorSpec(shape=(4,), dtype=tf.int64), RaggedTensorSpec(TensorShape([4, None]), tf.int64))", False),
        ("TensorSpec(shape=<unknown>, dtype=tf.int64, name=None)", False),
        ("TensorSpec(shape=(), dtype=tf.int64, name=None)", False),
        ("TensorSpec(shape=(4, 28, 28), dtype=tf.int64, name=None)", True),
        ("(TensorSpec(shape=(4, 2), dtype=tf.int64), TensorSpec(shape=(4,), dtype=tf.int64))", True),
    ],
)
def test_fixed_shapes_determine_batch_size_after_map(spec: str, known: bool) -> None:
    assert batch_size_known(_with_spec(pipeline("range | batch 4 | map"), spec)) is known


def test_batch_size_is_unknown_for_components_of_different_sizes() -> None:
    spec = "(TensorSpec(shape=(4,), dtype=tf.int64), TensorSpec(shape=(2,), dtype=tf.int64))"
    assert not batch_size_known(_with_spec(pipeline("range | batch 4"), spec))


def _with_spec(made: Pipeline, spec: str) -> Pipeline:
    return replace(made, nodes=(*made.nodes[:-1], replace(made.output, spec=spec)))
