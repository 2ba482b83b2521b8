"""Whether a function traced on batches treats each row by itself: an argument from the structure of its graph.

Every tensor of the graph is either made of constants alone, or has the rows of the batch along its first axis. An op
is allowed where it provably keeps that: element-wise ops whose operands line up behind the first axis, and ops whose
axes are known and leave the first one alone. Anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

_UNARY = frozenset(
    {"Abs", "AsString", "Cast", "Ceil", "DecodeBase64", "DecodeRaw", "EncodeBase64", "Floor", "Identity", "Invert",
     "IsFinite", "IsInf", "IsNan", "LogicalNot", "Neg", "OnesLike", "Relu", "Relu6", "Rint", "Round", "Sign", "Square",
     "StaticRegexReplace", "StopGradient", "StringLength", "StringLower", "StringStrip", "StringToHashBucketFast",
     "StringToNumber", "StringUpper", "ZerosLike"}
)  # fmt: skip
_UNARY_INEXACT = frozenset(
    {"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Digamma", "Elu", "Erf", "Erfc", "Exp", "Expm1",
     "Lgamma", "Log", "Log1p", "Reciprocal", "Rsqrt", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
     "Tan", "Tanh"}
)  # fmt: skip
_BROADCASTING = frozenset(
    {"Add", "AddV2", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "DivNoNan", "Equal", "FloorDiv", "FloorMod",
     "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "NotEqual",
     "RealDiv", "SelectV2", "Sub", "SquaredDifference", "TruncateDiv", "TruncateMod"}
)  # fmt: skip
_BROADCASTING_INEXACT = frozenset({"Atan2", "Pow", "Xdivy", "Xlogy"})
_REDUCTIONS = frozenset({"All", "Any", "Max", "Min"})
_REDUCTIONS_INEXACT = frozenset({"Mean", "Prod", "Sum"})  # of floats: in an order that depends on the layout
_RESIZES = frozenset({"ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor"})


_EACH_NUMBER = _UNARY | _UNARY_INEXACT | _BROADCASTING | _BROADCASTING_INEXACT


def keeps_meaning_on_batches(op: Any) -> bool:
    """Whether an op, with the very inputs it has besides the element, says of every row of a batch what it says of an
    element: it treats every number by itself, or counts its axis from the end.
    """
    return op.type in _EACH_NUMBER or (op.type == "OneHot" and op.get_attr("axis") == -1)

class MixesRows(Exception):
    """An op that is not known to treat the rows one by one; the text is the end of a sentence."""


def inexact_ops(graph: Any, arguments: int) -> tuple[str, ...]:
    """The ops of the graph whose last bits depend on how many rows there are, where each row stays by itself.

    Args:
        graph: of a function traced on batches.
        arguments: how many of its inputs are components of the batch; the others are captured, one for all rows.

    Raises:
        MixesRows: it is not known that every output has the rows along its first axis, each by itself.
    """
    batched = {id(tensor) for tensor in graph.inputs[:arguments]}
    whole: set[int] = set()  # parts of sparse and ragged tensors of the batch: nothing may be done with them
    inexact: set[str] = set()
    for op in graph.get_operations():
        rows = [id(tensor) in batched for tensor in op.inputs]
        parts = [id(tensor) in whole for tensor in op.inputs]
        if op.type in ("Placeholder", "NoOp") or not any(rows + parts):
            continue
        if op.type in _HAND_ON_PARTS and all(parts):
            whole |= {id(tensor) for tensor in op.outputs}
            continue
        check = _check_of(op.type)
        if check is None or any(parts):
            raise MixesRows(f"its op {op.type} is not known to treat the rows of a batch one by one")
        if any(tensor.shape.rank is None for tensor in (*op.inputs, *op.outputs)):
            raise MixesRows(f"the shape of what its op {op.type} handles is not known")
        if not check(op, rows):
            raise MixesRows(f"its op {op.type} would mix the rows of a batch")
        dense = _dense_outputs(op)
        batched |= {id(tensor) for tensor in dense}
        whole |= {id(tensor) for tensor in op.outputs if all(tensor is not other for other in dense)}
        if op.type in _INEXACT and _gives_floats(op):
            inexact.add(op.type)
    if not all(id(tensor) in batched | whole for tensor in graph.outputs):
        raise MixesRows("what it gives does not depend on its element, and would come once per batch")
    return tuple(sorted(inexact))


_HAND_ON_PARTS = frozenset({"Identity", "SerializeSparse", "RaggedTensorToVariant"})


def _dense_outputs(op: Any) -> list[Any]:
    """The outputs that have the rows along their first axis."""
    if op.type != "ParseExampleV2":
        return list(op.outputs)
    start = 3 * op.get_attr("num_sparse")
    return list(op.outputs)[start : start + len(op.get_attr("Tdense"))]


def not_known_exact(ops: Iterable[Any]) -> tuple[str, ...]:
    """The kinds among these ops that are not known to give the same bits for any number of rows.

    Those that give floats, and calls of traced functions, whose ops nobody looked at.
    """
    return tuple(sorted({op.type for op in ops if op.type not in _EXACT and (op.type in _CALLS or _gives_floats(op))}))


_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def _gives_floats(op: Any) -> bool:
    return any(tensor.dtype.is_floating or tensor.dtype.is_complex for tensor in op.outputs)


_INEXACT = _UNARY_INEXACT | _BROADCASTING_INEXACT | _REDUCTIONS_INEXACT


def _check_of(kind: str) -> Callable[[Any, list[bool]], bool] | None:
    if kind in _UNARY or kind in _UNARY_INEXACT:
        return _any
    if kind in _BROADCASTING or kind in _BROADCASTING_INEXACT:
        return _lines_up
    if kind in _REDUCTIONS or kind in _REDUCTIONS_INEXACT:
        return _reduces_inside
    return _first_alone if kind in _RESIZES else _BY_AXIS.get(kind)


def _any(_op: Any, _rows: list[bool]) -> bool:
    return True


def _lines_up(op: Any, rows: list[bool]) -> bool:
    """Operands with rows have the rank of the output, the others less: nothing but rows meets the first axis."""
    rank = op.outputs[0].shape.rank
    return all(
        tensor.shape.rank == rank if with_rows else tensor.shape.rank < rank
        for tensor, with_rows in zip(op.inputs, rows, strict=True)
    )


def _axes_inside(op: Any, rows: list[bool]) -> bool:
    axes = _constant(op, 1)
    return rows[0] and axes is not None and _all_inside(axes, op.inputs[0].shape.rank)


def _reduces_inside(op: Any, rows: list[bool]) -> bool:
    return _axes_inside(op, rows) and _constant(op, 1).size > 0


def _expands(op: Any, rows: list[bool]) -> bool:
    axis = _constant(op, 1)
    return rows[0] and axis is not None and _all_inside(axis, op.outputs[0].shape.rank)


def _squeezes(op: Any, _rows: list[bool]) -> bool:
    axes = op.get_attr("squeeze_dims")
    return bool(axes) and _all_inside(axes, op.inputs[0].shape.rank)


def _slices(op: Any, rows: list[bool]) -> bool:
    """The first axis is taken whole: by an ellipsis, or by `:`."""
    if rows != [True, False, False, False]:
        return False
    begin, ellipsis, new = _constant(op, 1), op.get_attr("ellipsis_mask"), op.get_attr("new_axis_mask")
    if ellipsis & 1 and begin is not None:
        named = sum(1 for place in range(begin.size) if not (ellipsis | new) >> place & 1)
        return named < int(op.inputs[0].shape.rank)  # else the ellipsis stands for no axis at all
    masks = [bool(op.get_attr(name) & 1) for name in ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")]
    strides = _constant(op, 3)
    return masks == [True, True, False, False] and strides is not None and strides.size > 0 and int(strides[0]) == 1


def _joins(op: Any, rows: list[bool]) -> bool:
    axis = _constant(op, len(op.inputs) - 1)
    return all(rows[:-1]) and axis is not None and _all_inside(axis, op.outputs[0].shape.rank)


def _stacks(op: Any, rows: list[bool]) -> bool:
    return all(rows) and _all_inside([op.get_attr("axis")], op.outputs[0].shape.rank)


def _unstacks(op: Any, _rows: list[bool]) -> bool:
    return _all_inside([op.get_attr("axis")], op.inputs[0].shape.rank)


def _transposes(op: Any, rows: list[bool]) -> bool:
    order = _constant(op, 1)
    return rows[0] and order is not None and order.size > 0 and int(order[0]) == 0


def _pads(op: Any, rows: list[bool]) -> bool:
    paddings = _constant(op, 1)
    return rows[0] and not any(rows[1:]) and paddings is not None and not paddings[0].any()


def _one_hot(op: Any, rows: list[bool]) -> bool:
    axis = op.get_attr("axis")
    return rows[0] and not any(rows[1:]) and (axis == -1 or axis > 0)


def _gathers(op: Any, rows: list[bool]) -> bool:
    """Rows of indices into a table that is the same for all."""
    axis = _constant(op, 2)
    return rows == [False, True, False] and axis is not None and int(axis) == 0 and op.get_attr("batch_dims") == 0


def _first_alone(_op: Any, rows: list[bool]) -> bool:
    """Rows of the first input; everything else is the same for all."""
    return rows[0] and not any(rows[1:])


def _parses(op: Any, rows: list[bool]) -> bool:
    return _first_alone(op, rows) and op.inputs[0].shape.rank == 1


def _looks_up(_op: Any, rows: list[bool]) -> bool:
    return rows == [False, True, False]


_BY_AXIS: Mapping[str, Callable[[Any, list[bool]], bool]] = {
    "ArgMax": _axes_inside,
    "ArgMin": _axes_inside,
    "ConcatV2": _joins,
    "DecodeCSV": _first_alone,
    "DecodePaddedRaw": _first_alone,
    "ExpandDims": _expands,
    "GatherV2": _gathers,
    "LookupTableFindV2": _looks_up,
    "OneHot": _one_hot,
    "Pack": _stacks,
    "Pad": _pads,
    "PadV2": _pads,
    "ParseExampleV2": _parses,
    "RegexReplace": _first_alone,
    "ReverseV2": _axes_inside,
    "Squeeze": _squeezes,
    "StridedSlice": _slices,
    "StringJoin": _lines_up,
    "Substr": _lines_up,
    "Transpose": _transposes,
    "Unpack": _unstacks,
}


_MOVES = frozenset({"BroadcastTo", "Reshape", "Slice", "Split", "SplitV", "Tile"})
_EXACT = _UNARY | _BROADCASTING | _REDUCTIONS | _RESIZES | _BY_AXIS.keys() | _MOVES


TAKES_AXES = (_REDUCTIONS | _REDUCTIONS_INEXACT) | {
    "ArgMax", "ArgMin", "ConcatV2", "ExpandDims", "GatherV2", "Pad", "PadV2", "ReverseV2", "StridedSlice", "Transpose"
}  # fmt: skip
"""Ops whose inputs behind the first (the last, for ConcatV2) may be axes; what they do with them is checked above."""


def _constant(op: Any, position: int) -> Any:
    return tf.get_static_value(op.inputs[position])


def _all_inside(axes: Any, rank: int) -> bool:
    """Whether no axis is the first one; negative ones count from the end."""
    values = [int(axis) for axis in (axes.reshape(-1) if hasattr(axes, "reshape") else axes)]
    return all((axis + rank if axis < 0 else axis) > 0 for axis in values)
