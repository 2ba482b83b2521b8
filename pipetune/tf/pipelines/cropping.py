"""Probes whether functions that decode JPEGs could decode only the window they crop; examines graph and data."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf

from pipetune.core.functions import Cropping
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import functions, jpegs, live
from pipetune.tf.pipelines.cropped import decoding_window
from pipetune.tf.pipelines.crops import DECODER, NoCrop, find_crop
from pipetune.tf.pipelines.guards import unknown_on_error

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its JPEG-decoding functions annotated with whether they could decode only a window.

    Args:
        pipeline: that of `source`, with or without other annotations.
    """
    told = {
        node.id: replace(node.function, cropping=ask(source, node))
        for node in pipeline
        if node.op == "map" and node.inputs and node.function is not None and DECODER in node.function.operations
    }
    return pipeline.with_functions(told)


@unknown_on_error(lambda why: Cropping(why_not=why))
def ask(source: live.LivePipeline, node: Node) -> Cropping:
    """Probes the function of `node` rewritten to decode only the window it crops; or returns why it cannot be."""
    original = source.datasets[node.id]
    try:
        edited = decoding_window(original._map_func)
        decode = find_crop(original._map_func.function.graph).decode
        seen = jpegs.look_at(source.datasets[node.inputs[0]], original._map_func, decode)
        with private.reusing_traced_functions():
            mapped = source.datasets[node.inputs[0]].map(edited)
    except NoCrop as reason:
        return Cropping(why_not=str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return Cropping(why_not=f"its graph cannot be changed ({type(error).__name__})")
    if mapped.element_spec != original.element_spec:
        return Cropping(why_not="its shapes would not be known any more")
    return Cropping(digest=functions.read_facts(mapped._map_func).digest, seen=seen.words)
