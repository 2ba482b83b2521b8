"""Graphs of traced functions: what can be reached in one, types of ops that have something in common, and edits: ops
traced from Python, nodes in the place of others, the function rebuilt.

Each variant of `core.functions.GRAPH_EDITS` has a module beside this one, with two functions: `applies(facts)`, whether
a function is one that it might change, and `edit_graph(traced)`, which returns the changed copy, or raises `CannotEdit`
where that would not return the same or cannot be made.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import GRAPH_EDITS, PYTHON_CALLS, FunctionFacts, FunctionVariant

Node = TypeVar("Node")


def reachable(
    start: Iterable[Node], following: Callable[[Node], Iterable[Node]], *, key: Callable[[Node], Hashable] = id
) -> Iterator[Node]:
    """Yields nodes and all that follow from them, directly or through others, each once; the last found comes first.

    Args:
        start: the first nodes.
        following: returns the nodes that follow directly from one.
        key: returns what is equal for the same node.
    """
    seen: dict[Hashable, Node] = {}  # holds the nodes, so that no other one gets the id of one of them
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        identity = key(node)
        if identity not in seen:
            seen[identity] = node
            waiting += following(node)
            yield node


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


class CannotEdit(Exception):
    """A function has to stay as it is; the message says why, as the last clause of a sentence."""


class GraphEditModule(Protocol):
    """A module that makes a variant of traced functions."""

    applies: Callable[[FunctionFacts], bool]
    edit_graph: Callable[[Any], Any]


def graph_edit(form: FunctionVariant) -> GraphEditModule:
    """Returns the module that makes a variant of `GRAPH_EDITS`."""
    return cast(GraphEditModule, importlib.import_module(f"{__package__}.{GRAPH_EDITS[form].module}"))


def replacement_node(node: Any, op: str, inputs: Sequence[str], **types: int) -> Any:
    """Returns a node of type `op` with the name and the control inputs of `node`; `types` are its dtype attributes."""
    made = tf.compat.v1.NodeDef(name=node.name, op=op, device=node.device)
    made.input.extend([*inputs, *(name for name in node.input if name.startswith("^"))])
    for name, kind in types.items():
        made.attr[name].type = kind
    return made


def graph_with(given: Any, nodes: Iterable[Any]) -> Any:
    """Returns a GraphDef of these nodes with the functions of the GraphDef `given`."""
    made = tf.compat.v1.GraphDef(library=given.library, versions=given.versions)
    made.node.extend(nodes)
    return made


def edited_function(traced: Any, replaced: Mapping[str, Sequence[Any]], pieces: Sequence[TracedOps] = ()) -> Any:
    """Returns a dataset's traced function in which some nodes give way to others.

    Args:
        traced: the function.
        replaced: by the name of a node of its graph, what takes its place.
        pieces: what has functions that these nodes call.
    """
    graph = traced.function.graph
    given = graph.as_graph_def()
    edited = graph_with(given, (made for node in given.node for made in replaced.get(node.name, (node,))))
    for piece in pieces:
        edited.library.MergeFrom(piece.library)
    made = tensorflow_private.with_function(traced, rebuild_function(graph, edited, graph.outputs))
    made.called = pieces  # kept alive: TensorFlow deletes the functions of their branches along with them
    return made


class TracedOps:
    """Ops traced from a Python function, to be inserted into another graph.

    Args:
        name: part of the prefix of the new ops' names.
        function: called with one argument per item of `like`.
        like: tensors or specs with the shapes and dtypes of the arguments; a tensor with a static value is passed as
            that value (an array).
        feeds: for each item of `like`, the name of its tensor in the other graph.
    """

    def __init__(self, name: str, function: Callable[..., Any], like: Sequence[Any], feeds: Sequence[str]) -> None:
        values = [tf.get_static_value(one) if not isinstance(one, tf.TensorSpec) else None for one in like]
        fed = [place for place, value in enumerate(values) if value is None]

        def body(*given: Any) -> Any:
            tensors = dict(zip(fed, given, strict=True))
            return function(*(tensors.get(place, value) for place, value in enumerate(values)))

        self.traced = tensorflow_private.data_function(body, specs_of([like[place] for place in fed]))
        graph = self.traced.graph
        graph_def = graph.as_graph_def()
        self.library = graph_def.library
        names = {tensor.op.name: feeds[place] for place, tensor in zip(fed, graph.inputs, strict=True)}
        returned = {tensor.op.name: tensor.op.inputs[0].name for tensor in graph.outputs}  # each output is an Identity
        self.nodes: list[Any] = []
        for node in graph_def.node:
            if node.name not in names and node.name not in returned:
                node.name = f"pipetune/{name}/{node.name}"
                node.input[:] = [self._reference(reference, name, names) for reference in node.input]
                self.nodes.append(node)
        self.outputs = [self._reference(returned[tensor.op.name], name, names) for tensor in graph.outputs]

    @staticmethod
    def _reference(reference: str, prefix: str, names: Mapping[str, str]) -> str:
        plain = reference.lstrip("^").partition(":")[0]
        if plain in names:
            return names[plain]
        mark = "^" if reference.startswith("^") else ""
        return f"{mark}pipetune/{prefix}/{reference.removeprefix('^')}"


def rebuild_function(
    graph: Any,
    graph_def: Any,
    outputs: Sequence[Any],
    *,
    arguments: Sequence[Any] | None = None,
    leading_axes: tuple[int | None, ...] = (),
) -> Any:
    """Returns a concrete function built from `graph_def`, with the captures of `graph`.

    Args:
        graph: the graph of the original function.
        graph_def: some ops of `graph`, or replacements for them.
        outputs: tensors of `graph`; the tensors of the same names are returned, with the same static shapes.
        arguments: tensors of `graph` that become the arguments; None for the arguments of `graph`.
        leading_axes: sizes of additional leading axes of all arguments and results: (32,) or (None,) for batches.
    """
    if arguments is None:
        arguments = graph.inputs[: len(graph.inputs) - len(graph.captures)]
    body = function_body(graph, graph_def, outputs, argument_tensors=arguments, leading_axes=leading_axes)
    return tensorflow_private.data_function(body, specs_of(arguments, leading_axes))


def specs_of(tensors: Sequence[Any], leading_axes: tuple[int | None, ...] = ()) -> list[Any]:
    """Returns the specs of tensors with additional leading axes."""
    return [tf.TensorSpec(_with_axes(leading_axes, one.shape), one.dtype) for one in tensors]


def _with_axes(leading_axes: tuple[int | None, ...], shape: Any) -> Any:
    return [*leading_axes, *shape] if leading_axes else shape  # which may have no known rank


def function_body(
    graph: Any,
    graph_def: Any,
    outputs: Sequence[Any],
    *,
    argument_tensors: Sequence[Any],
    leading_axes: tuple[int | None, ...] = (),
) -> Callable[..., list[Any]]:
    """Returns the Python function that `rebuild_function` traces; it imports the ops into the graph that calls it.

    Args: as for `rebuild_function`, with `argument_tensors` in place of `arguments`.
    """
    captured = [(inner.name, outer) for outer, inner in graph.captures]
    arguments = tuple(argument_tensors)

    def body(*values: Any) -> list[Any]:
        here = tf.compat.v1.get_default_graph()
        feeds = {tensor.name: value for tensor, value in zip(arguments, values, strict=True)}
        feeds |= {name: here.capture(outer) for name, outer in captured}
        present = {node.name for node in graph_def.node}
        present |= {name.lstrip("^").partition(":")[0] for node in graph_def.node for name in node.input}
        read = {name: value for name, value in feeds.items() if name.partition(":")[0] in present}
        names = [tensor.name for tensor in outputs if tensor.name not in feeds]
        made = tf.graph_util.import_graph_def(graph_def, input_map=read, return_elements=names, name="edited")
        feeds |= dict(zip(names, made, strict=True))
        results = [feeds[tensor.name] for tensor in outputs]
        for result, original in zip(results, outputs, strict=True):
            result.set_shape(_with_axes(leading_axes, original.shape))
        return results

    return body
