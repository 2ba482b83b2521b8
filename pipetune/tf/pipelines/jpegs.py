"""The JPEGs that a traced function decodes, looked at before they are decoded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.equality import recorded
from pipetune.tf.pipelines.crops import NoCrop
from pipetune.tf.pipelines.rebuilding import rebuilt

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_SAMPLED = 48  # elements looked at
_FEWEST = 8  # of a larger number that must have been reached in time
_SECONDS = 1.0
_BYTES = 64e6
_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class Seen:
    """Images from the start, the middle and the end of what a function gets."""

    contents: tuple[bytes, ...]
    words: str  # "48 elements: start, middle and end"


def look_at(above: Any, traced: Any, decode: Any) -> Seen:
    """The bytes that the op `decode` of a function gets for elements of the dataset `above`.

    Raises:
        NoCrop: one is not a JPEG, or none could be read.
    """
    with private.reusing_traced_functions():
        encoded = above.map(_encoded(traced, decode.inputs[0]))
    found = recorded.record(encoded, count=_SAMPLED, deadline=time.monotonic() + _SECONDS, max_bytes=_BYTES)
    (elements,) = found.passes
    if not elements:
        raise NoCrop("no element could be looked at" + (f" ({found.error})" if found.error else ""))
    contents = tuple(element.numpy() for element in elements)
    others = sum(not one.startswith(_JPEG) for one in contents)
    if others:
        raise NoCrop(f"{others} of {len(contents)} elements looked at are no JPEG")
    if len(contents) < _FEWEST and not found.complete:
        raise NoCrop(f"no more than {len(contents)} elements could be looked at in time")
    return Seen(contents, f"{len(contents)} elements: {found.places}")


def nodes_before(graph: Any, wanted: Any, *, known: Any = None) -> Any:
    """The graph as far as the tensor `wanted` needs it, without what the tensor `known` needs."""
    needed, waiting = set[str](), [wanted.op]
    while waiting:
        op = waiting.pop()
        if op.name not in needed and (known is None or op is not known.op):
            needed.add(op.name)
            waiting += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    graph_def = graph.as_graph_def()
    kept = [node for node in graph_def.node if node.name in needed]
    del graph_def.node[:]
    graph_def.node.extend(kept)
    return graph_def


def _encoded(traced: Any, contents: Any) -> Any:
    """The function as far as what it decodes: it gives the bytes."""
    graph = traced.function.graph
    concrete = rebuilt(graph, nodes_before(graph, contents), [contents])
    return private.with_function(traced, concrete, gives=tf.TensorSpec([], tf.string))
