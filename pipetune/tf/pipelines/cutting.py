"""A traced function cut in two at a place among its ops: the first part gives what the second goes on from.

The ops of a graph stand in the order they were traced, so a cut is a number of ops: those are the first part's. What
the second needs of them is handed on, but for what depends on no element (constants), which both have. Every op keeps
its attributes, its seeds among them, and the order it had; captured tensors are captured by the part that reads them.
`source/splitting.py` cuts the text of the function between two statements.
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
    """The function cannot be cut there; the text is the end of a sentence about it."""


class Cuttable:
    """The graph of a traced function, and what each of its two parts is for a cut behind so many of its ops."""

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
        """Those of the ops that make something of the element."""
        return [op for op in ops if id(op) in self.varying and op.type not in _IDLE]

    def handed(self, position: int) -> list[Any]:
        """The tensors that the second part goes on from, each once, in the order they were made."""
        above = {id(op): place for place, op in enumerate(self.ops[:position])}
        wanted = [tensor for op in self.ops[position:] for tensor in op.inputs]
        found: dict[int, Any] = {}
        for tensor in (*wanted, *self.graph.outputs):
            if id(tensor.op) in above and id(tensor.op) in self.varying:
                found[id(tensor)] = tensor
        return sorted(found.values(), key=lambda tensor: (above[id(tensor.op)], tensor.value_index))

    def taken(self, position: int) -> tuple[int, ...]:
        """Which components of the element are handed on as they are, by their places."""
        places = {id(tensor): place for place, tensor in enumerate(self.arguments)}
        return tuple(sorted(places[id(one)] for one in self.handed(position) if id(one) in places))

    def head(self, position: int) -> Any:
        """The function that gives what is handed on.

        Raises:
            NoCut: nothing is, or what no element can hold.
        """
        handed = self.handed(position)
        if not handed:
            raise NoCut("nothing would be handed from its first part to its second")
        if any(tensor.dtype in (tf.resource, tf.variant) for tensor in handed):
            raise NoCut("its second part would need a handle that its first one made")
        specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in handed)
        return private.with_function(self.traced, self._head(position), gives=specs if len(specs) > 1 else specs[0])

    def tail(self, position: int) -> Any:
        """The function that goes on from what is handed on, and gives what the whole gives."""
        return private.with_function(self.traced, self._tail(position))

    def head_on_batches(self, position: int, rows: int | None) -> tuple[Any, Lifted]:
        """The first part for whole batches of so many rows, and what is known of its rows.

        Raises:
            NoCut: it is not proven to do to each row what it does to an element.
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
        """The second part as a Python function of what is handed on, one argument for each tensor."""
        body = body_of(self.graph, self._tail_ops(position), self.graph.outputs, given=self.handed(position))
        return lambda *handed: tf.nest.pack_sequence_as(self.traced.output_structure, body(*handed))

    def tail_on_batches(self, position: int, rows: int | None) -> tuple[Any, Lifted]:
        """The second part for whole batches of so many rows, and what is known of its rows.

        Raises:
            NoCut: it is not proven to do to each row what it does to an element.
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
        """The graph of these ops alone: what they waited for elsewhere is done by then, and they may stand apart."""
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
    """The place of the first op that draws random numbers, itself or in a function it calls.

    Raises:
        NoCut: none does.
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
            known[name] = False  # a function that calls itself adds nothing new
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
    """The first place from which on all ops treat every number by itself."""
    place = len(whole.ops)
    while place and (
        id(whole.ops[place - 1]) not in whole.varying or treats_each_number(whole.ops[place - 1])
    ):
        place -= 1
    return place
