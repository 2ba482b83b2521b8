"""Selections between two large arrays by one condition (`tf.where`): found in a graph, and rewritten as `tf.cond`.

`tf.where` computes both arrays and broadcasts them; `tf.cond` computes one and does not broadcast. The rewrite is legal
where both have the same shape for every element. Only ops that cannot raise an error for some elements alone move into
a branch, so that the same elements are rejected, and no random draw moves, so that all of them stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.files import is_library
from pipetune.core.functions import ArraySelection, FunctionFacts
from pipetune.pipelines.graphs import (
    ELEMENTWISE,
    IDENTITIES,
    REDUCTIONS,
    CannotEdit,
    TracedOps,
    edited_function,
    graph_with,
    reachable,
    replacement_node,
)

_LARGE_ARRAY = 16_384
"""Numbers in an array, from which on choosing it by a single condition is told. By judgement: with TensorFlow 2.21, one
thread took 0.2 ms longer for 3,072 numbers than `tf.cond`, 0.8 ms for 150,528, and 14 ms for 921,600."""

_IMAGE_RANK = 3  # of an array whose shape is not fully known: boxes and tokens have fewer dimensions and are smaller

_CALLS = ("SelectV2", "Where")  # what `tf.where` adds to a graph, with three arguments and with one


@dataclass(frozen=True)
class _Side:
    """One side of a selection."""

    tensor: Any
    ops: tuple[Any, ...]  # compute nothing else and move into its branch, in the order of the graph


@dataclass(frozen=True)
class _Statement:
    """A statement of the script that calls `tf.where`."""

    file: str
    function: str
    line: int


def array_selections(graph: Any) -> tuple[ArraySelection, ...]:
    """Returns the statements of the script that choose between large arrays by one condition.

    Functions that the graph calls are not searched: what remains of them has no line.
    """
    return tuple(facts for facts, _ in _examine(graph))


def _examine(graph: Any) -> list[tuple[ArraySelection, dict[str, tuple[_Side, _Side]]]]:
    """Returns the statements that select large arrays, each with the sides by the name of the op that selects."""
    # By statement, not by call: AutoGraph traces a statement of several lines as if it were on its last one.
    calls: dict[_Statement, list[Any]] = {}
    for op in graph.get_operations():
        caller = _caller_of_where(op) if op.type in _CALLS else None
        if caller is not None:
            calls.setdefault(_Statement(caller.filename, caller.name, int(caller.lineno)), []).append(op)
    large = [statement for statement, ops in calls.items() if any(map(_selects_large_array, ops))]
    if not large:
        return []
    examined = _Graph(graph, calls)
    found = []
    for statement in large:
        selections = calls[statement]
        sizes = [op.outputs[0].shape.num_elements() for op in selections if _selects_large_array(op)]
        why_not, kept = examined.obstacle(statement, selections), examined.kept_lines(statement)
        sides = {} if why_not else {op.name: examined.sides(statement, op, kept) for op in selections}
        while cut := {_line(op, statement) for op in examined.cut_ops(sides.values())}:
            if statement.line in cut:
                why_not, sides = "TensorFlow may fuse an op of one side with an op that both need", {}
            else:  # it stays, so that it is rounded as before
                kept |= {line for line in cut if line is not None}
                sides = {op.name: examined.sides(statement, op, kept) for op in selections}
        moved = {_line(op, statement) for both in sides.values() for side in both for op in side.ops}
        facts = ArraySelection(
            statement.file,
            statement.line,
            elements=None if None in sizes else max(sizes),
            why_not=why_not,
            kept_lines=tuple(sorted(kept)),
            moved_lines=tuple(sorted(line for line in moved if line is not None and line != statement.line)),
        )
        found.append((facts, sides))
    return found


def _selects_large_array(op: Any) -> bool:
    if op.type != "SelectV2" or op.inputs[0].shape.rank != 0 or not op.outputs[0].shape.rank:
        return False
    elements = op.outputs[0].shape.num_elements()
    return bool(op.outputs[0].shape.rank >= _IMAGE_RANK if elements is None else elements >= _LARGE_ARRAY)


def _caller_of_where(op: Any) -> Any:
    """Returns the frame of the script that called the `tf.where` which made an op; None if a library or nobody did."""
    outwards = dropwhile(lambda frame: frame.name != "where_v2", reversed(list(op.traceback or ())))
    caller = next(dropwhile(lambda frame: frame.name in _WHERE, outwards), None)
    return caller if caller is not None and not is_library(caller.filename) else None


_WHERE = ("where_v2", "op_dispatch_handler", "error_handler")  # itself, and what is between any call and its function


def _line(op: Any, statement: _Statement) -> int | None:
    """Returns the line of the function around a statement at which an op was traced; None if it was not running."""
    for frame in reversed(op.traceback or ()):
        if (frame.filename, frame.name) == (statement.file, statement.function):
            return int(frame.lineno)
    return None


_LAYOUT = frozenset({"ExpandDims", "Pad", "PadV2", "ReverseV2", "Shape", "Size", "Tile", "Transpose"})
"""Ops that accept any size along each axis, with constant parameters."""

_ON_STATIC_SHAPES = REDUCTIONS | {
    "AdjustContrastv2", "AdjustHue", "AdjustSaturation", "ArgMax", "ArgMin", "AvgPool", "BatchMatMulV2", "BroadcastTo",
    "ConcatV2", "Conv2D", "DepthwiseConv2dNative", "Fill", "GatherV2", "HSVToRGB", "LogSoftmax", "MatMul", "MaxPool",
    "MirrorPad", "Pack", "RGBToHSV", "Reshape", "ResizeArea", "ResizeBicubic", "ResizeBilinear",
    "ResizeNearestNeighbor", "Slice", "Softmax", "Squeeze", "StridedSlice",
}  # fmt: skip
"""Ops that raise an error, if at all, for shapes and constant parameters: for every element or for none."""

_REARRANGING = frozenset(
    {"BroadcastTo", "ConcatV2", "Fill", "GatherV2", "MirrorPad", "Pack", "Reshape", "Slice", "Squeeze", "StridedSlice"}
)
"""Those of them that only copy values."""

_INDEXED = frozenset({"GatherV2", "MirrorPad"})
"""Those of them that take indices or paddings of any rank; all inputs but the first must be constants."""

_DIVISIONS = frozenset({"Div", "FloorDiv", "FloorMod", "Pow", "RealDiv", "TruncateDiv", "TruncateMod"})
"""Ops that raise an error for some integers."""

_SHAPE_CHECKED = frozenset({"AddN", "ClipByValue"})  # they do not broadcast

Size = int | str
"""The size of an axis: static, or the tensor and axis that it is known from."""


class _Graph:
    """What is known of the ops of a graph: shapes, which of them cannot raise an error, and what depends on what."""

    def __init__(self, graph: Any, calls: Mapping[_Statement, Sequence[Any]]) -> None:
        self._calls = calls
        self._selections = {op.name for ops in calls.values() for op in ops}
        self.ops = graph.get_operations()
        self._returned = {tensor.name for tensor in graph.outputs}
        self._awaited = {other.name for op in self.ops for other in op.control_inputs}
        self._awaited |= {op.name for op in graph.control_outputs}
        lasting = [op for op in self.ops if op.name in self._awaited or tensorflow_private.op_is_stateful(op.type)]
        self.live = self._ancestors([*(tensor.op for tensor in graph.outputs), *lasting])
        self._shapes: dict[str, tuple[Size, ...] | None] = {}
        for op in self.ops:
            self._shapes.update({made.name: self._shape(op, made) for made in op.outputs})
        self._movable = {op.name for op in self.ops if self._may_move(op)}
        self._kept = [op for op in self.ops if op.name not in self._movable]

    def _ancestors(self, ops: Iterable[Any]) -> set[str]:
        """Returns the names of ops and of all that they depend on."""
        found = reachable(ops, lambda op: [*(tensor.op for tensor in op.inputs), *op.control_inputs])
        return {op.name for op in found}

    # -- legality

    def obstacle(self, statement: _Statement, ops: Sequence[Any]) -> str:
        """Returns why the selections of a statement cannot be branches, as the end of a sentence; "" if they can."""
        if any(op.type == "Where" or op.inputs[0].shape.rank != 0 for op in ops):
            return "a condition in the same statement is not a single value"
        given = {tensor.op for op in ops for tensor in op.inputs}
        if any(one.type not in (*_CALLS, "Placeholder") and _caller_of_where(one) is not None for one in given):
            return "an argument is not a tensor, which tf.where converts and tf.cond does not"
        if not all(self._has_equal_sides(op) for op in ops):
            return "it is not certain that both arrays always have the same shape"
        chosen = self._ancestors(tensor.op for op in ops for tensor in op.inputs[1:])
        condition_ops = self._ancestors(op.inputs[0].op for op in ops)
        for op in self._kept:
            # The result of a stateless op that no side depends on is used elsewhere in the statement, or nowhere.
            harmless = op.name in condition_ops or not tensorflow_private.op_is_stateful(op.type)
            if (op.name in chosen or not harmless) and _line(op, statement) == statement.line:
                return f"the op {op.type} of the same statement must not move into a branch"
        return ""

    def _has_equal_sides(self, op: Any) -> bool:
        _, first, second = op.inputs
        shapes = {str(tensor.shape) for tensor in (first, second, op.outputs[0])}
        known = self._shapes[first.name]
        return len(shapes) == 1 and known is not None and known == self._shapes[second.name]

    def kept_lines(self, statement: _Statement) -> set[int]:
        """Returns the other lines of the function around a statement with code that must not move into a branch."""
        alike = {one.line for one in self._calls if (one.file, one.function) == (statement.file, statement.function)}
        lines = {_line(op, statement) for op in self._kept}
        return {line for line in lines | alike if line is not None and line != statement.line}

    def cut_ops(self, selections: Iterable[tuple[_Side, _Side]]) -> Iterator[Any]:
        """Yields ops that move, but that TensorFlow may fuse with one that stays: they would be rounded differently."""
        for sides in selections:
            moved = {op.name: op for side in sides for op in side.ops}
            for op, above in ((moving, tensor.op) for moving in moved.values() for tensor in moving.inputs):
                if above.name in moved or not (_computes(op) and _computes(above)):
                    continue
                others = {one.type for made in above.outputs for one in made.consumers() if one.name in self.live}
                if others <= {op.type} or (above.type, op.type) in _FUSED_THOUGH_SHARED:
                    yield op

    def _may_move(self, op: Any) -> bool:
        """Whether an op always has the same result wherever it runs, and raises no error for some elements alone."""
        if op.control_inputs or op.name in self._awaited or any(one.dtype in _NO_NUMBERS for one in op.inputs):
            return False
        if op.type in IDENTITIES | {"Const", "Placeholder"}:
            return True
        if op.type in ELEMENTWISE - _SHAPE_CHECKED:
            return (op.type not in _DIVISIONS or op.inputs[0].dtype.is_floating) and self._broadcasts(op)
        if op.type in _LAYOUT:
            return op.inputs[0].shape.rank is not None and _are_constant(op.inputs[1:2])
        static = all(tensor.shape.is_fully_defined() for tensor in (*op.inputs, *op.outputs))
        parameters = op.inputs[1:] if op.type in _INDEXED else filter(_may_be_parameter, op.inputs)
        return op.type in _ON_STATIC_SHAPES and static and _are_constant(parameters)

    def _broadcasts(self, op: Any) -> bool:
        """Whether the shapes of the inputs of an elementwise op always go together."""
        shapes = [self._shapes[tensor.name] for tensor in op.inputs]
        for axis in range(1, max((len(shape) for shape in shapes if shape is not None), default=0) + 1):
            sizes = {shape[-axis] for shape in shapes if shape is not None and len(shape) >= axis} - {1}
            if len(sizes) > 1 and not all(isinstance(size, int) for size in sizes):
                return False
        return None not in shapes or len(shapes) == 1

    # -- shapes

    def _shape(self, op: Any, made: Any) -> tuple[Size, ...] | None:
        """Returns the shape of the output `made` of an op; None if not even its rank is known.

        An unknown size is named after the tensor and axis that it comes from: equal names are equal sizes.
        """
        if made.shape.rank is None:
            return None
        derive = _DERIVED.get(op.type, _like_broadcast if op.type in ELEMENTWISE else None)
        shapes = [self._shapes[tensor.name] for tensor in op.inputs]
        derived = derive(op, shapes) if derive is not None else None
        if derived is None or len(derived) != made.shape.rank:
            derived = (None,) * made.shape.rank
        return tuple(
            static if static is not None else known if known is not None else f"{made.name}[{axis}]"
            for axis, (static, known) in enumerate(zip(made.shape.as_list(), derived, strict=True))
        )

    # -- branches

    def sides(self, statement: _Statement, selection: Any, kept: set[int]) -> tuple[_Side, _Side]:
        """Returns both sides of a selection in a statement; ops on the lines `kept` stay."""

        def moves(op: Any) -> bool:
            if op.type == "Placeholder" or op.name in self._selections or op.name not in self._movable:
                return False
            line = _line(op, statement)
            return line is not None and line not in kept  # a patch changes no other function

        first, second = (_Side(side, self._exclusive_ops(selection, side, moves)) for side in selection.inputs[1:])
        return first, second

    def _exclusive_ops(self, selection: Any, side: Any, moves: Callable[[Any], bool]) -> tuple[Any, ...]:
        """Returns the ops that compute nothing but one side of a selection and may move, in the order of the graph."""
        moved: dict[str, Any] = {}
        once = [tensor.op.name for tensor in selection.inputs].count(side.op.name) == 1
        read = {side.op.name} if once else set()
        for op in reversed(self.ops):  # the last op first: all that reads its results was decided on before
            if op.name not in read or not moves(op):
                continue
            readers = {reader.name for made in op.outputs for reader in made.consumers()} & self.live
            if op.name == side.op.name:
                readers.discard(selection.name)
            if readers <= moved.keys() and not any(made.name in self._returned for made in op.outputs):
                moved[op.name] = op
                read |= {tensor.op.name for tensor in op.inputs}
        return tuple(reversed(moved.values()))


_FUSED_THOUGH_SHARED = frozenset({("Exp", "Sub"), ("Add", "Log"), ("AddV2", "Log")})
"""Ops of which TensorFlow makes one (`Expm1`, `Log1p`) even if another op reads the result of the first."""


def _computes(op: Any) -> bool:
    """Whether an op computes floats, so that fusing it with another may change how they are rounded."""
    compute = op.type in ELEMENTWISE - {"Cast", "SelectV2"} or op.type in _ON_STATIC_SHAPES - _REARRANGING
    return compute and any(made.dtype.is_floating for made in op.outputs)


_NO_NUMBERS = (tf.string, tf.resource, tf.variant)


def _may_be_parameter(tensor: Any) -> bool:
    """Whether an input may be axes or sizes: integers of rank 0 or 1."""
    return tensor.dtype in (tf.int16, tf.int32, tf.int64) and (tensor.shape.rank or 0) < 2


def _are_constant(inputs: Iterable[Any]) -> bool:
    return all(tf.get_static_value(tensor) is not None for tensor in inputs)


Shapes = list[tuple[Size, ...] | None]


def _like_broadcast(_op: Any, shapes: Shapes) -> tuple[Size | None, ...] | None:
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max(map(len, known))
    sizes = [{shape[axis - rank] for shape in known if len(shape) >= rank - axis} - {1} for axis in range(rank)]
    return tuple(next(iter(one)) if len(one) == 1 else None if one else 1 for one in sizes)


def _transposed(op: Any, shapes: Shapes) -> tuple[Size | None, ...] | None:
    order, shape = tf.get_static_value(op.inputs[1]), shapes[0]
    return tuple(shape[axis] for axis in order) if order is not None and shape is not None else None


def _expanded(op: Any, shapes: Shapes) -> tuple[Size | None, ...] | None:
    axis, shape = tf.get_static_value(op.inputs[1]), shapes[0]
    return _with_axis(shape, int(axis), 1) if axis is not None and shape is not None else None


def _packed(op: Any, shapes: Shapes) -> tuple[Size | None, ...] | None:
    return _with_axis(shapes[0], op.get_attr("axis"), len(shapes)) if shapes[0] and len(set(shapes)) == 1 else None


def _with_axis(shape: tuple[Size, ...], axis: int, size: int) -> tuple[Size, ...]:
    at = axis % (len(shape) + 1)
    return (*shape[:at], size, *shape[at:])


def _strided(op: Any, shapes: Shapes) -> tuple[Size | None, ...] | None:
    begin, end, shrink = (op.get_attr(f"{name}_mask") for name in ("begin", "end", "shrink_axis"))
    strides, shape = tf.get_static_value(op.inputs[3]), shapes[0]
    if op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask") or strides is None or shape is None:
        return None
    given = [begin & end & 1 << axis and step == 1 for axis, step in enumerate(strides)]  # `:` along an axis
    given += [True] * (len(shape) - len(given))
    return tuple(size if given[axis] else None for axis, size in enumerate(shape) if not shrink >> axis & 1)


_DERIVED: dict[str, Callable[[Any, Shapes], tuple[Size | None, ...] | None]] = {
    **dict.fromkeys(
        IDENTITIES - {"IdentityN"} | {"CheckNumerics", "EnsureShape", "ReverseV2"}, lambda op, shapes: shapes[0]
    ),
    "ExpandDims": _expanded,
    "Pack": _packed,
    "StridedSlice": _strided,
    "Transpose": _transposed,
}


def applies(function: FunctionFacts) -> bool:
    """Whether a function selects large arrays by one condition."""
    return bool(function.selections)


def edit_graph(traced: Any) -> Any:
    """Returns a dataset's traced function with the same ops and seeds that computes only what its selections take.

    All selections become branches in statements where each of them can.

    Args:
        traced: the function of a map.

    Raises:
        CannotEdit: there is none, or static shapes would be lost.
    """
    graph = traced.function.graph
    statements = _examine(graph)
    branched = {name: sides for facts, named in statements if not facts.why_not for name, sides in named.items()}
    if not branched:
        raise CannotEdit(next((facts.why_not for facts, _ in statements), "it selects no large arrays"))
    given = graph.as_graph_def()
    nodes = {node.name: node for node in given.node}
    gone = set(nodes) - _Graph(graph, {}).live
    pieces, replaced = list[TracedOps](), dict[str, list[Any]]()
    for place, (name, sides) in enumerate(branched.items()):
        op = graph.get_operation_by_name(name)
        moved = {one.name for side in sides for one in side.ops}
        read = [one for side in sides for moving in side.ops for one in moving.inputs]
        taken = {one.name: one for one in read if one.op.name not in moved}
        taken |= {side.tensor.name: side.tensor for side in sides if not side.ops}
        branches = [(side.tensor.name, graph_with(given, [nodes[one.name] for one in side.ops])) for side in sides]
        given_tensors = [op.inputs[0], *taken.values()]
        piece = TracedOps(
            f"branch{place}",
            partial(_select, branches, list(taken)),
            [tf.TensorSpec(one.shape, one.dtype) for one in given_tensors],
            [one.name for one in given_tensors],
        )
        if piece.traced.outputs[0].shape.as_list() != op.outputs[0].shape.as_list():
            raise CannotEdit("its static shapes would be lost")
        chosen = replacement_node(nodes[name], "Identity", [piece.outputs[0]], T=nodes[name].attr["T"].type)
        replaced[name] = [*piece.nodes, chosen]
        pieces.append(piece)
        gone |= moved
    dropped: dict[str, list[Any]] = {name: [] for name in gone - replaced.keys() if nodes[name].op != "Placeholder"}
    return edited_function(traced, dropped | replaced, pieces)


def _select(branches: Sequence[tuple[str, Any]], names: Sequence[str], condition: Any, *taken: Any) -> Any:
    """Returns the selected side, each given by the name of its tensor and its ops; they read tensors with `names`."""
    known = dict(zip(names, taken, strict=True))

    def compute(name: str, ops: Any) -> Any:
        if name in known:
            return known[name]
        branch = tf.compat.v1.get_default_graph()
        read = {name if ":" in name else f"{name}:0" for node in ops.node for name in node.input}
        feeds = {one: branch.capture(tensor) for one, tensor in known.items() if one in read}
        (result,) = tf.graph_util.import_graph_def(ops, input_map=feeds, return_elements=[name], name="side")
        return result

    return tf.cond(condition, partial(compute, *branches[0]), partial(compute, *branches[1]))
