"""Gathers rows of in-memory arrays, and windows over them, by index and a batch at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import RowWindows
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import functions, live
from pipetune.pipelines.lifting import output_terms
from pipetune.pipelines.terms import CannotProve


@dataclass(frozen=True)
class Series:
    """A time series in memory, and its windows in their order; `rows`, `starts` and `beside` are tensors."""

    rows: Any  # [rows, ...], any dtype
    starts: Any  # [windows], an integer dtype: the index of the first row of each window
    size: int  # rows per window
    stride: int  # distance between consecutive rows of a window
    targets: Any = None  # the targets [rows, ...]: each window comes with the one at its start; None: no targets


def read(dataset: Any) -> Series | None:
    """Returns the series whose windows `dataset` emits one at a time, perhaps after a prefetch; None for any other."""
    while live.kind_of(dataset).op == "prefetch":
        (dataset,) = live.upstream_datasets(dataset)
    found = _candidate(dataset)
    return found if found is not None and _is_same_pipeline(dataset, build_dataset(found)) else None


def build_dataset(series: Series) -> Any:
    """Returns a dataset of the windows [size, ...] of a series, each with its target if any, built as Keras does."""
    size, stride = (tf.constant(number, series.starts.dtype) for number in (series.size, series.stride))
    numbers = tf.data.Dataset.range(int(series.starts.shape[0]))
    starts = tf.data.Dataset.from_tensors(series.starts).repeat()

    def numbered(function: Callable[..., Any], array: Any) -> Any:
        each = tf.data.Dataset.zip((numbers, starts)).map(function, num_parallel_calls=tf.data.AUTOTUNE)
        whole = tf.data.Dataset.from_tensors(array).repeat()
        taken = tf.data.Dataset.zip((whole, each))
        return taken.map(lambda rows, places: tf.gather(rows, places), num_parallel_calls=tf.data.AUTOTUNE)

    def places(number: Any, first: Any) -> Any:
        return tf.range(first[number], first[number] + size * stride, stride)

    windows = numbered(places, series.rows)
    if series.targets is None:
        return windows
    return tf.data.Dataset.zip((windows, numbered(lambda number, first: first[number], series.targets)))


def window_gatherer(series: Series) -> Callable[[Any], Any]:
    """Returns the function from window indices, integers [batch], to these windows, and to their targets if any.

    Windows have the shape [batch, size, ...], with a static size of None.
    """
    rows, starts, targets = series.rows, series.starts, series.targets
    reach = series.size * series.stride

    def windows_of(index: Any) -> Any:
        first = tf.gather(starts, index)
        windows = _windows(rows, first[:, tf.newaxis] + tf.range(0, reach, series.stride, dtype=first.dtype))
        return windows if targets is None else (windows, tf.gather(targets, first))

    return windows_of


def _windows(array: Any, rows: Any) -> Any:
    """Returns the windows [batch, size, ...] of an array at row indices [batch, size], with a static size of None."""
    return tf.compat.v1.placeholder_with_default(tf.gather(array, rows), [rows.shape[0], None, *array.shape[1:]])


def windows_subset(series: Series, indices: list[int]) -> Series:
    """Returns only the windows at these indices; of the arrays, only the rows that they span are kept."""
    first = series.starts.numpy()[indices].astype(np.int64)
    reach = (series.size - 1) * series.stride
    kept = np.unique(first[:, np.newaxis] + np.arange(reach + 1))
    kept = kept[kept < series.rows.shape[0]]
    starts = tf.constant(np.searchsorted(kept, first), series.starts.dtype)
    part = replace(series, rows=tf.gather(series.rows, kept), starts=starts)
    if series.targets is None:
        return part
    return replace(part, targets=tf.gather(series.targets, kept[kept < series.targets.shape[0]]))


def _candidate(dataset: Any) -> Series | None:
    """Returns the series whose windows the dataset might emit, for `read` to verify; None if its operators differ."""
    kind, above = live.kind_of(dataset).op, live.upstream_datasets(dataset)
    if kind == "zip" and len(above) == 2:
        windows, targets = _candidate(above[0]), _gather_parts(above[1])
        if windows is None or windows.targets is not None or targets is None:
            return None
        return replace(windows, targets=targets[0])
    taken = _gather_parts(dataset)
    if taken is None:
        return None
    array, places, repeated = taken
    starts, sizes = _repeated_tensor(repeated), _size_and_stride(places._map_func.function)
    plain = starts is not None and starts.shape.rank == 1 and array.shape.rank is not None and array.shape.rank > 0
    return Series(array, starts, *sizes) if plain and sizes is not None else None


def _gather_parts(dataset: Any) -> tuple[Any, Any, Any] | None:
    """Returns the array from which a map gathers rows, the map that computes which, and the starts that it reads."""
    pair = _zipped_inputs(dataset)
    numbered = _zipped_inputs(pair[1]) if pair is not None else None
    if pair is None or numbered is None:
        return None
    array = _repeated_tensor(pair[0])
    return None if array is None else (array, pair[1], numbered[1])


def _zipped_inputs(dataset: Any) -> tuple[Any, Any] | None:
    """Returns the two datasets that are zipped directly upstream of a map; None for any other dataset."""
    above = live.upstream_datasets(dataset) if live.kind_of(dataset).op == "map" else ()
    both = live.upstream_datasets(above[0]) if above and live.kind_of(above[0]).op == "zip" else ()
    return (both[0], both[1]) if len(both) == 2 else None


def _repeated_tensor(dataset: Any) -> Any:
    """Returns the one tensor that a dataset emits repeatedly; None for any other dataset."""
    above = live.upstream_datasets(dataset) if live.kind_of(dataset).op == "repeat" else ()
    if not above or live.kind_of(above[0]).op != "from_tensors":
        return None
    tensors = tensorflow_private.source_tensors(above[0])
    return tensors[0] if isinstance(above[0].element_spec, tf.TensorSpec) and len(tensors) == 1 else None


def _size_and_stride(function: Any) -> tuple[int, int] | None:
    """Returns size and stride of a function that returns `range(first, first + size * stride, stride)`; else None."""
    (given,) = function.graph.outputs if len(function.graph.outputs) == 1 else (None,)
    made = functions.without_identity(given).op if given is not None else None
    if made is None or made.type != "Range" or made.inputs[1].op.type != "AddV2":
        return None
    product = made.inputs[1].op.inputs[1].op
    if product.type != "Mul":
        return None
    numbers = [tf.get_static_value(tensor) for tensor in (product.inputs[0], made.inputs[2])]
    size, stride = (None if number is None else int(number) for number in numbers)
    return (size, stride) if size is not None and stride is not None and size > 0 and stride > 0 else None


def _is_same_pipeline(one: Any, other: Any) -> bool:
    """Whether two datasets have the same operators, and functions that compute the same.

    The number of parallel calls of a function makes no difference.
    """
    kind, above = live.kind_of(one), (live.upstream_datasets(one), live.upstream_datasets(other))
    if kind.op != live.kind_of(other).op or one.element_spec != other.element_spec:
        return False
    if kind.op == "map":
        same = _computes_the_same(one._map_func.function, other._map_func.function)
    elif kind.op == "from_tensors":
        same = all(map(operator.is_, tensorflow_private.source_tensors(one), tensorflow_private.source_tensors(other)))
    else:
        same = live.read_arguments(one, kind) == live.read_arguments(other, kind)
    return same and len(above[0]) == len(above[1]) and all(map(_is_same_pipeline, *above))


def _computes_the_same(one: Any, other: Any) -> bool:
    try:
        return output_terms(one) == output_terms(other)
    except CannotProve:
        return False


_ALLOWED = frozenset({"Placeholder", "Const", "Identity", "NoOp", "BatchDatasetV2", "ZipDataset"})


def flat_map_windows(source: live.LivePipeline, pipeline: Pipeline, node: Node) -> RowWindows | None:
    """Returns the windows that a flat_map emits, over rows of arrays and all of one length; None for anything else."""
    if node.op != "flat_map" or len(node.inputs) != 1:
        return None
    window = pipeline[node.inputs[0]]
    if window.op != "window" or pipeline[window.inputs[0]].op != "from_tensor_slices":
        return None
    size, shift, stride = (window.argument(name) for name in ("size", "shift", "stride"))
    rows, windows = source.datasets[window.inputs[0]], source.datasets[node.id]
    batching = _batching(windows._map_func.function, len(tf.nest.flatten(rows.element_spec)))
    if not (isinstance(size, int) and isinstance(shift, int) and isinstance(stride, int)) or batching is None:
        return None
    batch_size, drops = batching
    if batch_size != size or not (window.argument("drop_remainder") or drops):
        return None
    lengths = {part.shape[:1].as_list()[0] for part in tf.nest.flatten(windows.element_spec)}
    one, other = (tf.nest.map_structure(lambda _: 0, dataset.element_spec) for dataset in (windows, rows))
    return RowWindows(size, shift, stride, lengths == {size}) if one == other and len(lengths) == 1 else None


def receives_windows(source: live.LivePipeline, node: Node) -> bool:
    """Whether the input of an operator is windows, all of one length, passed through unchanged."""
    above = source.pipeline[node.inputs[0]]
    while operator_facts(above.op).same_elements and len(above.inputs) == 1:
        above = source.pipeline[above.inputs[0]]
    if flat_map_windows(source, source.pipeline, above) is not None:
        return True
    return above.op in ("map", "zip") and read(source.datasets[above.id]) is not None


def _batching(function: Any, components: int) -> tuple[int, bool] | None:
    """Returns size and `drop_remainder` of the batch that a flat_map makes of each window; None for anything else."""
    graph = function.graph
    operations = graph.get_operations()
    if function.captured_inputs or any(op.type not in _ALLOWED for op in operations):
        return None
    batches = [op for op in operations if op.type == "BatchDatasetV2"]
    zips = [op for op in operations if op.type == "ZipDataset"]
    if len(batches) != components or len(graph.inputs) != components or len(zips) != (components > 1):
        return None
    made = [_origin(tensor) for tensor in (zips[0].inputs if zips else graph.outputs)]
    if [op.type for op in made] != ["BatchDatasetV2"] * components:
        return None
    if [_origin(op.inputs[0]) for op in made] != [tensor.op for tensor in graph.inputs]:
        return None
    if zips and [_origin(tensor) for tensor in graph.outputs] != zips:
        return None
    found = {tuple(_constant(tensor) for tensor in op.inputs[1:3]) for op in made}
    (one,) = found if len(found) == 1 else ((None, None),)
    return (int(one[0]), bool(one[1])) if None not in one else None


def _origin(tensor: Any) -> Any:
    return functions.without_identity(tensor).op


def _constant(tensor: Any) -> Any:
    value = tf.get_static_value(tensor)
    return None if value is None else value.item()


def gather_from(dataset: Any, windows: RowWindows | None = None) -> Callable[[Any], Any]:
    """Returns the function from element indices, int64 [batch], to the batch of those elements.

    The arrays are captured tensors: created inside the function, they would be constants of its graph.

    Args:
        dataset: a `from_tensor_slices`, or one that emits the windows of a series.
        windows: if given, an index is the row that a window starts at, and components have shape [batch, size, ...].
    """
    if live.kind_of(dataset).op != "from_tensor_slices":
        found = read(dataset)
        assert found is not None, dataset
        return window_gatherer(found)
    arrays = source_arrays(dataset)
    if windows is None:
        return lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), arrays)

    def windows_at(starts: Any) -> Any:
        rows = starts[:, tf.newaxis] + tf.range(0, windows.size * windows.stride, windows.stride, dtype=tf.int64)
        take = tf.gather if windows.length_known else _windows
        return tf.nest.map_structure(lambda array: take(array, rows), arrays)

    return windows_at


def rows_at(dataset: Any, indices: Sequence[int]) -> Any:
    """Returns a dataset of the elements at the indices `indices` alone; its arrays are no larger than they need.

    The elements are taken from the arrays in the same way as by `gather_from`.
    """
    if live.kind_of(dataset).op != "from_tensor_slices":
        found = read(dataset)
        assert found is not None, dataset
        return build_dataset(windows_subset(found, list(indices)))
    return tf.data.Dataset.from_tensor_slices(gather_from(dataset)(tf.constant(indices, tf.int64)))


def array_bytes(dataset: Any) -> int:
    """Returns the size of the arrays that a dataset was built from, which its serialized graph holds; 0 for others."""
    return sum(
        (tensor.shape.num_elements() or 0) * max(tensor.dtype.size, 8 if tensor.dtype == tf.string else 1)
        for tensor in tensorflow_private.source_tensors(dataset)
    )


def source_arrays(dataset: Any) -> Any:
    """Returns the arrays given to `from_tensor_slices` as tensors [rows, ...], in the structure of an element."""
    return tf.nest.pack_sequence_as(dataset.element_spec, dataset._tensors)
