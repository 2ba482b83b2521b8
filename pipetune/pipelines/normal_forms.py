"""Normal forms: how each op is applied to terms.

Every function here states one fact about TensorFlow's ops: computed constants are folded, axes are counted from the
front, consecutive reshapes are merged, slices of known sizes are starts, counts and steps. `lifting` adds what ops do
with a stack of rows; it takes over wherever an input is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipetune.pipelines.graphs import IDENTITIES, REDUCTIONS
from pipetune.pipelines.terms import ROWS, Call, CannotProve, Shape, Term, constant

UNKNOWN_ROWS = "rows"
"""Placeholder, in a vector of sizes, for the number of rows of a batch."""

AxisIndex = tuple[object, ...]
"""How one axis is indexed: ("new",), ("at", index) or ("cut", start, stop, step); None is an open end."""

_WHOLE: AxisIndex = ("cut", None, None, 1)


def normalize(call: Call) -> Call | list[Term]:
    """Returns the normal form of an op: its result terms if no op is left, else the call to apply.

    Raises:
        CannotProve: it depends on the number of rows, or on arguments or shapes that are not static.
    """
    if call.op in IDENTITIES:
        return list(call.inputs)
    known = _fold_constants(call)
    if known is not None:
        return known
    if any(term.op == "Sizes" for term in call.inputs) and call.op not in _TAKES_SIZES:
        raise CannotProve(f"computes with the number of rows of a batch ({call.op})")
    form = _NORMALIZERS.get(call.op)
    return form(call) if form is not None else call


# -- stacks of rows, reshapes, slices


def stack_rows(row: Term, count: int | None) -> Term:
    """Returns the term of a stack of `count` rows, each of them given by `row`; None: their number is unknown."""
    shape: Shape = None if row.shape is None else (count, *row.shape)
    return Term(ROWS, (row,), (("count", count),), dtype=row.dtype, shape=shape)


def unwrap_rows(term: Term) -> Term:
    """Returns the term without an outer `Rows`: a stack of one row becomes a reshape of that row.

    Raises:
        CannotProve: it is a stack of several rows.
    """
    if term.op != ROWS:
        return term
    if term.attribute("count") != 1:
        raise CannotProve("would mix the rows of a batch")
    row = unwrap_rows(term.inputs[0])
    return Term("Reshape", (row,), (("shape", term.shape),), dtype=term.dtype, shape=term.shape)


def reshape(term: Term, shape: tuple[int, ...]) -> Term:
    """Returns `term` reshaped to a fully known shape; `Reshape`, `ExpandDims`, `Squeeze` and indices reduce to this.

    Raises:
        CannotProve: it would mix rows.
    """
    if term.shape == shape:
        return term
    if term.op == "Reshape":
        return reshape(term.inputs[0], shape)
    if term.op == ROWS:
        row, count = term.inputs[0], term.attribute("count")
        if count == 1:
            return reshape(row, shape)
        if not shape or shape[0] != count or row.shape is None or None in row.shape:
            raise CannotProve("would mix the rows of a batch (Reshape)")
        if math.prod(shape[1:]) != math.prod(size or 0 for size in row.shape):
            raise CannotProve("would mix the rows of a batch (Reshape)")
        return stack_rows(reshape(row, shape[1:]), count)
    if shape and shape[0] == 1:
        return stack_rows(reshape(term, shape[1:]), 1)
    return Term("Reshape", (term,), (("shape", shape),), dtype=term.dtype, shape=shape)


def index_term(term: Term, entries: Sequence[AxisIndex]) -> Term:
    """Returns `term` indexed by one entry for each of its axes, with entries for new axes in between.

    Raises:
        CannotProve: it would mix rows.
    """
    if entries and entries[0] == ("new",):
        return stack_rows(index_term(term, entries[1:]), 1)
    if term.op == ROWS:
        row, count, first = term.inputs[0], term.attribute("count"), entries[0]
        if _is_full_slice(first, count):
            return stack_rows(index_term(row, entries[1:]), count)
        if count == 1 and first in (("at", 0), ("at", -1)):
            return index_term(row, entries[1:])
        if count != 1:
            raise CannotProve("would mix the rows of a batch (StridedSlice)")
        term = unwrap_rows(term)
    sizes = term.shape
    if sizes is None or None in sizes:
        return _taken_of_unknown_size(term, tuple(entries))
    parts, shape = [], []
    axes = iter(size or 0 for size in sizes)
    for entry in entries:
        if entry == ("new",):
            shape.append(1)
            continue
        size = next(axes)
        if entry[0] == "at":
            place = int(entry[1])  # type: ignore[call-overload]
            parts.append((place + size if place < 0 else place, 1, 1))
            continue
        start, stop, step = slice(*entry[1:]).indices(size)
        count = len(range(start, stop, step))
        parts.append((start, count, step if count > 1 else 1))
        shape.append(count)
    if all(part == (0, size, 1) for part, size in zip(parts, sizes, strict=True)):
        return reshape(term, tuple(shape))
    cut = tuple(count for _, count, _ in parts)
    return reshape(Term("Slice", (term,), (("parts", tuple(parts)),), dtype=term.dtype, shape=cut), tuple(shape))


def _taken_of_unknown_size(term: Term, entries: tuple[AxisIndex, ...]) -> Term:
    named = [_WHOLE if _is_full_slice(entry, None) else entry for entry in entries]
    if all(entry == _WHOLE for entry in named):
        return term
    shape: list[int | None] = []
    axes = iter(term.shape or ())
    for entry in named:
        if entry == ("new",):
            shape.append(1)
            continue
        size = next(axes, None)
        if entry[0] == "cut":
            shape.append(size if entry == _WHOLE else None)
    known: Shape = None if term.shape is None else tuple(shape)
    return Term("StridedSlice", (term,), (("entries", tuple(named)),), dtype=term.dtype, shape=known)


def _is_full_slice(entry: AxisIndex, size: int | None) -> bool:
    return entry[0] == "cut" and entry[1] in (None, 0) and entry[2] in (None, size) and entry[3] == 1


def _index_entries(call: Call) -> list[AxisIndex]:
    """Returns the entries of a `StridedSlice`: one for each axis of its input, and new axes in between."""
    begin, end, strides = (call.constant(place).reshape(-1).tolist() for place in (1, 2, 3))

    def masked(name: str, place: int) -> bool:
        return bool(int(call.attribute(f"{name}_mask") or 0) >> place & 1)

    named = sum(1 for place in range(len(begin)) if not masked("ellipsis", place) and not masked("new_axis", place))
    left = call.inputs[0].rank - named
    entries: list[AxisIndex] = []
    for place in range(len(begin)):
        if masked("ellipsis", place):
            entries += [_WHOLE] * left
            left = 0
        elif masked("new_axis", place):
            entries.append(("new",))
        elif masked("shrink_axis", place):
            entries.append(("at", begin[place]))
        else:
            start = None if masked("begin", place) else begin[place]
            stop = None if masked("end", place) else end[place]
            entries.append(("cut", start, stop, strides[place]))
    return entries + [_WHOLE] * left


def _slice(call: Call) -> list[Term]:
    begin, size = call.constant(1).reshape(-1).tolist(), call.inputs[2].value
    if size is None:
        raise CannotProve("computes an argument of Slice at run time")
    rows = call.inputs[0].op == ROWS and call.inputs[0].attribute("count") is None
    entries: list[AxisIndex] = []
    for axis, (start, count) in enumerate(zip(begin, size.reshape(-1).tolist(), strict=True)):
        whole = count == -1 or (count == UNKNOWN_ROWS and start == axis == 0 and rows)
        if count == UNKNOWN_ROWS and not whole:
            raise CannotProve(f"depends on the number of rows of a batch ({call.op})")
        entries.append(("cut", start, None if whole else start + count, 1))
    return [index_term(call.inputs[0], entries)]


def _reshape(call: Call) -> Call | list[Term]:
    term, new_shape = call.inputs[0], call.inputs[1].value
    if new_shape is None:
        return call
    sizes = new_shape.reshape(-1).tolist()
    if term.op == ROWS and term.attribute("count") != 1:
        return [_reshaped_rows(term, sizes)]
    shape = _target_shape(sizes, term.shape)
    if shape is None:
        if UNKNOWN_ROWS in sizes:
            raise CannotProve(f"depends on the number of rows of a batch ({call.op})")
        return replace(call, inputs=(unwrap_rows(term),), attributes=(("shape", tuple(sizes)),))
    return [reshape(term, shape)]


def _reshaped_rows(term: Term, sizes: list[Any]) -> Term:
    """Reshapes a stack of rows: the first size must be the number of rows, and the others must hold one row."""
    row, count = term.inputs[0], term.attribute("count")
    if not sizes or row.shape is None or None in row.shape:
        raise CannotProve("would mix the rows of a batch (Reshape)")
    whole, first, rest = math.prod(size or 0 for size in row.shape), sizes[0], sizes[1:]
    if first == UNKNOWN_ROWS or (count is not None and first == count):
        shape = _target_shape(rest, row.shape)
    elif first == -1 and -1 not in rest and UNKNOWN_ROWS not in rest and whole > 0:
        shape = tuple(rest)
    else:
        shape = None
    if shape is None or math.prod(shape) != whole:
        raise CannotProve("would mix the rows of a batch (Reshape)")
    return stack_rows(reshape(row, shape), count)


def _target_shape(sizes: Sequence[Any], now: Shape) -> tuple[int, ...] | None:
    """Returns the target shape of a reshape with -1 resolved; None if the sizes do not determine it."""
    if UNKNOWN_ROWS in sizes or now is None or None in now:
        return None
    whole = math.prod(size or 0 for size in now)
    rest = math.prod(size for size in sizes if size != -1)
    if -1 not in sizes:
        return tuple(int(size) for size in sizes)
    if rest == 0:
        return None
    return tuple(int(whole // rest if size == -1 else size) for size in sizes)


def _expand_dims(call: Call) -> list[Term]:
    term = call.inputs[0]
    axis = int(call.constant(1).reshape(-1)[0])
    entries = [_WHOLE] * term.rank
    entries.insert(_nonnegative_axis(axis, term.rank + 1), ("new",))
    return [index_term(term, entries)]


def _squeeze(call: Call) -> list[Term]:
    term = call.inputs[0]
    dimensions = call.attribute("squeeze_dims")
    axes = {_nonnegative_axis(axis, term.rank) for axis in dimensions} if isinstance(dimensions, tuple) else set()
    if not axes:
        if term.shape is None or None in term.shape:
            raise CannotProve("squeezes every axis of size 1, and these are not known (Squeeze)")
        axes = {axis for axis, size in enumerate(term.shape) if size == 1}
    return [index_term(term, [("at", 0) if axis in axes else _WHOLE for axis in range(term.rank)])]


# -- axes as attributes, counted from the front


def _nonnegative_axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def _with(call: Call, inputs: Sequence[Term], *, without: str = "", **attributes: object) -> Call:
    kept = {name: value for name, value in call.attributes if name != without and name not in _INDEX_TYPES}
    return replace(call, inputs=tuple(inputs), attributes=tuple(sorted({**kept, **attributes}.items())))


def _inputs_without(call: Call, position: int) -> list[Term]:
    inputs = list(call.inputs)
    del inputs[position]
    return inputs


_INDEX_TYPES = frozenset({"Tidx", "Tlen", "Taxis", "Tshift", "Tpaddings", "Tmultiples", "Tperm", "Index", "Tdim",
                          "index_type"})  # fmt: skip
"""Attributes for the integer dtype of an argument that the normal form holds as Python integers."""


def _axes_of_input(position: int, of: int = 0) -> Callable[[Call], Call]:
    """Moves the axes in input `position`, which are axes of input `of`, to the attribute `axes`."""

    def form(call: Call) -> Call:
        rank = call.inputs[of].rank
        axes = sorted({_nonnegative_axis(int(axis), rank) for axis in call.constant(position).reshape(-1)})
        return _with(call, _inputs_without(call, position), axes=tuple(axes))

    return form


def _axis_attribute(rank_of: Callable[[Call], int]) -> Callable[[Call], Call]:
    def form(call: Call) -> Call:
        axis = _nonnegative_axis(int(call.attribute("axis") or 0), rank_of(call))
        return _with(call, call.inputs, axes=(axis,), without="axis")

    return form


def _roll(call: Call) -> Call:
    axes = tuple(_nonnegative_axis(int(axis), call.inputs[0].rank) for axis in call.constant(2).reshape(-1))
    shifts = tuple(int(shift) for shift in call.constant(1).reshape(-1))
    return _with(call, call.inputs[:1], axes=axes, shifts=shifts)


def _gather(call: Call) -> Call:
    axis = _nonnegative_axis(int(call.constant(2).reshape(-1)[0]), call.inputs[0].rank)
    batch_dims = _nonnegative_axis(int(call.attribute("batch_dims") or 0), call.inputs[1].rank)
    return _with(call, call.inputs[:2], axes=(axis,), batch_dims=batch_dims)


def _numbers_of_input(name: str) -> Callable[[Call], Call]:
    """Moves the second input, with one or several integers for each axis, to the attribute `name`."""

    def form(call: Call) -> Call:
        values = tuple(tuple(value) if isinstance(value, list) else value for value in call.constant(1).tolist())
        attributes: dict[str, Any] = {name: values}
        return _with(call, _inputs_without(call, 1), **attributes)

    return form


def _sizes_of_input(position: int) -> Callable[[Call], Call]:
    """Moves the shape in input `position`, which may hold `UNKNOWN_ROWS`, to the attribute `sizes`."""

    def form(call: Call) -> Call:
        value = call.inputs[position].value
        if value is None:
            raise CannotProve(f"computes a shape at run time ({call.op})")
        return _with(call, _inputs_without(call, position), sizes=tuple(value.reshape(-1).tolist()))

    return form


def _rank_of_output(call: Call) -> int:
    shape = call.shapes[0]
    if shape is None:
        raise CannotProve(f"has a tensor of unknown rank ({call.op})")
    return len(shape)


_NORMALIZERS: Mapping[str, Callable[[Call], Call | list[Term]]] = {
    **dict.fromkeys(REDUCTIONS | {"ArgMax", "ArgMin", "Cumprod", "Cumsum", "ReverseV2"}, _axes_of_input(1)),
    **dict.fromkeys(("MirrorPad", "Pad", "PadV2"), _numbers_of_input("paddings")),
    **dict.fromkeys(("OneHot", "Pack"), _axis_attribute(_rank_of_output)),
    "BroadcastTo": _sizes_of_input(1),
    "ConcatV2": _axes_of_input(-1),
    "ExpandDims": _expand_dims,
    "Fill": _sizes_of_input(0),
    "GatherV2": _gather,
    "Reshape": _reshape,
    "Roll": _roll,
    "Slice": _slice,
    "Split": _axes_of_input(0, of=1),
    "SplitV": _axes_of_input(2),
    "Squeeze": _squeeze,
    "StridedSlice": lambda call: [index_term(call.inputs[0], _index_entries(call))],
    "Tile": _numbers_of_input("multiples"),
    "Transpose": _numbers_of_input("order"),
    "Unpack": _axis_attribute(lambda call: call.inputs[0].rank),
}

_TAKES_SIZES = frozenset({"BroadcastTo", "Fill", "Reshape", "Slice"})


# -- constant folding


def _fold_constants(call: Call) -> list[Term] | None:
    """Folds an op that computes integers (shapes, sizes, axes) from constants and static shapes alone; else None."""
    if call.op in ("Shape", "Size", "Rank"):
        return _of_shape(call)
    fold = _FOLDS.get(call.op)
    if fold is None or not call.inputs or not all(term.dtype.is_integer for term in call.inputs):
        return None
    if not all(dtype.is_integer for dtype in call.dtypes) or any(term.value is None for term in call.inputs):
        return None
    if any(term.op == "Sizes" for term in call.inputs) and call.op not in _PASSES_SIZES:
        return None
    try:
        values = fold(call, [term.value for term in call.inputs])
        return [_value_term(value, dtype) for value, dtype in zip(values, call.dtypes, strict=True)]
    except (ArithmeticError, ValueError, IndexError):  # left to run time, where it may raise or return something
        return None


def _of_shape(call: Call) -> list[Term] | None:
    term, dtype = call.inputs[0], call.dtypes[0]
    if call.op == "Rank":
        return [constant(np.asarray(term.rank, dtype.as_numpy_dtype), dtype)]
    if term.shape is None or None in term.shape[1:]:
        return None
    sizes: list[Any] = list(term.shape)
    if None in sizes:
        if term.op != ROWS or call.op == "Size":
            return None
        sizes[0] = UNKNOWN_ROWS
    return [_value_term(np.asarray(math.prod(sizes) if call.op == "Size" else sizes, object), dtype)]


def _value_term(value: Any, dtype: Any) -> Term:
    array = np.asarray(value, object)
    if any(entry == UNKNOWN_ROWS for entry in array.reshape(-1)):
        return Term("Sizes", dtype=dtype, shape=array.shape, value=array)
    return constant(array.astype(dtype.as_numpy_dtype), dtype)


def _numpy_index(call: Call) -> tuple[Any, ...]:
    return tuple(
        np.newaxis if entry == ("new",) else entry[1] if entry[0] == "at" else slice(*entry[1:])
        for entry in _index_entries(call)
    )


def _axes(value: Any) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.asarray(value).reshape(-1))


_FOLDS: Mapping[str, Callable[[Call, list[Any]], list[Any]]] = {
    "AddV2": lambda call, values: [values[0] + values[1]],
    "Cast": lambda call, values: [values[0]],
    "ConcatV2": lambda call, values: [np.concatenate(values[:-1], int(values[-1]))],
    "ExpandDims": lambda call, values: [np.expand_dims(values[0], int(np.asarray(values[1]).reshape(-1)[0]))],
    "FloorDiv": lambda call, values: [values[0] // values[1]],
    "GatherV2": lambda call, values: [np.take(values[0], values[1], int(values[2]))],
    "Maximum": lambda call, values: [np.maximum(values[0], values[1])],
    "Minimum": lambda call, values: [np.minimum(values[0], values[1])],
    "Mul": lambda call, values: [values[0] * values[1]],
    "Pack": lambda call, values: [np.stack([np.asarray(one, object) for one in values], call.attribute("axis") or 0)],
    "Prod": lambda call, values: [np.prod(values[0], _axes(values[1]), keepdims=bool(call.attribute("keep_dims")))],
    "Range": lambda call, values: [np.arange(*(int(value) for value in values))],
    "Reshape": lambda call, values: [np.reshape(values[0], _axes(values[1]))],
    "Squeeze": lambda call, values: [np.squeeze(values[0], axis=call.attribute("squeeze_dims") or None)],
    "StridedSlice": lambda call, values: [values[0][_numpy_index(call)]],
    "Sub": lambda call, values: [values[0] - values[1]],
    "Unpack": lambda call, values: list(np.moveaxis(values[0], int(call.attribute("axis") or 0), 0)),
}

_PASSES_SIZES = frozenset({"Cast", "ConcatV2", "ExpandDims", "GatherV2", "Pack", "Reshape", "Squeeze", "StridedSlice",
                          "Unpack"})  # fmt: skip
"""Folded ops that pass sizes through without arithmetic: `UNKNOWN_ROWS` may be among them."""
