"""Whether the functions of a pipeline that decode JPEGs could decode only what they crop, asked of graph and data."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.functions import Cropping
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.equality import recorded
from pipetune.tf.pipelines import functions, live
from pipetune.tf.pipelines.cropped import decoding_window, rebuilt
from pipetune.tf.pipelines.crops import DECODER, NoCrop, find_crop

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_SAMPLED = 48  # elements looked at
_FEWEST = 8  # of a larger number that must have been reached in time
_SECONDS = 1.0
_BYTES = 64e6
_JPEG = b"\xff\xd8\xff"


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """`pipeline` (that of `source`, told other things or not), told which functions could decode a window only."""
    told = {
        node.id: replace(node.function, cropping=ask(source, node))
        for node in pipeline
        if node.op == "map" and node.inputs and node.function is not None and DECODER in node.function.operations
    }
    return pipeline.with_functions(told)


def ask(source: live.LivePipeline, node: Node) -> Cropping:
    """What the function of `node` would be if it decoded only what it crops, or why it cannot."""
    original = source.datasets[node.id]
    try:
        edited = decoding_window(original._map_func)
        seen = _look_at_samples(source.datasets[node.inputs[0]], original._map_func)
        with private.reusing_traced_functions():
            mapped = source.datasets[node.inputs[0]].map(edited)
    except NoCrop as reason:
        return Cropping(why_not=str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # a graph that cannot be put together again
        return Cropping(why_not=f"its graph cannot be changed ({type(error).__name__})")
    if mapped.element_spec != original.element_spec:
        return Cropping(why_not="its shapes would not be known any more")
    return Cropping(digest=functions.read_facts(mapped._map_func).digest, seen=seen)


def _look_at_samples(above: Any, traced: Any) -> str:
    """What was looked at, in words: elements from the start, the middle and the end of what the function gets.

    Raises:
        NoCrop: one is not a JPEG, or none could be read.
    """
    with private.reusing_traced_functions():
        encoded = above.map(_encoded(traced))
    found = recorded.record(encoded, count=_SAMPLED, deadline=time.monotonic() + _SECONDS, max_bytes=_BYTES)
    (elements,) = found.passes
    if not elements:
        raise NoCrop("no element could be looked at" + (f" ({found.error})" if found.error else ""))
    others = sum(not element.numpy().startswith(_JPEG) for element in elements)
    if others:
        raise NoCrop(f"{others} of {len(elements)} elements looked at are no JPEG")
    if len(elements) < _FEWEST and not found.complete:
        raise NoCrop(f"no more than {len(elements)} elements could be looked at in time")
    return f"{len(elements)} elements: {found.places}"


def _encoded(traced: Any) -> Any:
    """The function as far as what it decodes: it gives the bytes."""
    graph = traced.function.graph
    contents = find_crop(graph).decode.inputs[0]
    needed, waiting = set[str](), [contents.op]
    while waiting:
        op = waiting.pop()
        if op.name not in needed:
            needed.add(op.name)
            waiting += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    graph_def = graph.as_graph_def()
    kept = [node for node in graph_def.node if node.name in needed]
    del graph_def.node[:]
    graph_def.node.extend(kept)
    concrete = rebuilt(graph, graph_def, [contents])
    return private.with_function(traced, concrete, gives=tf.TensorSpec([], tf.string))
