"""Replaces the random draws of a function body by one constant."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_SHAPED = {
    "RandomUniform": (0, "dtype", "T"),
    "RandomStandardNormal": (0, "dtype", "T"),
    "TruncatedNormal": (0, "dtype", "T"),
    "StatefulUniform": (2, "dtype", "shape_dtype"),
    "StatefulStandardNormalV2": (2, "dtype", "shape_dtype"),
    "StatefulTruncatedNormal": (2, "dtype", "shape_dtype"),
    "StatelessRandomUniform": (0, "dtype", "T"),
    "StatelessRandomNormal": (0, "dtype", "T"),
    "StatelessTruncatedNormal": (0, "dtype", "T"),
    "StatelessRandomUniformV2": (0, "dtype", "Tshape"),
    "StatelessRandomNormalV2": (0, "dtype", "Tshape"),
    "StatelessTruncatedNormalV2": (0, "dtype", "Tshape"),
}
"""Ops that fill a shape: index of the shape input, attributes of the drawn dtype and of the shape's dtype."""

_SMALLEST = {
    "RandomUniformInt": (0, 1, "Tout", "T"),
    "StatefulUniformInt": (2, 3, "dtype", "shape_dtype"),
    "StatelessRandomUniformInt": (0, 2, "dtype", "T"),
    "StatelessRandomUniformIntV2": (0, 4, "dtype", "Tshape"),
}
"""Ops that draw integers from a range: indices of the shape and minimum inputs, attributes of the same two dtypes."""

_MIDDLE = 0.5
_NO_VALUE = frozenset({"RngReadAndSkip", "RngSkip"})


def replace(node: Any, body: Any) -> bool:
    """Makes a random node yield a constant, in place; False if its op is not supported.

    Uniform and normal draws become 0.5, integers the minimum of their range, and a shuffle keeps its order.

    Args:
        node: NodeDef of a function body.
        body: the FunctionDef it belongs to; a constant node may be added.
    """
    if node.op in _NO_VALUE:
        return True  # only advances the generator; the draws made from it are replaced where they are made
    if node.op == "RandomShuffle":
        kept = node.attr["T"].type
        _become(node, "Identity", [node.input[0]], {"T": kept})
        return True
    if node.op in _SHAPED:
        shape, drawn, index = _SHAPED[node.op]
        drawn_type, index_type = node.attr[drawn].type, node.attr[index].type
        value = body.node_def.add(name=f"{node.name}_constant", op="Const")
        value.attr["dtype"].type = drawn_type
        middle = tf.make_tensor_proto(_MIDDLE, dtype=tf.as_dtype(drawn_type), shape=[])
        value.attr["value"].tensor.CopyFrom(middle)
        inputs = [node.input[shape], f"{value.name}:output:0"]
        _become(node, "Fill", inputs, {"T": drawn_type, "index_type": index_type})
        return True
    if node.op in _SMALLEST:
        shape, least, drawn, index = _SMALLEST[node.op]
        types = {"T": node.attr[drawn].type, "index_type": node.attr[index].type}
        _become(node, "Fill", [node.input[shape], node.input[least]], types)
        return True
    return False


def _become(node: Any, op: str, inputs: list[str], types: dict[str, int]) -> None:
    after = [name for name in node.input if name.startswith("^")]
    node.op = op
    del node.input[:]
    node.input.extend([*inputs, *after])
    node.attr.clear()
    for name, value in types.items():
        node.attr[name].type = value
