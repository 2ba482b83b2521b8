"""Expresses what a traced function computes as terms over its inputs, which can be compared.

Two functions whose results are equal terms compute the same from the same input, whatever the names and the order of
their ops. Ops whose results are never read are left out, because the functions examined are stateless. Whatever does
not change a result is normalized away: names, `Identity`, negative axes, how a constant shape was computed, chains of
reshapes, and a first axis of size 1 that is added before an op and removed after it. `normal_forms` holds these, one
function each; `lifting` defines what ops do with a stack of rows, which also moves such a first axis outwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.pipelines import graphs
from pipetune.pipelines.graphs import reachable

Shape = tuple[int | None, ...] | None
"""A static shape; None for an unknown rank, None inside it for an unknown size."""

ROWS = "Rows"
"""The op of a term that is a stack of rows; its input is the term of one row."""


class CannotProve(Exception):
    """What a function computes cannot be determined; the message continues a sentence whose subject is the function."""


@dataclass(frozen=True, eq=False)
class Term:
    """One tensor of a traced function, as an expression over the inputs of the function.

    Terms are equal if they are the same expression. Shape and dtype are the static ones of the tensor, and follow from
    the expression.
    """

    op: str  # a TensorFlow op type, or "Input", "Captured", "Constant", "Rows", "Part", "Slice", "Sizes"
    inputs: tuple[Term, ...] = ()
    attributes: tuple[tuple[str, object], ...] = ()  # sorted by name
    output: int = 0  # index among the results of the op
    dtype: Any = None  # a tf.DType
    shape: Shape = None
    value: np.ndarray | None = None  # of a constant; of "Sizes" an object array of integers and UNKNOWN_ROWS
    key: str = field(init=False)  # hash of the expression

    def __post_init__(self) -> None:
        parts = [self.op, str(self.output), repr(self.attributes), *(term.key for term in self.inputs)]
        if self.value is not None:
            content = repr(self.value.tolist()).encode() if self.value.dtype == object else self.value.tobytes()
            parts += [str(self.dtype), str(self.value.shape), hashlib.sha256(content).hexdigest()]
        object.__setattr__(self, "key", hashlib.sha256("\n".join(parts).encode()).hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def rank(self) -> int:
        """Number of axes.

        Raises:
            CannotProve: it is unknown.
        """
        if self.shape is None:
            raise CannotProve(f"has a tensor of unknown rank ({self.op})")
        return len(self.shape)

    def attribute(self, name: str) -> Any:
        """Returns the attribute of this name, or None."""
        return next((value for key, value in self.attributes if key == name), None)

    def ancestors(self, *, through: Callable[[Term], bool] = lambda _term: True) -> Iterator[Term]:
        """Returns this term and every term that it is built from, each once.

        Args:
            through: whether the inputs of a term are visited.
        """
        return reachable([self], lambda term: term.inputs if through(term) else (), key=lambda term: term.key)


@dataclass(frozen=True)
class Call:
    """An op to be applied: its type, the terms of its inputs, and the static dtypes and shapes of its results."""

    op: str
    inputs: tuple[Term, ...]
    attributes: tuple[tuple[str, object], ...]
    dtypes: tuple[Any, ...]
    shapes: tuple[Shape, ...]

    def attribute(self, name: str) -> Any:
        """Returns the attribute of this name, or None."""
        return next((value for key, value in self.attributes if key == name), None)

    def constant(self, position: int) -> np.ndarray:
        """Returns the value of the input at `position`.

        Raises:
            CannotProve: it is not a constant.
        """
        value = self.inputs[position].value
        if value is None or self.inputs[position].op != "Constant":
            raise CannotProve(f"computes an argument of {self.op} at run time")
        return value

    def results(self) -> list[Term]:
        """Returns the terms of the results: this op applied to these inputs, without normalization."""
        return [
            Term(self.op, self.inputs, self.attributes, place, dtype, shape)
            for place, (dtype, shape) in enumerate(zip(self.dtypes, self.shapes, strict=True))
        ]


def constant(value: Any, dtype: Any) -> Term:
    """Returns the term of a constant."""
    array = np.asarray(value)
    return Term("Constant", dtype=dtype, shape=array.shape, value=array)


ApplyOp = Callable[[Call], list[Term]]
"""A function that computes the terms of an op's results."""


def terms_of(function: Any, given: Sequence[Term], apply: ApplyOp, *, draws: Iterator[int] | None = None) -> list[Term]:
    """Returns the terms of all flat outputs of a traced function, in order.

    Args:
        function: a concrete function.
        given: terms of its flat inputs, without captures.
        apply: computes the terms of an op's results from those of its inputs.
        draws: numbers for the random draws of a function, in the order in which it makes them. With them, a branch is a
            term too; it must not draw.

    Raises:
        CannotProve: it branches or loops, draws without numbers for the draws, or reads something that no term can
            express.
    """
    graph = function.graph
    captured = [_captured(outer, inner) for outer, inner in graph.captures]
    if len(given) + len(captured) != len(graph.inputs):
        raise CannotProve("has inputs that cannot be identified")
    return _terms(graph, [*given, *captured], apply, draws)


def _captured(outer: Any, inner: Any) -> Term:
    """Returns the term of a captured tensor: its value if that is known and small, else its identity."""
    if inner.op.type == "Const":
        return constant(tf.make_ndarray(inner.op.get_attr("value")), inner.dtype)
    if isinstance(outer, tf.Tensor) and hasattr(outer, "numpy") and inner.dtype not in (tf.resource, tf.variant):
        size = outer.shape.num_elements() or 0
        if size * max(1, inner.dtype.size) <= _SMALL_BYTES:
            return constant(outer.numpy(), inner.dtype)
    return Term("Captured", attributes=(("id", id(outer)),), dtype=inner.dtype, shape=static_shape(inner))


_SMALL_BYTES = 1_000_000  # by judgement: larger tensors cost time to copy and compare, and count by their identity


def _terms(graph: Any, given: Sequence[Term], apply: ApplyOp, draws: Iterator[int] | None) -> list[Term]:
    """Returns the terms of the outputs of a graph from those of its inputs; functions that it calls are inlined."""
    known = {id(tensor): term for tensor, term in zip(graph.inputs, given, strict=True)}
    needed = _needed(graph)
    for op in graph.get_operations():
        draw = next(draws) if draws is not None and graphs.draws(op.type) else None
        if id(op) not in needed or all(id(tensor) in known for tensor in op.outputs):
            continue
        if draws is None and graphs.draws(op.type):
            raise CannotProve(f"draws random numbers ({op.type})")
        inputs = [known[id(tensor)] for tensor in op.inputs]
        if op.type == "Const":
            results = [constant(tf.make_ndarray(op.get_attr("value")), op.outputs[0].dtype)]
        elif op.type in _CALLS:
            called = tensorflow_private.called_graph(op)
            if called is None or len(called.inputs) != len(inputs):
                raise CannotProve(f"calls other functions ({op.type})")
            results = _terms(called, inputs, apply, draws)
        elif op.type in BRANCHES and draws is not None:
            results = _either(op, inputs, apply, draws)
        elif draw is not None:
            call = _call(op, inputs)
            results = replace(call, attributes=(*call.attributes, ("draw", draw))).results()
        else:
            results = apply(_call(op, inputs))
        known.update({id(tensor): term for tensor, term in zip(op.outputs, results, strict=True)})
    return [known[id(tensor)] for tensor in graph.outputs]


_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

BRANCHES = frozenset({"If", "StatelessIf"})
"""Ops that compute one of two functions, as `tf.cond` does."""


def _either(op: Any, inputs: Sequence[Term], apply: ApplyOp, draws: Iterator[int]) -> list[Term]:
    """Returns the terms of the results of a branch: the condition, and what either side returns, without draws."""
    sides = []
    for name in ("then_branch", "else_branch"):
        graph = tensorflow_private.called_graph(op, name)
        if graph is None or len(graph.inputs) != len(inputs) - 1:
            raise CannotProve(f"calls other functions ({op.type})")
        if any(graphs.draws(inner.type) for inner in needed_ops(graph)):
            raise CannotProve("draws random numbers in a branch")
        sides.append(_terms(graph, inputs[1:], apply, draws))
    return [
        Term("If", (inputs[0], one, other), dtype=tensor.dtype, shape=static_shape(tensor))
        for tensor, one, other in zip(op.outputs, *sides, strict=True)
    ]


def needed_ops(graph: Any) -> Iterator[Any]:
    """Yields the ops that the outputs of a graph depend on, including those in the functions it calls."""
    needed = _needed(graph)
    for op in graph.get_operations():
        if id(op) in needed:
            called = tensorflow_private.called_graph(op) if op.type in _CALLS else None
            yield from needed_ops(called) if called is not None else (op,)


def input_terms(function: Any) -> list[Term]:
    """Returns a term for each flat input of a traced function, identified by its index."""
    graph = function.graph
    given = graph.inputs[: len(graph.inputs) - len(list(graph.captures))]
    return [input_term(place, dtype=one.dtype, shape=static_shape(one)) for place, one in enumerate(given)]


def input_term(place: int, *, dtype: Any = None, shape: Shape = None) -> Term:
    """Returns the term of the flat input of a function at the index `place`."""
    return Term("Input", attributes=(("place", place),), dtype=dtype, shape=shape)


def static_shape(tensor: Any) -> Shape:
    """Returns the static shape of a tensor."""
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


def _needed(graph: Any) -> set[int]:
    """Returns the ids of the ops that the outputs depend on."""
    ends = [tensor.op for tensor in graph.outputs]
    return set(map(id, reachable(ends, lambda op: [tensor.op for tensor in op.inputs])))


def _call(op: Any, inputs: list[Term]) -> Call:
    attributes = []
    for name, value in sorted(op.node_def.attr.items()):
        if value.WhichOneof("value") == "func" or value.list.func:
            raise CannotProve(f"calls other functions ({op.type})")
        if not name.startswith("_"):
            attributes.append((name, _plain(value)))
    dtypes = tuple(tensor.dtype for tensor in op.outputs)
    return Call(op.type, tuple(inputs), tuple(attributes), dtypes, tuple(map(static_shape, op.outputs)))


def _plain(value: Any) -> object:
    """Returns an attribute as a Python value if it has a simple type, else as its serialized bytes."""
    kind = value.WhichOneof("value")
    if kind in ("i", "b", "f"):
        return getattr(value, kind)
    if kind == "list" and value.list.i:
        return tuple(value.list.i)
    return bytes(value.SerializeToString(deterministic=True))
