"""Rebuilds a traced function from some of its ops, or from replacements for them, with the same captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from pipetune.tf import private


def rebuilt(
    graph: Any,
    graph_def: Any,
    outputs: Sequence[Any],
    *,
    given: Sequence[Any] | None = None,
    rows: tuple[int | None, ...] = (),
) -> Any:
    """Returns a concrete function built from `graph_def`, with the captures of `graph`.

    Args:
        graph: the graph of the original function.
        graph_def: some ops of `graph`, or replacements for them.
        outputs: tensors of `graph`; the tensors of the same names are returned, with the same static shapes.
        given: tensors of `graph` that become the arguments; None for the arguments of `graph`.
        rows: sizes of additional leading axes of all arguments and results: (32,) or (None,) for batches.
    """
    if given is None:
        given = graph.inputs[: len(graph.inputs) - len(graph.captures)]
    specs = [tf.TensorSpec([*rows, *tensor.shape] if rows else tensor.shape, tensor.dtype) for tensor in given]
    return private.data_function(body_of(graph, graph_def, outputs, given=given, rows=rows), specs)


def body_of(
    graph: Any, graph_def: Any, outputs: Sequence[Any], *, given: Sequence[Any], rows: tuple[int | None, ...] = ()
) -> Callable[..., list[Any]]:
    """Returns the Python function that `rebuilt` traces; it imports the ops into the graph in which it is called."""
    captured = [(inner.name, outer) for outer, inner in graph.captures]
    arguments = tuple(given)

    def body(*values: Any) -> list[Any]:
        here = tf.compat.v1.get_default_graph()
        feeds = {tensor.name: value for tensor, value in zip(arguments, values, strict=True)}
        feeds |= {name: here.capture(outer) for name, outer in captured}
        present = {node.name for node in graph_def.node} | _read_by(graph_def)
        read = {name: value for name, value in feeds.items() if name.partition(":")[0] in present}
        names = [tensor.name for tensor in outputs if tensor.name not in feeds]
        made = tf.graph_util.import_graph_def(graph_def, input_map=read, return_elements=names, name="edited")
        feeds |= dict(zip(names, made, strict=True))
        results = [feeds[tensor.name] for tensor in outputs]
        for result, original in zip(results, outputs, strict=True):
            result.set_shape([*rows, *original.shape] if rows else original.shape)
        return results

    return body


def _read_by(graph_def: Any) -> set[str]:
    return {name.lstrip("^").partition(":")[0] for node in graph_def.node for name in node.input}
