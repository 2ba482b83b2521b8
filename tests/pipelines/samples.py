"""A dataset for each operator, and one of a class that pipetune does not know."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Dataset = tf.data.Dataset

_FOLDER = tempfile.TemporaryDirectory(prefix="records-")  # removed when the process ends


def records() -> Any:
    """The names of two files of records, from an operator that a reader has as its input."""
    names = [os.path.join(_FOLDER.name, name) for name in ("one", "two")]
    for name in names:
        with tf.io.TFRecordWriter(name, tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
            for text in (name[-3:], "again"):
                writer.write(text.encode())
    return Dataset.from_tensor_slices(names).take(2)


def numbers() -> Any:
    return Dataset.range(7)


def total(state: Any, x: Any) -> Any:
    return state + x, {"sum": state}


OPERATORS: dict[str, Callable[[], Any]] = {
    "from_list": lambda: tf.data.experimental.from_list([(1, [2, 3]), (4, [5])]),
    "map": lambda: numbers().map(lambda x: {"a": x, "b": (x, [x + 1])}),
    "map, parallel": lambda: numbers().map(lambda x: x * 2, num_parallel_calls=2, deterministic=True),
    "map, synchronous": lambda: numbers().map(lambda x: x * 2, synchronous=True),
    "snapshot": lambda: numbers().snapshot(tempfile.mkdtemp()),
    "copy_to_device": lambda: numbers().apply(tf.data.experimental.copy_to_device("/CPU:0")),
    "interleave": lambda: numbers().interleave(lambda x: Dataset.range(x), cycle_length=3, block_length=2),
    "interleave, default cycle": lambda: numbers().interleave(lambda x: Dataset.range(x)),
    "interleave, parallel": lambda: numbers().interleave(lambda x: Dataset.range(x), cycle_length=3,
        num_parallel_calls=2, deterministic=True),
    "parallel_interleave": lambda: numbers().apply(tf.data.experimental.parallel_interleave(lambda x: Dataset.range(x),
        cycle_length=3, block_length=2)),
    "flat_map": lambda: numbers().flat_map(lambda x: Dataset.from_tensors((x, x)).repeat(x)),
    "filter": lambda: numbers().filter(lambda x: x % 2 == 0),
    "take_while": lambda: numbers().take_while(lambda x: x < 4),
    "scan": lambda: numbers().scan(np.int64(5), total),
    "group_by_window": lambda: numbers().group_by_window(lambda x: x % 2, lambda key, part: part.batch(2),
        window_size=2),
    "group_by_window, function": lambda: numbers().group_by_window(lambda x: x % 2, lambda key, part: part.batch(2),
        window_size_func=lambda key: key + 1),
    "batch": lambda: numbers().batch(3),
    "batch, remainder": lambda: numbers().batch(3, drop_remainder=True, num_parallel_calls=2, deterministic=True),
    "padded_batch": lambda: numbers().map(lambda x: tf.fill([x], x)).padded_batch(3),
    "padded_batch, all": lambda: numbers().map(lambda x: tf.fill([x], x)).padded_batch(2, padded_shapes=[8],
        padding_values=tf.constant(9, tf.int64), drop_remainder=True),
    "unbatch": lambda: numbers().batch(3).unbatch(),
    "ragged_batch": lambda: numbers().map(lambda x: tf.fill([x], x)).ragged_batch(2),
    "ragged_batch, int32": lambda: numbers().map(lambda x: tf.fill([x], x)).ragged_batch(2, drop_remainder=True,
        row_splits_dtype=tf.int32),
    "unbatch, ragged": lambda: numbers().map(lambda x: tf.fill([x], x)).ragged_batch(2).unbatch(),
    "unbatch, dictionary": lambda: numbers().map(lambda x: {"a": x, "b": [x, x]}).batch(3).unbatch(),
    "rebatch": lambda: numbers().batch(4).rebatch(3, drop_remainder=True),
    "rebatch, several": lambda: numbers().batch(4).rebatch([1, 2]),
    "shuffle, seeded": lambda: numbers().shuffle(4, seed=3),
    "shuffle, fixed": lambda: numbers().shuffle(4, seed=3, reshuffle_each_iteration=False),
    "repeat": lambda: numbers().repeat(2),
    "take": lambda: numbers().take(3),
    "skip": lambda: numbers().skip(3),
    "shard": lambda: numbers().shard(3, 1),
    "prefetch": lambda: numbers().prefetch(2),
    "cache": lambda: numbers().cache(),
    "window": lambda: numbers().window(3, shift=2, stride=2, drop_remainder=True),
    "window, defaults": lambda: numbers().window(3),
    "ignore_errors": lambda: numbers().map(lambda x: tf.debugging.check_numerics(1 / x, "x")).ignore_errors(),
    "unique": lambda: numbers().map(lambda x: x % 3).unique(),
    "concatenate": lambda: numbers().concatenate(Dataset.range(2)),
    "zip": lambda: Dataset.zip((numbers(), {"a": Dataset.range(9), "b": Dataset.range(3)})),
    "zip, one branch twice": lambda: [Dataset.zip((one.take(3), one.skip(3))) for one in [numbers()]][0],  # noqa: RUF015
    "sample": lambda: Dataset.sample_from_datasets([numbers(), numbers()], [0.5, 0.5], seed=3),
    "choose": lambda: Dataset.choose_from_datasets([numbers(), numbers()], Dataset.range(2).repeat(9)),
    "with_options": lambda: numbers().with_options(tf.data.Options()).batch(2),
    "assert_cardinality": lambda: numbers().apply(tf.data.experimental.assert_cardinality(7)),
    "enumerate": lambda: numbers().enumerate(start=3),
    "bucket": lambda: numbers().map(lambda x: tf.fill([x], x)).bucket_by_sequence_length(lambda x: tf.shape(x)[0],
        [3, 5], [2, 2, 2]),
    "ragged elements": lambda: Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).map(lambda x: x * 2),
    "sparse elements": lambda: Dataset.from_tensor_slices(tf.sparse.from_dense([[1, 0], [0, 2]])).map(lambda x: x * 2),
    "TFRecordDataset": lambda: tf.data.TFRecordDataset(records(), "GZIP").batch(9),
    "TextLineDataset": lambda: tf.data.TextLineDataset(records(), "GZIP", num_parallel_reads=2).batch(9),
    "FixedLengthRecordDataset": lambda: tf.data.FixedLengthRecordDataset(records(), 1, header_bytes=5, footer_bytes=3,
        compression_type="GZIP").batch(9),
    "strings": lambda: Dataset.from_tensor_slices(["a", "b"]).map(lambda x: x + "!").batch(2),
}  # fmt: skip


class Unknown(tf.data.Dataset):  # type: ignore[misc,name-defined]
    """Passes its input on."""

    def __init__(self, above: Any) -> None:
        self._above = above
        super().__init__(above._variant_tensor)

    def _inputs(self) -> list[Any]:
        return [self._above]

    @property
    def element_spec(self) -> Any:
        return self._above.element_spec
