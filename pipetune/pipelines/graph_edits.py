"""Pieces of edits to a traced function's graph: ops traced from Python, and nodes that take the place of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private


def replacement_node(node: Any, op: str, inputs: Sequence[str], **types: int) -> Any:
    """Returns a node of type `op` with the name and the control inputs of `node`; `types` are its dtype attributes."""
    made = tf.compat.v1.NodeDef(name=node.name, op=op, device=node.device)
    made.input.extend([*inputs, *(name for name in node.input if name.startswith("^"))])
    for name, kind in types.items():
        made.attr[name].type = kind
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

        self.traced = tensorflow_private.data_function(
            body, [tf.TensorSpec(like[place].shape, like[place].dtype) for place in fed]
        )
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
