"""Splits a traced function in two: the second part continues from the tensors that the first passes on."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, filterfalse
from types import CodeType, FunctionType, ModuleType
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.files import is_library
from pipetune.core.functions import PYTHON_CALLS, SplitPosition
from pipetune.pipelines.call_sites import called_name, syntax_tree
from pipetune.pipelines.functions import called_functions
from pipetune.pipelines.graphs import draws, function_body, graph_with, reachable, rebuild_function, specs_of
from pipetune.pipelines.lifting import prove_rows
from pipetune.pipelines.terms import CannotProve


def statement_indices(function: Any, ops: Sequence[Any]) -> list[int] | None:
    """Returns, for every op, the index of the statement in the function's body that created it.

    An op that no statement created gets the index of the op before it (inputs 0); in a lambda, all of them are 0. None
    if the function has decorators, its source cannot be read, or its statements did not run in order.
    """
    traced = _TracedSource.of(function)
    if traced is None:
        return None
    found, last = list[int](), 0
    for op in ops:
        line = traced.line(op)
        places = [place for place, (start, end) in enumerate(traced.lines) if line is not None and start <= line <= end]
        if places and places[0] < last:
            return None
        last = places[0] if places else last
        found.append(last)
    return found


def last_call_before(
    function: Any, ops: Sequence[Any], statements: Sequence[int], place: int
) -> tuple[int, int, str] | None:
    """Returns where the last call of a function ended before an op, in the statement that created this op.

    Of calls of a library's functions, such as `tf.image.resize`, these count that the statement evaluates first.

    Args:
        statements: the `statement_indices` of the ops.
        place: index of the op.

    Returns:
        The index of the first op behind the call, the index of the statement and the name of the called function; None
        if there is no such call, or if the statement calls a function of this name again.
    """
    traced = _TracedSource.of(function)
    if traced is None:
        return None
    called = [traced.called(op, statement) for op, statement in zip(ops, statements, strict=True)]
    position = place
    while position and called[position - 1] in ("", called[place]):
        position -= 1
    if not position or statements[position - 1] != statements[place] or called[position - 1] in called[position:]:
        return None
    return position, statements[place], called[position - 1]


@dataclass(frozen=True)
class _TracedSource:
    """The source of a function that was traced, to tell which part of it created an op."""

    code: CodeType
    lines: tuple[tuple[int, int], ...]  # the first and the last line of each statement of its body
    library: tuple[Mapping[tuple[str, str], str], ...]
    """Of each statement, what it calls of libraries before anything else: by file and name there, how it names it."""

    @classmethod
    def of(cls, function: Any) -> _TracedSource | None:
        """Returns the source of a plain `def` or a lambda; None for anything else, or if it cannot be read."""
        function = getattr(function, "__func__", function)  # of a method
        tree = syntax_tree(function.__code__.co_filename) if isinstance(function, FunctionType) else None
        if tree is None:
            return None
        code = function.__code__
        found = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.Lambda) and node.lineno == code.co_firstlineno
            if getattr(node, "name", "<lambda>") == code.co_name and not getattr(node, "decorator_list", ())
        ]
        if len(found) != 1:
            return None
        body = found[0].body if isinstance(found[0], ast.FunctionDef) else [found[0].body]
        lines = tuple((one.lineno, one.end_lineno or one.lineno) for one in body)
        return cls(code, lines, tuple(_library_calls(one, function.__globals__) for one in body))

    def line(self, op: Any) -> int | None:
        """Returns the line of the body that ran when an op was created: that of the function's outermost frame."""
        return next((int(frame.lineno) for frame in op.traceback or () if self._is_frame(frame)), None)

    def called(self, op: Any, statement: int) -> str:
        """Returns the function that a statement of the body called directly, and that created an op; "" if none did."""
        inside = dropwhile(lambda frame: not self._is_frame(frame), op.traceback or ())
        others = filterfalse(self._is_frame, inside)
        called = next((one for one in others if not any(part in one.filename for part in _BETWEEN)), None)
        if called is None:
            return ""
        if is_library(called.filename):
            return self.library[statement].get((called.filename, called.name), "")
        return str(called.name).removeprefix("tf__")

    def _is_frame(self, frame: Any) -> bool:
        name = self.code.co_name
        names = (name, f"tf__{name}") if name != "<lambda>" else (name, "")  # autograph keeps no name of a lambda
        within = self.lines[0][0] <= frame.lineno <= self.lines[-1][1]
        return frame.filename == self.code.co_filename and frame.name in names and within


_BETWEEN = tuple(os.path.join("tensorflow", "python", part, "") for part in ("autograph", "util"))
"""Frames of files in these folders lie between a function and what it calls."""


def _library_calls(line: ast.AST, variables: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Returns the functions of libraries that a statement calls before anything else, with its names for them.

    Each name occurs once in it, so that it says which call is meant. The keys are file and name of the function.
    """
    names = [called_name(one) for one in ast.walk(line) if isinstance(one, ast.Call)]
    found = {}
    for call in _evaluated_first(line):
        name, code = called_name(call), getattr(_function_named(call.func, variables), "__code__", None)
        if names.count(name) == 1 and isinstance(code, CodeType) and is_library(code.co_filename):
            found[code.co_filename, code.co_name] = name
    return found


def _evaluated_first(line: ast.AST) -> Iterator[ast.Call]:
    """Yields the calls that begin a statement, or an expression: the last one is evaluated before anything else."""
    node: ast.AST | None = line
    while node is not None:
        match node:
            case ast.Call(func=ast.Name() | ast.Attribute(value=ast.Name() | ast.Attribute()), args=arguments):
                yield node
                node = arguments[0] if arguments else None
            case ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]) | ast.BinOp(left=first):
                node = first
            case ast.Assign() | ast.Return() | ast.Subscript() | ast.Attribute():
                node = node.value
            case _:
                node = None


def _function_named(name: ast.expr, variables: Mapping[str, Any]) -> Any:
    """Returns what a name such as `tf.image.resize` stands for, without its decorators; None if that is not known."""
    path: list[str] = []
    while isinstance(name, ast.Attribute):
        path, name = [name.attr, *path], name.value
    value = variables.get(name.id) if isinstance(name, ast.Name) else None
    for one in path:
        value = getattr(value, one, None) if isinstance(value, ModuleType) else None
    return inspect.unwrap(value) if callable(value) else None


class CannotSplit(Exception):
    """The function cannot be split there; the message is the last clause of a sentence about it."""


class SplittableFunction:
    """The graph of a traced function, and its two parts for a cut after its first `position` ops."""

    def __init__(self, traced: Any) -> None:
        self.traced = traced
        self.graph = traced.function.graph
        self.ops: list[Any] = list(self.graph.get_operations())
        self.arguments = list(self.graph.inputs[: len(self.graph.inputs) - len(self.graph.captures)])

    @cached_property
    def varying_ops(self) -> frozenset[int]:
        """Ids of the ops whose results depend on the element, or differ from call to call."""
        found = {id(tensor.op) for tensor in self.arguments}
        for op in self.ops:
            stateful = op.type != "Placeholder" and tensorflow_private.op_is_stateful(op.type)
            if stateful or any(id(tensor.op) in found for tensor in op.inputs):
                found.add(id(op))
        return frozenset(found)

    def working_ops(self, ops: Iterable[Any]) -> list[Any]:
        """Returns those of `ops` that compute something from the element."""
        return [op for op in ops if id(op) in self.varying_ops and op.type not in _IDLE]

    def passed_tensors(self, position: int) -> list[Any]:
        """Returns the tensors passed from the first part to the second, each once, in the order they were created."""
        above = {id(op): place for place, op in enumerate(self.ops[:position])}
        needed = [tensor for op in self.ops[position:] for tensor in op.inputs]
        found: dict[int, Any] = {}
        for tensor in (*needed, *self.graph.outputs):
            if id(tensor.op) in above and id(tensor.op) in self.varying_ops:
                found[id(tensor)] = tensor
        return sorted(found.values(), key=lambda tensor: (above[id(tensor.op)], tensor.value_index))

    def passed_components(self, position: int) -> tuple[int, ...]:
        """Returns the indices of the components of the element that are passed to the second part unchanged."""
        places = {id(tensor): place for place, tensor in enumerate(self.arguments)}
        return tuple(sorted(places[id(one)] for one in self.passed_tensors(position) if id(one) in places))

    def head(self, position: int) -> Any:
        """Returns the first part as a traced function; it returns the tensors of `passed_tensors`.

        Raises:
            CannotSplit: there are none, or one has a dtype that no element can hold (resource or variant).
        """
        handed = self.passed_tensors(position)
        if not handed:
            raise CannotSplit("its first part would pass nothing to its second part")
        if any(tensor.dtype in (tf.resource, tf.variant) for tensor in handed):
            raise CannotSplit("its second part would need a resource handle created in its first part")
        return tensorflow_private.with_function(self.traced, self._head(position), output_spec=_element_spec(handed))

    def tail(self, position: int) -> Any:
        """Returns the second part as a traced function from `passed_tensors` to the results of the whole."""
        handed = self.passed_tensors(position)
        rest = rebuild_function(self.graph, self._tail_ops(position), self.graph.outputs, arguments=handed)
        return tensorflow_private.with_function(self.traced, rest)

    def head_on_batches(self, position: int, rows: int | None) -> Any:
        """Returns the first part for whole batches.

        Args:
            rows: rows per batch, the first axis of every argument and result; None if it varies.

        Raises:
            CannotSplit: it is not proven to compute for each row what it computes for an element.
        """
        batched = self._head(position, rows=(rows,))
        gives = _element_spec(self.passed_tensors(position), (rows,))
        try:
            prove_rows(self._head(position), batched)
        except CannotProve as reason:
            raise CannotSplit(f"a part of it {reason}") from reason
        return tensorflow_private.with_function(self.traced, batched, output_spec=gives)

    def _head(self, position: int, *, rows: tuple[int | None, ...] = ()) -> Any:
        part, handed = self._part(self.ops[:position]), self.passed_tensors(position)
        return rebuild_function(self.graph, part, handed, leading_axes=rows)

    def tail_function(self, position: int) -> Callable[..., Any]:
        """Returns the second part as a Python function with one argument for each of `passed_tensors`."""
        ops, passed = self._tail_ops(position), self.passed_tensors(position)
        body = function_body(self.graph, ops, self.graph.outputs, argument_tensors=passed)
        return lambda *handed: tf.nest.pack_sequence_as(self.traced.output_structure, body(*handed))

    def inlined(self) -> Callable[..., Any]:
        """Returns the whole as a Python function that adds its ops to the graph that calls it."""
        body = function_body(self.graph, self._part(self.ops), self.graph.outputs, argument_tensors=self.arguments)

        def call(*arguments: Any) -> Any:
            element = tensorflow_private.as_input(self.traced, arguments)
            return tensorflow_private.call_traced(self.traced, element, function=body)

        return call

    def _tail_ops(self, position: int) -> Any:
        above = [op for op in self.ops[:position] if id(op) not in self.varying_ops]
        return self._part([*above, *self.ops[position:]])

    def _part(self, ops: Sequence[Any]) -> Any:
        """Returns the GraphDef of `ops` without the inputs of the graph.

        Control inputs and colocation constraints that name other ops are dropped: those ops have run by then, and need
        not be on the same device.
        """
        names = {op.name for op in ops} - {tensor.op.name for tensor in self.graph.inputs}
        whole = self.graph.as_graph_def()
        part = graph_with(whole, [node for node in whole.node if node.name in names])
        for node in part.node:
            waited = [name for name in node.input if name.startswith("^") and name[1:] not in names]
            for name in waited:
                node.input.remove(name)
            places = [one for one in node.attr["_class"].list.s if one.decode().removeprefix("loc:@") in names]
            node.attr["_class"].list.s[:] = places
            if not places:
                del node.attr["_class"]
        return part


def _element_spec(tensors: Sequence[Any], leading_axes: tuple[int | None, ...] = ()) -> Any:
    """Returns the spec of an element of these tensors, with additional leading axes; of one tensor alone, its own."""
    specs = specs_of(tensors, leading_axes)
    return tuple(specs) if len(specs) > 1 else specs[0]


_IDLE = frozenset({"Identity", "NoOp", "Placeholder"})


def first_varying_op(whole: SplittableFunction) -> tuple[int, SplitPosition]:
    """Returns the first op that draws random numbers or calls Python, itself or in a function it calls.

    Returns:
        Its index, and which of the two it does; if both, it draws.

    Raises:
        CannotSplit: no op does either.
    """
    library = {function.signature.name: function.node_def for function in whole.graph.as_graph_def().library.function}

    def called_by(node: Any) -> list[Any]:
        return [inner for name in called_functions(node) for inner in library.get(name, ())]

    for place, op in enumerate(whole.ops):
        kinds = {node.op for node in reachable([op.node_def], called_by)}
        if any(map(draws, kinds)):
            return place, SplitPosition.BEFORE_DRAWS
        if not kinds.isdisjoint(PYTHON_CALLS):
            return place, SplitPosition.BEFORE_PYTHON
    raise CannotSplit("its graph does not show where it draws random numbers or calls Python")
