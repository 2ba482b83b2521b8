"""Detects windows of a time series gathered by index, one at a time, as by `timeseries_dataset_from_array`.

The Keras utility zips a range of indices with the rows that windows start at; one map turns both into the indices of
the rows of a window, and another one gathers these. `made_of` builds that pipeline again from its arrays: a dataset is
taken for such a pipeline only if it has the same operators and its functions compute the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.pipelines import functions, live, operators
from pipetune.tf.pipelines.lifting import computes
from pipetune.tf.pipelines.terms import Unclear

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


@dataclass(frozen=True)
class Series:
    """A time series in memory, and its windows in their order; `rows`, `starts` and `beside` are tensors."""

    rows: Any  # [rows, ...], any dtype
    starts: Any  # [windows], an integer dtype: the index of the first row of each window
    size: int  # rows per window
    stride: int  # distance between consecutive rows of a window
    beside: Any = None  # the targets [rows, ...]: each window comes with the one at its start; None: no targets


def read(dataset: Any) -> Series | None:
    """Returns the series whose windows `dataset` emits one at a time, perhaps after a prefetch; None for any other."""
    while operators.kind_of(dataset).op == "prefetch":
        (dataset,) = live.upstream(dataset)
    found = _found(dataset)
    return found if found is not None and _is(dataset, made_of(found)) else None


def made_of(series: Series) -> Any:
    """Builds the dataset that emits the windows of a series one at a time, as Keras does."""
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
    if series.beside is None:
        return windows
    return tf.data.Dataset.zip((windows, numbered(lambda number, first: first[number], series.beside)))


def windows_at(series: Series) -> Callable[[Any], Any]:
    """Returns the function from window indices, integers [batch], to these windows, and to their targets if any.

    Windows have the shape [batch, size, ...], with a static size of None.
    """
    rows, starts, beside = series.rows, series.starts, series.beside
    reach = series.size * series.stride

    def windows_of(index: Any) -> Any:
        first = tf.gather(starts, index)
        taken = tf.gather(rows, first[:, tf.newaxis] + tf.range(0, reach, series.stride, dtype=first.dtype))
        windows = tf.compat.v1.placeholder_with_default(taken, [*index.shape, None, *rows.shape[1:]])
        return windows if beside is None else (windows, tf.gather(beside, first))

    return windows_of


def part_of(series: Series, numbers: list[int]) -> Series:
    """Returns only the windows at these indices; of the arrays, only the rows that they span are kept."""
    first = series.starts.numpy()[numbers].astype(np.int64)
    reach = (series.size - 1) * series.stride
    kept = np.unique(first[:, np.newaxis] + np.arange(reach + 1))
    kept = kept[kept < series.rows.shape[0]]
    part = replace(
        series,
        rows=tf.gather(series.rows, kept),
        starts=tf.constant(np.searchsorted(kept, first), series.starts.dtype),
    )
    if series.beside is None:
        return part
    return replace(part, beside=tf.gather(series.beside, kept[kept < series.beside.shape[0]]))


def _found(dataset: Any) -> Series | None:
    """Returns the series whose windows the dataset might emit, for `read` to verify; None if its operators differ."""
    kind, above = operators.kind_of(dataset).op, live.upstream(dataset)
    if kind == "zip" and len(above) == 2:
        windows, beside = _found(above[0]), _taken(above[1])
        if windows is None or windows.beside is not None or beside is None:
            return None
        return replace(windows, beside=beside[0])
    taken = _taken(dataset)
    if taken is None:
        return None
    array, places = taken
    starts, sizes = _repeated(live.upstream(live.upstream(places)[0])[1]), _size_and_stride(places._map_func.function)
    plain = starts is not None and starts.shape.rank == 1 and array.shape.rank is not None and array.shape.rank > 0
    return Series(array, starts, *sizes) if plain and sizes is not None else None


def _taken(dataset: Any) -> tuple[Any, Any] | None:
    """Returns the array from which a map gathers rows, and the map over indices and starts that computes which."""
    pair = _zipped(dataset)
    if pair is None or _zipped(pair[1]) is None:
        return None
    array = _repeated(pair[0])
    return None if array is None else (array, pair[1])


def _zipped(dataset: Any) -> tuple[Any, Any] | None:
    """Returns the two datasets that are zipped directly upstream of a map; None for any other dataset."""
    above = live.upstream(dataset) if operators.kind_of(dataset).op == "map" else ()
    both = live.upstream(above[0]) if above and operators.kind_of(above[0]).op == "zip" else ()
    return (both[0], both[1]) if len(both) == 2 else None


def _repeated(dataset: Any) -> Any:
    """Returns the one tensor that a dataset emits repeatedly; None for any other dataset."""
    above = live.upstream(dataset) if operators.kind_of(dataset).op == "repeat" else ()
    if not above or operators.kind_of(above[0]).op != "from_tensors":
        return None
    tensors = private.source_tensors(above[0])
    return tensors[0] if isinstance(above[0].element_spec, tf.TensorSpec) and len(tensors) == 1 else None


def _size_and_stride(function: Any) -> tuple[int, int] | None:
    """Returns size and stride of a function that returns `range(first, first + size * stride, stride)`; else None."""
    (given,) = function.graph.outputs if len(function.graph.outputs) == 1 else (None,)
    made = functions.before_identity(given).op if given is not None else None
    if made is None or made.type != "Range" or made.inputs[1].op.type != "AddV2":
        return None
    product = made.inputs[1].op.inputs[1].op
    if product.type != "Mul":
        return None
    numbers = [tf.get_static_value(tensor) for tensor in (product.inputs[0], made.inputs[2])]
    size, stride = (None if number is None else int(number) for number in numbers)
    return (size, stride) if size is not None and stride is not None and size > 0 and stride > 0 else None


def _is(one: Any, other: Any) -> bool:
    """Whether two datasets have the same operators, and functions that compute the same.

    The number of parallel calls of a function makes no difference.
    """
    kind, above = operators.kind_of(one), (live.upstream(one), live.upstream(other))
    if kind.op != operators.kind_of(other).op or one.element_spec != other.element_spec:
        return False
    if kind.op == "map":
        same = _computes_the_same(one._map_func.function, other._map_func.function)
    elif kind.op == "from_tensors":
        same = all(map(operator.is_, private.source_tensors(one), private.source_tensors(other)))
    else:
        same = operators.read_arguments(one, kind) == operators.read_arguments(other, kind)
    return same and len(above[0]) == len(above[1]) and all(map(_is, *above))


def _computes_the_same(one: Any, other: Any) -> bool:
    try:
        return computes(one) == computes(other)
    except Unclear:
        return False
