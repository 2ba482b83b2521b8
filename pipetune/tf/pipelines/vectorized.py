"""Checks that `tf.vectorized_map` of a function computes for each row what the function computes for an element."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pipetune.tf.pipelines.lifting import Lifted, computes, describe
from pipetune.tf.pipelines.terms import Unclear, needed_ops


def check_converters(single: Any, vectorized: Any) -> Lifted:
    """Returns the numerical properties of the rows of a function called through `tf.vectorized_map`.

    Args:
        single: the concrete function, traced on one element.
        vectorized: the concrete function of the map that calls it, traced on batches.

    Raises:
        Unclear: it has an op whose conversion is not proven correct, or would process the rows in a loop.
    """
    loop = next((op.type for op in vectorized.graph.get_operations() if op.type in _LOOPS), None)
    if loop is not None:
        raise Unclear(f"would run a loop ({loop})")
    for op in needed_ops(single.graph):
        if not _is_proven(op):
            raise Unclear(f"has an op that tf.vectorized_map is not proven to convert rightly ({op.type})")
        if op.type == "ParseExampleV2" and (op.get_attr("num_sparse") or op.get_attr("ragged_value_types")):
            raise Unclear("has sparse or ragged features, whose rows tf.vectorized_map does not keep apart")
        if op.type == "ParseExampleV2" and not all(one.shape.is_fully_defined() for one in op.outputs):
            raise Unclear("parses sequences of any length: several of them are no batch, or one that is padded")
    return describe(computes(single))


def _is_proven(op: Any) -> bool:
    """Whether the converter of an op gives each row the same result as an element."""
    if op.type == "Squeeze" and not op.get_attr("squeeze_dims"):  # it would squeeze a batch of one row
        return False
    if op.type == "Roll":  # of axes counted from the end, the last one would become that of the rows
        shift, axes = map(tf.get_static_value, op.inputs[1:])
        if shift is None or axes is None or (axes < 0).any():
            return False
    return op.type in PROVEN


_LOOPS = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
PROVEN = frozenset(
    {"Abs", "Acos", "Acosh", "AddN", "AddV2", "AdjustContrastv2", "AdjustHue", "AdjustSaturation", "All", "Any",
     "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "AvgPool", "BatchMatMulV2", "BiasAdd", "BitwiseAnd",
     "BitwiseOr", "BitwiseXor", "BroadcastTo", "Bucketize", "Cast", "Ceil", "ClipByValue", "Complex", "ComplexAbs",
     "ConcatV2", "Const", "Conv2D", "Cos", "Cosh", "Cumprod", "Cumsum", "DecodeCSV", "Digamma", "DivNoNan", "Einsum",
     "Elu", "Equal", "Erf", "Erfc", "Exp", "ExpandDims", "Expm1", "Fill", "Floor", "FloorDiv", "FloorMod", "GatherNd",
     "GatherV2", "Greater", "GreaterEqual", "Identity", "IdentityN", "Invert", "IsFinite", "IsInf", "IsNan",
     "LeakyRelu", "LeftShift", "Less", "LessEqual", "Lgamma", "Log", "Log1p", "LogSoftmax", "LogicalAnd", "LogicalNot",
     "LogicalOr", "LowerBound", "MatMul", "MatrixBandPart", "MatrixDiagPartV3", "MatrixDiagV3", "Max", "MaxPool",
     "Maximum", "Mean", "Min", "Minimum", "Mul", "Neg", "NoOp", "NotEqual", "OneHot", "Pack", "Pad", "ParseExampleV2",
     "Placeholder", "Pow", "Prod", "RFFT", "Range", "RealDiv", "Reciprocal", "Relu", "Relu6", "Reshape", "ReverseV2",
     "RightShift", "Rint", "Roll", "Round", "Rsqrt", "Select", "SelectV2", "Selu", "Shape", "Sigmoid", "Sign", "Sin",
     "Sinh", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "SplitV", "Sqrt", "Square",
     "SquaredDifference", "Squeeze", "StopGradient", "StridedSlice", "Sub", "Sum", "Tan", "Tanh",
     "TensorScatterUpdate", "Tile", "TopKV2", "Transpose", "TruncateDiv", "TruncateMod", "Unpack",
     "UnsortedSegmentSum", "Xdivy", "Xlogy"}
)  # fmt: skip
"""Ops whose converters gave each row the same result as an element, on every function of `tests/tf/op_cases.py`;
`Squeeze` and `Roll` with some of their arguments alone.

Not among them: `PadV2`, whose converter pads with zeros whatever the pad value.
"""
