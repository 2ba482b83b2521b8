"""Maps TensorFlow's live dataset classes to the public tf.data operators that create them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.pipeline import SERVICE, Value


@dataclass(frozen=True)
class Kind:
    """How to read one dataset class: its operator, and the attributes that hold its arguments and its functions."""

    op: str
    arguments: Mapping[str, str] = field(default_factory=dict)  # public argument -> attribute of the object
    functions: tuple[str, ...] = ()
    transparent: bool = False  # internal wrapper that adds nothing: not shown as an operator


_MAP = {"num_parallel_calls": "_num_parallel_calls", "deterministic": "_deterministic"}
_BATCH = {"batch_size": "_batch_size", "drop_remainder": "_drop_remainder"}
_INTERLEAVE = {"cycle_length": "_cycle_length", "block_length": "_block_length"}

KINDS: Mapping[str, Kind] = {
    "_RangeDataset": Kind("range", {"start": "_start", "stop": "_stop", "step": "_step"}),
    "_RandomDataset": Kind("random"),
    "_TensorDataset": Kind("from_tensors"),
    "_TensorSliceDataset": Kind("from_tensor_slices"),
    "_SparseTensorSliceDataset": Kind("from_sparse_tensor_slices"),
    "_LoadDataset": Kind("load", {"path": "_path"}),
    "TFRecordDatasetV2": Kind(
        "TFRecordDataset",
        {"compression_type": "_compression_type", "num_parallel_reads": "_num_parallel_reads"},
    ),
    "TextLineDatasetV2": Kind("TextLineDataset", {"compression_type": "_compression_type"}),
    "FixedLengthRecordDatasetV2": Kind("FixedLengthRecordDataset", {"record_bytes": "_record_bytes"}),
    "CsvDatasetV2": Kind("CsvDataset"),
    "_MapDataset": Kind("map", _MAP, ("_map_func",)),
    "_ParallelMapDataset": Kind("map", _MAP, ("_map_func",)),
    "_FilterDataset": Kind("filter", {}, ("_predicate",)),
    "_FlatMapDataset": Kind("flat_map", {}, ("_map_func",)),
    "_InterleaveDataset": Kind("interleave", {**_INTERLEAVE, **_MAP}, ("_map_func",)),
    "_ParallelInterleaveDataset": Kind("interleave", {**_INTERLEAVE, **_MAP}, ("_map_func",)),
    "_BatchDataset": Kind("batch", {**_BATCH, **_MAP}),
    "_ParallelBatchDataset": Kind("batch", {**_BATCH, **_MAP}),
    "_PaddedBatchDataset": Kind("padded_batch", _BATCH),
    "_UnbatchDataset": Kind("unbatch"),
    "_RestructuredDataset": Kind("restructure", transparent=True),
    "_DenseToRaggedDataset": Kind("to_ragged"),
    "_ShuffleDataset": Kind(
        "shuffle", {"buffer_size": "_buffer_size", "reshuffle_each_iteration": "_reshuffle_each_iteration"}
    ),
    "_RepeatDataset": Kind("repeat", {"count": "_count"}),
    "_TakeDataset": Kind("take", {"count": "_count"}),
    "_SkipDataset": Kind("skip", {"count": "_count"}),
    "_ShardDataset": Kind("shard", {"num_shards": "_num_shards", "index": "_index"}),
    "_PrefetchDataset": Kind("prefetch", {"buffer_size": "_buffer_size"}),
    "CacheDataset": Kind("cache", {"filename": "_filename"}),
    "_WindowDataset": Kind(
        "window",
        {"size": "_size", "shift": "_shift", "stride": "_stride", "drop_remainder": "_drop_remainder"},
    ),
    "_TakeWhileDataset": Kind("take_while", {}, ("_predicate",)),
    "_ScanDataset": Kind("scan", {}, ("_scan_func",)),
    "_GroupByWindowDataset": Kind("group_by_window", {}, ("_key_func", "_reduce_func", "_window_size_func")),
    "_IgnoreErrorsDataset": Kind("ignore_errors"),
    "_UniqueDataset": Kind("unique"),
    "_ConcatenateDataset": Kind("concatenate"),
    "_ZipDataset": Kind("zip"),
    "_DirectedInterleaveDataset": Kind("choose", {"stop_on_empty_dataset": "_stop_on_empty_dataset"}),
    "_SnapshotDataset": Kind("snapshot"),
    "_RebatchDataset": Kind("rebatch", {"batch_size": "_batch_sizes", "drop_remainder": "_drop_remainder"}),
    "_OptionsDataset": Kind("with_options"),
    "_CopyToDeviceDataset": Kind("copy_to_device", {"target_device": "_target_device"}),
    "_AssertCardinalityDataset": Kind(
        "assert_cardinality", {"expected_cardinality": "_expected_cardinality"}
    ),
}

OPAQUE = Kind("opaque")

_SAID: Mapping[str, str] = {"_DataServiceDatasetV2": SERVICE}

READERS = frozenset({"TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset"})
"""Readers of any number of files."""

_DEFAULTS: Mapping[str, Mapping[str, Value]] = {
    "map": {"num_parallel_calls": None, "deterministic": None},
    "interleave": {"num_parallel_calls": None, "deterministic": None},
    "batch": {"num_parallel_calls": None, "deterministic": None},
}


def label_of(dataset: Any) -> str:
    """Returns the display name of a live dataset of a class that pipetune does not know."""
    name = type(dataset).__name__
    return _SAID.get(name, name)


def kind_of(dataset: Any) -> Kind:
    """Returns the kind of a live dataset; `OPAQUE` for a class that pipetune does not know."""
    return KINDS.get(type(dataset).__name__, OPAQUE)


def read_arguments(dataset: Any, kind: Kind) -> dict[str, Value]:
    """Returns the public arguments of a live dataset's operator as JSON values."""
    found: dict[str, Value] = dict(_DEFAULTS.get(kind.op, {}))
    for name, attribute in kind.arguments.items():
        if hasattr(dataset, attribute):
            found[name] = as_value(getattr(dataset, attribute))
    if "deterministic" in found and isinstance(found["deterministic"], str):
        found["deterministic"] = {"true": True, "false": False}.get(found["deterministic"])
    if kind.op in READERS:
        found.setdefault("num_parallel_reads", _parallel_reads(dataset))
        found["files"] = _known(dataset._filenames)
    if kind.op == "shuffle":
        seeds = (as_value(dataset._seed), as_value(dataset._seed2))
        found["seed"] = None if seeds == (0, 0) else f"{seeds[0]},{seeds[1]}"
    return found


def _known(names: Any) -> Value:
    """Returns the number of names in a dataset of file names; None if TensorFlow does not know it."""
    count = int(names.cardinality()) if tf.executing_eagerly() else -1
    return count if count >= 0 else None


def _parallel_reads(reader: Any) -> Value:
    """Returns `num_parallel_reads` of a reader that does not keep it, from the dataset that it wraps."""
    made = reader._impl
    calls = getattr(made, "_num_parallel_calls", None)  # of the interleave that a reader with AUTOTUNE wraps
    return as_value(calls if calls is not None else getattr(made, "_cycle_length", None))


def as_value(value: Any) -> Value:
    """Converts a tensor, NumPy scalar or plain value to a JSON value; None for what JSON cannot express.

    Of a tensor with axes, the first 64 values are returned in a flat tuple.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    except (AttributeError, NotImplementedError, ValueError):
        return None
    if array.ndim == 0:
        return as_value(array.item())
    return tuple(as_value(item) for item in array.reshape(-1)[:64].tolist())
