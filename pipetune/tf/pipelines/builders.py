"""Rebuilds operators from their arguments, the user's own dataset object and the upstream datasets.

`BUILDERS` holds every operator except map, which needs a function as well (`mapped`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from pipetune.core.pipeline import Node
from pipetune.tf import private
from pipetune.tf.pipelines import called, file_caches, operators

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


def options_of(values: Mapping[str, Any]) -> tf.data.Options:
    """Builds `tf.data.Options` from dotted option names."""
    options = tf.data.Options()
    for name, value in values.items():
        target: Any = options
        *path, last = name.split(".")
        for part in path:
            target = getattr(target, part)
        setattr(target, last, _NAMED[name][value] if name in _NAMED and isinstance(value, str) else value)
    return options


_NAMED: Mapping[str, Any] = {"autotune.autotune_algorithm": tf.data.experimental.AutotuneAlgorithm}
"""Options whose values are members of an enumeration; an edit stores the name of the member."""


def mapped(node: Node, function: Any, original: Any, above: Any) -> Any:
    """Builds the map `node` over the dataset `above`.

    Args:
        function: a Python function or a dataset's traced function.
        original: the script's map that `node` comes from; None for a map that an edit adds.
    """
    calls = node.argument("num_parallel_calls")
    if calls is None:
        forced = bool(getattr(original, "_force_synchronous", False))
        return above.map(function, synchronous=True if forced else None)
    return above.map(function, num_parallel_calls=calls, deterministic=node.argument("deterministic"))


def _argument(node: Node, name: str, default: Any) -> Any:
    value = node.arguments.get(name)
    return default if value is None else value


def _interleave(node: Node, original: Any, above: list[Any]) -> Any:
    calls = node.argument("num_parallel_calls")
    return above[0].interleave(
        original._map_func,
        cycle_length=node.argument("cycle_length"),
        block_length=node.argument("block_length"),
        num_parallel_calls=calls,
        deterministic=node.argument("deterministic") if calls is not None else None,
    )


def _reader(node: Node, original: Any, above: list[Any]) -> Any:
    """Builds a reader of the same files; each constructor argument is read from the attribute of the same name."""
    names = ("compression_type", "buffer_size", "record_bytes", "header_bytes", "footer_bytes")
    kept = {name: getattr(original, f"_{name}") for name in names if hasattr(original, f"_{name}")}
    files = above[0] if above else original._filenames
    return type(original)(files, num_parallel_reads=node.argument("num_parallel_reads"), **kept)


def _batch(node: Node, _original: Any, above: list[Any]) -> Any:
    calls = node.argument("num_parallel_calls")
    return above[0].batch(
        node.argument("batch_size"),
        drop_remainder=bool(node.argument("drop_remainder")),
        num_parallel_calls=calls,
        deterministic=node.argument("deterministic") if calls is not None else None,
    )


def _padded_batch(node: Node, original: Any, above: list[Any]) -> Any:
    return above[0].padded_batch(
        node.argument("batch_size"),
        padded_shapes=original._padded_shapes,
        padding_values=original._padding_values,
        drop_remainder=bool(node.argument("drop_remainder")),
    )


def _shuffle(node: Node, original: Any, above: list[Any]) -> Any:
    reshuffle = _argument(node, "reshuffle_each_iteration", True)
    if original is None:
        return above[0].shuffle(node.argument("buffer_size"), reshuffle_each_iteration=reshuffle)
    with private.seeds_given(original._seed, original._seed2):
        return above[0].shuffle(node.argument("buffer_size"), reshuffle_each_iteration=reshuffle)


def _group_by_window(_node: Node, original: Any, above: list[Any]) -> Any:
    return above[0].group_by_window(
        original._key_func, original._reduce_func, window_size_func=original._window_size_func
    )


def _window(node: Node, _original: Any, above: list[Any]) -> Any:
    return above[0].window(
        node.argument("size"),
        shift=node.argument("shift"),
        stride=_argument(node, "stride", 1),
        drop_remainder=bool(node.argument("drop_remainder")),
    )


def _cache(node: Node, original: Any, above: list[Any]) -> Any:
    return above[0].cache(file_caches.cache_file(_argument(node, "filename", ""), original))


def _snapshot(_node: Node, original: Any, above: list[Any]) -> Any:
    return type(original)(
        above[0],
        file_caches.snapshot_folder(original),
        shard_func=original._shard_func,
        compression=original._compression,
        reader_func=original._reader_func,
    )


def _to_ragged(_node: Node, original: Any, above: list[Any]) -> Any:
    before, after = tf.nest.flatten(private.inputs(original)[0].element_spec), tf.nest.flatten(original.element_spec)
    kinds = [new.row_splits_dtype for old, new in zip(before, after, strict=True) if old != new]
    return type(original)(above[0], kinds[0] if kinds else tf.int64)


def _rebatch(_node: Node, original: Any, above: list[Any]) -> Any:
    return type(original)(above[0], original._batch_sizes, original._drop_remainder)


def _zip(_node: Node, original: Any, above: list[Any]) -> Any:
    return tf.data.Dataset.zip(tf.nest.pack_sequence_as(original._datasets, above))


def _choose(_node: Node, original: Any, above: list[Any]) -> Any:
    return type(original)(above[0], list(above[1:]), original._stop_on_empty_dataset)


def _copy_to_device(node: Node, original: Any, above: list[Any]) -> Any:
    host = private.source_device(original) if original is not None else "/cpu:0"
    return above[0].apply(tf.data.experimental.copy_to_device(node.argument("target_device"), host))


def _assert_cardinality(node: Node, _original: Any, above: list[Any]) -> Any:
    return above[0].apply(tf.data.experimental.assert_cardinality(node.argument("expected_cardinality")))


BUILDERS: Mapping[str, Callable[[Node, Any, list[Any]], Any]] = {
    "range": lambda node, original, above: tf.data.Dataset.range(
        node.argument("start"), node.argument("stop"), node.argument("step")
    ),
    "TFRecordDataset": _reader,
    "TextLineDataset": _reader,
    "FixedLengthRecordDataset": _reader,
    "interleave": _interleave,
    "flat_map": lambda node, original, above: above[0].flat_map(original._map_func),
    "filter": lambda node, original, above: above[0].filter(called.predicate_of(node, original)),
    "take_while": lambda node, original, above: above[0].take_while(original._predicate),
    "scan": lambda node, original, above: above[0].scan(original._initial_state, original._scan_func),
    "group_by_window": _group_by_window,
    "batch": _batch,
    "padded_batch": _padded_batch,
    "unbatch": lambda node, original, above: type(original)(above[0]),
    "rebatch": _rebatch,
    "to_ragged": _to_ragged,
    "shuffle": _shuffle,
    "repeat": lambda node, original, above: above[0].repeat(_argument(node, "count", -1)),
    "take": lambda node, original, above: above[0].take(node.argument("count")),
    "skip": lambda node, original, above: above[0].skip(node.argument("count")),
    "shard": lambda node, original, above: above[0].shard(node.argument("num_shards"), node.argument("index")),
    "prefetch": lambda node, original, above: above[0].prefetch(node.argument("buffer_size")),
    "cache": _cache,
    "snapshot": _snapshot,
    "window": _window,
    "ignore_errors": lambda node, original, above: above[0].ignore_errors(),
    "unique": lambda node, original, above: above[0].unique(),
    "concatenate": lambda node, original, above: above[0].concatenate(above[1]),
    "zip": _zip,
    "choose": _choose,
    "with_options": lambda node, original, above: above[0].with_options(
        original.options() if original is not None else options_of(node.arguments)
    ),
    "assert_cardinality": _assert_cardinality,
    "copy_to_device": _copy_to_device,
}

NEED_ORIGINAL = frozenset(
    {"map", "interleave", "flat_map", "filter", "take_while", "scan", "group_by_window", "padded_batch", "to_ragged",
     "unbatch", "rebatch", "zip", "choose", "snapshot",
     "TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"}
)  # fmt: skip

assert {kind.op for kind in operators.KINDS.values()} >= set(BUILDERS), "a builder for an unknown operator"
