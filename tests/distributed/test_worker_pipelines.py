"""The pipeline TensorFlow builds for each worker: its batches, its buffer, its files and batch sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from tensorflow.python.data.experimental.ops import distribute

from pipetune import tensorflow_private
from pipetune.model.coverage import AutoShardPolicy, batch_size_known, find_shardable_files, worker_batches
from pipetune.pipelines import live


@pytest.mark.parametrize(("workers", "replicas"), [(1, 3), (2, 1), (3, 2)])
@pytest.mark.parametrize(("elements", "batch"), [(29, 8), (3, 1), (0, 4)])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("policy", [AutoShardPolicy.DATA, AutoShardPolicy.OFF])
def test_computed_batches_equal_those_of_tensorflow(
    workers: int, replicas: int, elements: int, batch: int, known: bool, policy: AutoShardPolicy
) -> None:
    dataset = tf.data.Dataset.range(elements).batch(batch)
    if not known:
        dataset = dataset.map(lambda numbers: numbers + 0)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy.name]
    for worker in range(workers):
        which = {"workers": workers, "worker": worker}
        mine = tensorflow_private.worker_pipeline(dataset.with_options(options), **which, replicas=workers * replicas)
        computed = worker_batches(
            elements, batch, **which, replicas_per_worker=replicas, policy=policy, batch_size_known=known
        )
        assert [part.tolist() for part in mine.as_numpy_iterator()] == [list(part) for part in computed], worker


def test_one_batch_per_replica_of_the_worker_is_prefetched() -> None:
    made = tensorflow_private.worker_pipeline(tf.data.Dataset.range(24).batch(12), workers=2, worker=0, replicas=6)
    prefetch = made._input_dataset
    assert type(prefetch).__name__ == "_PrefetchDataset"
    assert int(prefetch._buffer_size) == 3


RECORDS = tf.data.TFRecordDataset
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "records": lambda files: RECORDS(files),
    "records of a dataset": lambda files: RECORDS(tf.data.Dataset.from_tensor_slices(files)),
    "lines": lambda files: tf.data.TextLineDataset(files),
    "fixed": lambda files: tf.data.FixedLengthRecordDataset(files, 1),
    "csv": lambda files: tf.data.experimental.CsvDataset(files, [tf.int32]),
    "interleave": lambda files: tf.data.Dataset.from_tensor_slices(files).interleave(RECORDS),
    "listed": lambda files: tf.data.Dataset.list_files(files).interleave(RECORDS, num_parallel_calls=2),
    "flat_map": lambda files: tf.data.Dataset.from_tensor_slices(files).flat_map(tf.data.TextLineDataset),
    "read in a map": lambda files: tf.data.Dataset.from_tensor_slices(files).map(tf.io.read_file),
    "generator": lambda files: tf.data.Dataset.from_generator(list, output_signature=tf.TensorSpec([], tf.int32)),
    "random": lambda files: tf.data.Dataset.random(),
    "batch": lambda files: RECORDS(files).batch(2),
    "parallel batch": lambda files: RECORDS(files).batch(2, num_parallel_calls=2),
    "drop": lambda files: RECORDS(files).batch(2, drop_remainder=True).map(tf.identity),
    "padded_batch": lambda files: RECORDS(files).padded_batch(2),
    "ragged_batch": lambda files: RECORDS(files).ragged_batch(2),
    "unbatch": lambda files: RECORDS(files).batch(2).unbatch(),
    "rebatch": lambda files: RECORDS(files).batch(2).rebatch(3),
    "map": lambda files: RECORDS(files).batch(2).map(tf.identity),
    "filter": lambda files: RECORDS(files).batch(2).filter(lambda _: True),
    "shuffle": lambda files: RECORDS(files).batch(2).shuffle(2),
    "repeat": lambda files: RECORDS(files).batch(2).repeat(2),
    "take": lambda files: RECORDS(files).batch(2).take(2),
    "skip": lambda files: RECORDS(files).batch(2).skip(1),
    "shard": lambda files: RECORDS(files).batch(2).shard(2, 0),
    "cache": lambda files: RECORDS(files).batch(2).cache(),
    "prefetch": lambda files: RECORDS(files).batch(2).prefetch(1),
    "ignore_errors": lambda files: RECORDS(files).batch(2).ignore_errors(),
    "assert_cardinality": lambda files: RECORDS(files).batch(2).apply(tf.data.experimental.assert_cardinality(6)),
    "scan": lambda files: RECORDS(files).batch(2).scan(0, lambda state, value: (state, value)),
    "take_while": lambda files: RECORDS(files).batch(2).take_while(lambda _: True),
    "unique": lambda files: RECORDS(files).unique(),
    "window": lambda files: RECORDS(files).window(2).flat_map(lambda window: window),
    "snapshot": lambda files: RECORDS(files).batch(2).snapshot(files[0] + "-snapshot"),
    "enumerate": lambda files: RECORDS(files).enumerate().batch(2),
    "zip": lambda files: tf.data.Dataset.zip((RECORDS(files).batch(2), RECORDS(files).batch(2))),
    "zip of two sizes": lambda files: tf.data.Dataset.zip((RECORDS(files).batch(2), RECORDS(files).batch(3))),
    "zip with numbers": lambda files: tf.data.Dataset.zip((RECORDS(files).batch(2), tf.data.Dataset.range(9).batch(2))),
    "concatenate": lambda files: RECORDS(files).batch(2).concatenate(RECORDS(files).batch(2)),
    "sample": lambda files: tf.data.Dataset.sample_from_datasets([RECORDS(files).batch(2), RECORDS(files).batch(2)]),
    "arrays": lambda files: tf.data.Dataset.from_tensors(tf.zeros((8, 2))),
    "arrays of two sizes": lambda files: tf.data.Dataset.from_tensors((tf.zeros((8, 2)), tf.zeros((4, 2)))),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_shardable_files_and_batch_size_are_found_as_by_tensorflow(name: str, tmp_path: Path) -> None:
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    for path in files:
        Path(path).write_bytes(b"")
    dataset = OPERATORS[name](files)
    read = live.read(dataset).pipeline
    assert bool(find_shardable_files(read)) is divides_files(dataset), read.identities()
    try:
        size = int(distribute.compute_batch_size(dataset))
    except IndexError:  # scalars: not batched
        size = -1
    assert batch_size_known(read) is (size != -1)


def divides_files(dataset: Any) -> bool:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    try:
        distribute._AutoShardDataset(dataset.with_options(options), 2, 0, 2)
    except tf.errors.NotFoundError:
        return False
    return True
