"""Splits a traced function in two: the second part continues from the tensors that the first part returns.

The ops of a graph are in tracing order, so a cut is a number of ops, which form the first part. Results that the second
part needs are passed on, except those that do not depend on the element (constants), which both parts compute. Every op
keeps its attributes, including seeds, and its order; captured tensors are captured by the part that reads them.
`source/splitting.py` splits the source code of the function between two statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.pipelines.lifting import Lifted, lift, treats_each_number
from pipetune.tf.pipelines.rebuilding import body_of, rebuilt
from pipetune.tf.pipelines.terms import Unclear


class NoCut(Exception):
    """The function cannot be split there; the message is the last clause of a sentence about it."""


class Cuttable:
    """The graph of a traced function, and its two parts for a cut after its first `position` ops."""

    def __init__(self, traced: Any) -> None:
        self.traced = traced
        self.graph = traced.function.graph
        self.ops: list[Any] = list(self.graph.get_operations())
        self.arguments = list(self.graph.inputs[: len(self.graph.inputs) - len(self.graph.captures)])

    @cached_property
    def varying(self) -> frozenset[int]:
        """Ids of the ops whose results depend on the element, or differ from call to call."""
        found = {id(tensor.op) for tensor in self.arguments}
        for op in self.ops:
            stateful = op.type != "Placeholder" and private.op_is_stateful(op.type)
            if stateful or any(id(tensor.op) in found for tensor in op.inputs):
                found.add(id(op))
        return frozenset(found)

    def working(self, ops: Iterable[Any]) -> list[Any]:
        """Returns those of `ops` that compute something from the element."""
        return [op for op in ops if id(op) in self.varying and op.type not in _IDLE]

    def handed(self, position: int) -> list[Any]:
        """Returns the tensors passed from the first part to the second, each once, in the order they were created."""
        above = {id(op): place for place, op in enumerate(self.ops[:position])}
        wanted = [tensor for op in self.ops[position:] for tensor in op.inputs]
        found: dict[int, Any] = {}
        for tensor in (*wanted, *self.graph.outputs):
            if id(tensor.op) in above and id(tensor.op) in self.varying:
                found[id(tensor)] = tensor
        return sorted(found.values(), key=lambda tensor: (above[id(tensor.op)], tensor.value_index))

    def taken(self, position: int) -> tuple[int, ...]:
        """Returns the indices of the components of the element that are passed to the second part unchanged."""
        places = {id(tensor): place for place, tensor in enumerate(self.arguments)}
        return tuple(sorted(places[id(one)] for one in self.handed(position) if id(one) in places))

    def head(self, position: int) -> Any:
        """Returns the first part as a traced function; it returns the tensors of `handed`.

        Raises:
            NoCut: there are none, or one has a dtype that no element can hold (resource or variant).
        """
        handed = self.handed(position)
        if not handed:
            raise NoCut("nothing would be handed from its first part to its second")
        if any(tensor.dtype in (tf.resource, tf.variant) for tensor in handed):
            raise NoCut("its second part would need a handle that its first one made")
        specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in handed)
        return private.with_function(self.traced, self._head(position), gives=specs if len(specs) > 1 else specs[0])

    def tail(self, position: int) -> Any:
        """Returns the second part as a traced function from the tensors of `handed` to the results of the whole."""
        return private.with_function(self.traced, self._tail(position))

    def head_on_batches(self, position: int, rows: int | None) -> tuple[Any, Lifted]:
        """Returns the first part for whole batches, and the numerical properties of its rows.

        Args:
            rows: rows per batch, the first axis of every argument and result; None if it varies.

        Raises:
            NoCut: it is not proven to compute for each row what it computes for an element.
        """
        batched = self._head(position, rows=(rows,))
        specs = tuple(tf.TensorSpec([rows, *tensor.shape], tensor.dtype) for tensor in self.handed(position))
        gives = specs if len(specs) > 1 else specs[0]
        return private.with_function(self.traced, batched, gives=gives), _lifted(self._head(position), batched)

    def _head(self, position: int, *, rows: tuple[int | None, ...] = ()) -> Any:
        given = {id(tensor.op) for tensor in self.graph.inputs}
        return rebuilt(self.graph, self._part(self.ops[:position], leave=given), self.handed(position), rows=rows)

    def _tail(self, position: int, *, rows: tuple[int | None, ...] = ()) -> Any:
        handed = self.handed(position)
        return rebuilt(self.graph, self._tail_ops(position), self.graph.outputs, given=handed, rows=rows)

    def called_tail(self, position: int) -> Callable[..., Any]:
        """Returns the second part as a Python function with one argument for each tensor of `handed`."""
        body = body_of(self.graph, self._tail_ops(position), self.graph.outputs, given=self.handed(position))
        return lambda *handed: tf.nest.pack_sequence_as(self.traced.output_structure, body(*handed))

    def tail_on_batches(self, position: int, rows: int | None) -> tuple[Any, Lifted]:
        """Returns the second part for whole batches, and the numerical properties of its rows.

        Args:
            rows: rows per batch, the first axis of every argument and result; None if it varies.

        Raises:
            NoCut: it is not proven to compute for each row what it computes for an element.
        """
        if not all(id(tensor.op) in self.varying for tensor in self.graph.outputs):
            raise NoCut("what it gives does not depend on its element, and would come once per batch")
        if not all(tensor.shape.is_fully_defined() for tensor in self.handed(position)):
            raise NoCut("what its first part gives has no fixed shape")
        batched = self._tail(position, rows=(rows,))
        gives = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([rows, *spec.shape], spec.dtype), self.traced.output_structure
        )
        return private.with_function(self.traced, batched, gives=gives), _lifted(self._tail(position), batched)

    def _tail_ops(self, position: int) -> Any:
        above = {id(op) for op in self.ops[:position] if id(op) in self.varying}
        inputs = {id(tensor.op) for tensor in self.graph.inputs}
        return self._part(self.ops, leave=above | inputs)

    def _part(self, ops: Sequence[Any], *, leave: set[int]) -> Any:
        """Returns the GraphDef of `ops` without those in `leave` (ids).

        Control inputs and colocation constraints that name other ops are dropped: those ops have run by then, and need
        not be on the same device.
        """
        names = {op.name for op in ops if id(op) not in leave}
        graph_def = self.graph.as_graph_def()
        kept = [node for node in graph_def.node if node.name in names]
        del graph_def.node[:]
        graph_def.node.extend(kept)
        for node in graph_def.node:
            waited = [name for name in node.input if name.startswith("^") and name[1:] not in names]
            for name in waited:
                node.input.remove(name)
            places = [one for one in node.attr["_class"].list.s if one.decode().removeprefix("loc:@") in names]
            node.attr["_class"].list.s[:] = places
            if not places:
                del node.attr["_class"]
        return graph_def


def _lifted(single: Any, batched: Any) -> Lifted:
    try:
        return lift(single, batched)
    except Unclear as reason:
        raise NoCut(f"a part of it {reason}") from reason


_IDLE = frozenset({"Identity", "NoOp", "Placeholder"})


def first_draw(whole: Cuttable) -> int:
    """Returns the index of the first op that draws random numbers, itself or in a function it calls.

    Raises:
        NoCut: no op does.
    """
    library = {function.signature.name: function.node_def for function in whole.graph.as_graph_def().library.function}
    known: dict[str, bool] = {}

    def draws(nodes: Iterable[Any]) -> bool:
        return any(
            (private.op_has_seed(node.op) and private.op_is_stateful(node.op)) or any(map(called, _functions(node)))
            for node in nodes
        )

    def called(name: str) -> bool:
        if name not in known:
            known[name] = False  # a recursive call adds no new ops
            known[name] = draws(library.get(name, ()))
        return known[name]

    for place, op in enumerate(whole.ops):
        if draws([op.node_def]):
            return place
    raise NoCut("it draws where its graph does not show it")


def _functions(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        if value.WhichOneof("value") == "func":
            yield value.func.name
        yield from (function.name for function in value.list.func)


def first_of_the_end(whole: Cuttable) -> int:
    """Returns the first index from which all ops that depend on the element treat every value independently."""
    place = len(whole.ops)
    while place and (
        id(whole.ops[place - 1]) not in whole.varying or treats_each_number(whole.ops[place - 1])
    ):
        place -= 1
    return place
