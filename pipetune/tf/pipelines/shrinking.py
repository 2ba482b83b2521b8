"""Probes whether functions that decode and resize JPEGs could decode at a smaller scale; examines graph and data.

The decoder can save work by decoding only half, a quarter or an eighth of each side. The resized image is then a
different one, close to the original: this is only advice, and the author decides. The difference is measured on images
from the start, the middle and the end of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.functions import Shrinking
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import jpegs, live
from pipetune.tf.pipelines.crops import DECODER, NoCrop, Resize, find_resize
from pipetune.tf.pipelines.guards import unknown_on_error
from pipetune.tf.pipelines.rebuilding import rebuilt

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's

_MOST_APART_ON_AVERAGE = 0.1
"""Largest mean difference, as a share of the largest value; beyond it, the result counts as another image."""


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its JPEG-decoding functions annotated with whether they could decode at a smaller scale.

    Args:
        pipeline: that of `source`, with or without other annotations.
    """
    told = {
        node.id: replace(node.function, shrinking=ask(source, node))
        for node in pipeline
        if node.op == "map" and node.inputs and node.function is not None and DECODER in node.function.operations
    }
    return pipeline.with_functions(told)


@unknown_on_error(lambda why: Shrinking(why_not=why))
def ask(source: live.LivePipeline, node: Node) -> Shrinking:
    """Probes for the smallest scale that is large enough for what the function of `node` resizes to; or why none is."""
    original, above = source.datasets[node.id], source.datasets[node.inputs[0]]
    traced = original._map_func
    try:
        resize = find_resize(traced.function.graph)
        seen = jpegs.look_at(above, traced, resize.decode)
        ratio = _largest_ratio(resize.size, seen.contents)
        most, mean = _apart(traced.function.graph, resize, ratio, seen.contents)
        with private.reusing_traced_functions():
            mapped = above.map(decoding_smaller(traced, ratio))
    except NoCrop as reason:
        return Shrinking(why_not=str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return Shrinking(why_not=f"its graph cannot be changed ({type(error).__name__})")
    if mapped.element_spec != original.element_spec:
        return Shrinking(why_not="its shapes would not be known any more")
    if mean > _MOST_APART_ON_AVERAGE:
        return Shrinking(why_not=f"what it resizes to would be {mean:.0%} of the greatest value apart on average")
    return Shrinking(ratio=ratio, seen=seen.words, most_apart=most, mean_apart=mean)


def decoding_smaller(traced: Any, ratio: int) -> Any:
    """Returns a dataset's traced function with the same ops and seeds that decodes 1/`ratio` of the rows and columns.

    Raises:
        NoCrop: it needs the image at full scale.
    """
    graph = traced.function.graph
    graph_def = _scaled(graph.as_graph_def(), find_resize(graph).decode, ratio)
    return private.with_function(traced, rebuilt(graph, graph_def, graph.outputs))


def _scaled(graph_def: Any, decode: Any, ratio: int) -> Any:
    for node in graph_def.node:
        if node.name == decode.name:
            node.attr["ratio"].i = ratio
    return graph_def


def _largest_ratio(size: tuple[int, int], contents: Sequence[bytes]) -> int:
    """Returns the largest of the decoder's ratios 2, 4 and 8 that makes no image smaller than the resize target.

    Args:
        size: height and width of the resize target.

    Raises:
        NoCrop: there is none.
    """
    shapes = [tf.io.extract_jpeg_shape(one).numpy()[:2] for one in contents]
    times = min(min(shape[0] / size[0], shape[1] / size[1]) for shape in shapes)
    fitting = [ratio for ratio in (2, 4, 8) if ratio <= times]
    if not fitting:
        raise NoCrop(f"an image is {times:.1f} times as large as what it is resized to, and would have to be twice")
    return max(fitting)


def _apart(graph: Any, resize: Resize, ratio: int, contents: Sequence[bytes]) -> tuple[float, float]:
    """Returns the largest and the mean pixel difference after the resize, as shares of the largest pixel value."""
    pairs = [_resizing(graph, resize, scale) for scale in (1, ratio)]
    most, total, count, greatest = 0.0, 0.0, 0, 0.0
    for data in contents:
        one, other = (np.asarray(function(tf.constant(data))[0], np.float64) for function in pairs)
        distance = np.abs(one - other)
        most, greatest = max(most, float(distance.max())), max(greatest, float(np.abs(one).max()))
        total, count = total + float(distance.sum()), count + distance.size
    return (most / greatest, total / count / greatest) if greatest and count else (0.0, 0.0)


def _resizing(graph: Any, resize: Resize, ratio: int) -> Any:
    """Returns the concrete function from the bytes of an image (scalar string), decoded at 1/`ratio`, to its resize."""
    contents, resized = resize.decode.inputs[0], resize.op.outputs[0]
    graph_def = _scaled(jpegs.nodes_before(graph, resized, known=contents), resize.decode, ratio)

    def body(data: Any) -> list[Any]:
        names = {contents.name: data}
        return list(tf.graph_util.import_graph_def(graph_def, input_map=names, return_elements=[resized.name], name=""))

    return private.data_function(body, [tf.TensorSpec([], tf.string)])
