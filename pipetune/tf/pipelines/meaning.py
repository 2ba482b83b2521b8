"""What a traced function computes, as text: from its results back to its input, op by op.

Two functions with equal texts compute the same from the same input, whatever their ops are called and in whatever
order they stand. Ops whose results nobody reads are left out: the functions asked about keep no state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pipetune.tf.pipelines import functions

MADE = "made"
"""In place of a component: one that the function must not read."""


class Unclear(Exception):
    """It cannot be said what a function computes; the text is the end of a sentence about it."""


def computed(function: Any, given: Sequence[str] | None) -> list[str]:
    """A text for every component that a traced function gives.

    Args:
        given: for every component of its input the text of what that is; None for the number it has.

    Raises:
        Unclear: it reads what is `MADE`, or calls functions, whose ops nobody looked at.
    """
    graph, captured = function.graph, function.captured_inputs
    count = len(graph.inputs) - len(captured)
    texts = [component(place) for place in range(count)] if given is None else list(given)
    if len(texts) != count:
        raise Unclear("gets components of which it is not known what they are")
    texts += [f"captured {id(value)}" for value in captured]
    known = {
        id(tensor): text
        for tensor, text in zip(graph.inputs, texts, strict=True)
        if tensor.op.type != "Const"  # a small tensor that was captured: what it is stands in the graph
    }

    def text(tensor: Any) -> str:
        tensor = functions.before_identity(tensor)
        if id(tensor) not in known:
            known[id(tensor)] = f"{made(tensor.op)}:{tensor.value_index}"
        if known[id(tensor)] == MADE:
            raise Unclear("reads what the map makes")
        return known[id(tensor)]

    def made(op: Any) -> str:
        attributes = [(name, value) for name, value in sorted(op.node_def.attr.items()) if name[:1] != "_"]
        if any(value.WhichOneof("value") == "func" or value.list.func for _, value in attributes):
            raise Unclear(f"calls other functions ({op.type})")
        parts = [op.type, *(f"{name}={value.SerializeToString(deterministic=True)!r}" for name, value in attributes)]
        parts += [text(one) for one in op.inputs]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    return [text(tensor) for tensor in graph.outputs]


def component(place: int) -> str:
    """The text of a component of the input that is known by its place only."""
    return f"component {place}"
