"""Parameters of the public tf.data calls, so that an argument given by position is recognized."""

from __future__ import annotations

from collections.abc import Mapping

METHODS: Mapping[str, tuple[str, ...]] = {
    "apply": ("transformation_func",),
    "batch": ("batch_size", "drop_remainder", "num_parallel_calls", "deterministic"),
    "bucket_by_sequence_length": (
        "element_length_func",
        "bucket_boundaries",
        "bucket_batch_sizes",
        "padded_shapes",
        "padding_values",
        "pad_to_bucket_boundary",
        "no_padding",
        "drop_remainder",
    ),
    "cache": ("filename",),
    "concatenate": ("dataset",),
    "enumerate": ("start",),
    "filter": ("predicate",),
    "flat_map": ("map_func",),
    "group_by_window": ("key_func", "reduce_func", "window_size", "window_size_func"),
    "ignore_errors": ("log_warning",),
    "interleave": ("map_func", "cycle_length", "block_length", "num_parallel_calls", "deterministic"),
    "map": ("map_func", "num_parallel_calls", "deterministic", "synchronous", "use_unbounded_threadpool"),
    "padded_batch": ("batch_size", "padded_shapes", "padding_values", "drop_remainder"),
    "prefetch": ("buffer_size",),
    "ragged_batch": ("batch_size", "drop_remainder", "row_splits_dtype"),
    "rebatch": ("batch_size", "drop_remainder"),
    "rejection_resample": ("class_func", "target_dist", "initial_dist", "seed"),
    "repeat": ("count",),
    "scan": ("initial_state", "scan_func"),
    "shard": ("num_shards", "index"),
    "shuffle": ("buffer_size", "seed", "reshuffle_each_iteration"),
    "skip": ("count",),
    "snapshot": ("path", "compression", "reader_func", "shard_func"),
    "sparse_batch": ("batch_size", "row_shape"),
    "take": ("count",),
    "take_while": ("predicate",),
    "unbatch": (),
    "unique": (),
    "window": ("size", "shift", "stride", "drop_remainder"),
    "with_options": ("options",),
}
"""Methods of a dataset (TensorFlow 2.21, `Dataset` in dataset_ops.py); each also takes `name` last."""

CONSTRUCTORS: Mapping[str, tuple[str, ...]] = {
    "CsvDataset": (
        "filenames",
        "record_defaults",
        "compression_type",
        "buffer_size",
        "header",
        "field_delim",
        "use_quote_delim",
        "na_value",
        "select_cols",
        "exclude_cols",
    ),
    "FixedLengthRecordDataset": (
        "filenames",
        "record_bytes",
        "header_bytes",
        "footer_bytes",
        "buffer_size",
        "compression_type",
        "num_parallel_reads",
    ),
    "TFRecordDataset": ("filenames", "compression_type", "buffer_size", "num_parallel_reads"),
    "TextLineDataset": ("filenames", "compression_type", "buffer_size", "num_parallel_reads"),
    "choose_from_datasets": ("datasets", "choice_dataset", "stop_on_empty_dataset"),
    "from_generator": ("generator", "output_types", "output_shapes", "args", "output_signature"),
    "from_tensor_slices": ("tensors",),
    "from_tensors": ("tensors",),
    "list_files": ("file_pattern", "shuffle", "seed"),
    "load": ("path", "element_spec", "compression", "reader_func", "wait"),
    "make_csv_dataset": ("file_pattern", "batch_size", "column_names", "column_defaults", "label_name"),
    "random": ("seed", "rerandomize_each_iteration"),
    "range": (),
    "sample_from_datasets": (
        "datasets",
        "weights",
        "seed",
        "stop_on_empty_dataset",
        "rerandomize_each_iteration",
    ),
    "zip": (),
}
"""Calls that make a dataset and are not methods of one."""

RETURNS_ONE_DATASET = frozenset(
    {
        *METHODS,
        *CONSTRUCTORS,
        "audio_dataset_from_directory",
        "image_dataset_from_directory",
        "text_dataset_from_directory",
        "timeseries_dataset_from_array",
    }
)
"""Calls that return one dataset (two with `subset="both"`, see `placement.py`)."""

TAKES_FUNCTION = frozenset(
    {
        "apply",
        "bucket_by_sequence_length",
        "filter",
        "flat_map",
        "group_by_window",
        "interleave",
        "map",
        "rejection_resample",
        "scan",
        "take_while",
    }
)

_AUTOTUNED = frozenset({"num_parallel_calls", "num_parallel_reads", "cycle_length"})


def parameters(op: str) -> tuple[str, ...] | None:
    """Returns the parameter names of a call in positional order; None if the call is not known."""
    return METHODS.get(op, CONSTRUCTORS.get(op))


def autotuned(op: str, name: str) -> bool:
    """Whether -1 means AUTOTUNE for this argument (and not "forever" or "no limit")."""
    return name in _AUTOTUNED or (op == "prefetch" and name == "buffer_size")
