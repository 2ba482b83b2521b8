"""What the tests of equal and of unequal rewrites share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipetune.core.edits import Edit, Insert, Move, Remove, Safety, SetArgument, apply_edits
from pipetune.core.results import Comparison, EqualityCheck
from pipetune.equality.compare import compare
from pipetune.pipelines import live

Dataset = tf.data.Dataset


def edited(
    dataset: Any,
    *edits: Edit | str,
    safety: Safety = Safety.EXACT,
    elements: int = 24,
    time_limit_seconds: float = 20.0,
) -> Comparison:
    """Compares a dataset with itself after `edits`: each one, or the words of `EDITS`, such as "parallel map 4"."""
    source = live.read(dataset)
    tuned = apply_edits(source.pipeline, [edit_of(dataset, one) if isinstance(one, str) else one for one in edits])
    return compare(source, tuned, safety, elements=elements, time_limit_seconds=time_limit_seconds)


def node(dataset: Any, op: str) -> str:
    """The id of the last operator of a kind."""
    return [node.id for node in live.read(dataset).pipeline if node.op == op][-1]


EDITS: Mapping[str, Callable[..., Edit]] = {
    "parallel": lambda node, calls="2": SetArgument(node, "num_parallel_calls", int(calls)),
    "cached": lambda node: Insert(node, "cache", "cache@1"),
    "prefetched": lambda node: Insert(node, "prefetch", "prefetch@1", {"buffer_size": 2}),
    "moved": Move,
    "removed": Remove,
}
"""What is done to the last operator of a kind, or with what it yields; it is moved behind the last one of another."""


def edit_of(dataset: Any, words: str) -> Edit:
    name, op, *more = words.split()
    return EDITS[name](node(dataset, op), *(node(dataset, one) if name == "moved" else one for one in more))


def check_of(comparison: Comparison, name: str) -> EqualityCheck:
    (found,) = (check for check in comparison.checks if check.name == name)
    return found


def image_draw(x: Any) -> Any:
    return tf.cast(x, tf.float32) + tf.random.uniform([])


def bucketed(dataset: Any, size: int) -> Any:
    """Batches of elements of similar length; those that fill none are dropped."""
    lines = dataset.map(lambda x: tf.fill([x % 40 + 1], x))
    sizes = [size] * 4
    return lines.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [11, 21, 31], sizes, drop_remainder=True)


def one_file(records: int = 20_000) -> Any:
    """Numbers as a list of files yields records: of a shuffle of one element, which becomes many."""
    return Dataset.range(records, records + 1).shuffle(1).flat_map(Dataset.range)


def write_shards(folder: Path, *, shards: int = 6, records: int = 5) -> str:
    """Writes files of records; returns a pattern that names them."""
    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"part-{shard}.tfrecord")) as writer:
            for record in range(records):
                writer.write(f"{shard}:{record}".encode())
    return str(folder / "part-*.tfrecord")
