"""Samples the encoded JPEGs that a traced function decodes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from pipetune.tf import private
from pipetune.tf.equality import recorded
from pipetune.tf.pipelines.crops import NoCrop
from pipetune.tf.pipelines.rebuilding import rebuilt

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's

_SAMPLED = 48  # elements examined
_FEWEST = 8  # elements that must be read in time, unless the dataset has fewer
_SECONDS = 1.0
_BYTES = 64e6
_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class Seen:
    """Encoded images from the start, the middle and the end of a function's input."""

    contents: tuple[bytes, ...]
    words: str  # for reports: "48 elements: start, middle and end"


def look_at(above: Any, traced: Any, decode: Any) -> Seen:
    """Reads the bytes that the op `decode` of a function receives for elements of the dataset `above`.

    Raises:
        NoCrop: one is not a JPEG, or too few could be read in time.
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
    """Returns the GraphDef of the ops that compute the tensor `wanted` when the tensor `known` is given."""
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
    """Returns the part of the function before the decode; it returns the encoded bytes, a scalar string."""
    graph = traced.function.graph
    concrete = rebuilt(graph, nodes_before(graph, contents), [contents])
    return private.with_function(traced, concrete, gives=tf.TensorSpec([], tf.string))
