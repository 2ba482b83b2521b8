"""Types of TensorFlow's ops that have something in common, for proofs about functions and for edits of them."""

from __future__ import annotations

import re

from pipetune import tensorflow_private
from pipetune.core.functions import PYTHON_CALLS

DATASET_OP = re.compile(r"(?<!Reduce)Dataset(V\d+)?$")
"""What the type of an op that makes a dataset ends with; `ReduceDataset` reads one."""

GENERATOR_OPS = frozenset(
    {"RngReadAndSkip", "RngSkip", "StatefulUniform", "StatefulUniformInt", "StatefulUniformFullInt",
     "StatefulStandardNormal", "StatefulStandardNormalV2", "StatefulTruncatedNormal",
     "StatefulRandomBinomial", "NonDeterministicInts"}
)  # fmt: skip
"""Ops that draw from a `tf.random.Generator`, whose seed is in a variable."""

IDENTITIES = frozenset({"Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot"})
"""Ops that return their inputs."""

PYTHON_OPS = PYTHON_CALLS | {"GeneratorDataset"}
"""Ops that call Python."""

REDUCTIONS = frozenset({"All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum"})
"""Ops that reduce the axes named by their second input."""

ELEMENTWISE_EXACT = frozenset(
    {"Abs", "Add", "AddV2", "AsString", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Bucketize", "Cast", "Ceil",
     "ClipByValue", "Complex", "DecodeBase64", "Div", "DivNoNan", "EncodeBase64", "Equal", "Floor", "FloorDiv",
     "FloorMod", "Greater", "GreaterEqual", "Invert", "IsFinite", "IsInf", "IsNan", "LeftShift", "Less", "LessEqual",
     "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul", "Neg", "NotEqual", "OnesLike", "RealDiv",
     "Relu", "Relu6", "RightShift", "Rint", "Round", "SelectV2", "Sign", "Square", "SquaredDifference",
     "StaticRegexFullMatch", "StaticRegexReplace", "StringJoin", "StringLength", "StringLower", "StringStrip",
     "StringToHashBucketFast", "StringToHashBucketStrong", "StringToNumber", "StringUpper", "Sub", "Substr",
     "TruncateDiv", "TruncateMod", "ZerosLike"}
)  # fmt: skip
"""Elementwise ops whose results do not depend on how many values they are given."""

ELEMENTWISE_INEXACT = frozenset(
    {"Acos", "Acosh", "AddN", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Digamma", "Elu", "Erf",
     "Erfc", "Exp", "Expm1", "LeakyRelu", "Lgamma", "Log", "Log1p", "Pow", "Reciprocal", "Rsqrt", "Selu", "Sigmoid",
     "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "Xdivy", "Xlogy"}
)  # fmt: skip
"""Elementwise ops whose last bits depend on how many values they are given."""

ELEMENTWISE = ELEMENTWISE_EXACT | ELEMENTWISE_INEXACT
"""Elementwise ops: each value of the result depends on the values at the same position of the inputs."""


def draws(op_type: str) -> bool:
    """Whether an op draws random numbers, by seeds in its attributes, that differ from call to call."""
    return tensorflow_private.op_has_seed(op_type) and tensorflow_private.op_is_stateful(op_type)
