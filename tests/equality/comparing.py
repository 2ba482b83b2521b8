"""What the tests of equal and of unequal rewrites share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from pipetune.core.edits import Edit, Insert, Safety, SetArgument, apply_edits
from pipetune.core.results import Comparison
from pipetune.equality.compare import compare
from pipetune.pipelines import live


def edited(
    dataset: Any, *edits: Edit, safety: Safety = Safety.EXACT, elements: int = 24, time_limit_seconds: float = 20.0
) -> Comparison:
    """Compares a dataset with itself after `edits`."""
    source = live.read(dataset)
    tuned = apply_edits(source.pipeline, edits)
    return compare(source, tuned, safety, elements=elements, time_limit_seconds=time_limit_seconds)


def node(dataset: Any, op: str) -> str:
    """The id of the last operator of a kind."""
    return [node.id for node in live.read(dataset).pipeline if node.op == op][-1]


def parallel(dataset: Any, op: str, calls: int = 2) -> Edit:
    """Makes the last operator of a kind parallel."""
    return SetArgument(node(dataset, op), "num_parallel_calls", calls)


def cached(dataset: Any, op: str) -> Edit:
    """Caches what the last operator of a kind yields."""
    return Insert(node(dataset, op), "cache", "cache@1")


def image_draw(x: Any) -> Any:
    return tf.cast(x, tf.float32) + tf.random.uniform([])


def write_shards(folder: Path, *, shards: int = 6, records: int = 5) -> str:
    """Writes files of records; returns a pattern that names them."""
    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"part-{shard}.tfrecord")) as writer:
            for record in range(records):
                writer.write(f"{shard}:{record}".encode())
    return str(folder / "part-*.tfrecord")
