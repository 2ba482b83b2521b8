"""Probes whether the graphs of functions could be edited, and whether a map accepts an edited function; whether
functions that decode JPEGs could decode only the window they crop, or at a smaller scale."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import CropDecoding, FunctionFacts, FunctionVariant, ProbeResult, ScaledDecoding
from pipetune.core.measurement import percent
from pipetune.core.pipeline import Node, Pipeline
from pipetune.equality import sharing
from pipetune.pipelines import functions, live
from pipetune.pipelines.decode_and_crop import DecodeUse, applies, find_crop, find_resize
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.graphs import CannotEdit, graph_edit, graph_with, reachable, rebuild_function


def annotate_maps(
    source: live.LivePipeline,
    pipeline: Pipeline,
    field: str,
    probe: Callable[[live.LivePipeline, Node], ProbeResult],
    applies: Callable[[FunctionFacts], bool],
) -> Pipeline:
    """Returns `pipeline` with the functions of its maps annotated with what a probe finds.

    Args:
        source: the live pipeline.
        pipeline: that of `source`, with or without other annotations.
        field: of `FunctionFacts`, which holds the result.
        probe: examines the function of a map.
        applies: whether a function is examined.
    """
    facts: dict[str, FunctionFacts] = {}
    for node in pipeline:
        if node.op == "map" and node.inputs and node.function is not None and applies(node.function):
            found: Any = {field: probe(source, node)}
            facts[node.id] = replace(node.function, **found)
    return pipeline.with_functions(facts)


@unknown_on_error(ProbeResult)
def probe_edit(source: live.LivePipeline, node: Node, form: FunctionVariant) -> ProbeResult:
    """Returns whether the function of the map `node` has a variant that the map accepts, or why not."""
    try:
        edited = graph_edit(form).edit_graph(source.datasets[node.id]._map_func)
        with tensorflow_private.reusing_traced_functions():
            mapped = source.datasets[node.inputs[0]].map(edited)
    except CannotEdit as reason:
        return ProbeResult(str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return ProbeResult(f"its graph cannot be changed ({type(error).__name__})")
    if mapped.element_spec != source.datasets[node.id].element_spec:
        return ProbeResult("its static shapes would be lost")
    return ProbeResult(digest=functions.read_facts(mapped._map_func).digest)


_SAMPLED = 48  # elements examined
_MIN_SAMPLED = 8  # elements that must be read in time, unless the dataset has fewer
_SECONDS = 1.0  # to read the sample, by judgement: with less, slow sources yield too few; more delays the analysis
_BYTES = 64e6  # of the sample, by judgement: bounds the memory it takes
_JPEG = b"\xff\xd8\xff"


def _sample_jpegs(upstream: Any, traced: Any, decode: Any) -> tuple[tuple[bytes, ...], str]:
    """Returns the bytes that the op `decode` of a function receives for a sample of the dataset `upstream`.

    They are from its start, middle and end; also returns how many, for reports: "48 elements: start, middle and end".
    Raises if one is not a JPEG, or if too few could be read in time.
    """
    graph, data = traced.function.graph, decode.inputs[0]
    part, spec = rebuild_function(graph, _subgraph(graph, data), [data]), tf.TensorSpec([], tf.string)
    with tensorflow_private.reusing_traced_functions():
        encoded = upstream.map(tensorflow_private.with_function(traced, part, output_spec=spec))
    found = sharing.record(encoded, count=_SAMPLED, deadline=time.monotonic() + _SECONDS, max_bytes=_BYTES)
    (elements,) = found.passes
    if not elements:
        raise CannotEdit("no element could be read" + (f" ({found.error})" if found.error else ""))
    contents = tuple(element.numpy() for element in elements)
    others = sum(not one.startswith(_JPEG) for one in contents)
    if others:
        raise CannotEdit(f"{others} of the {len(contents)} elements examined are not JPEGs")
    if len(contents) < _MIN_SAMPLED and not found.complete:
        raise CannotEdit(f"only {len(contents)} elements could be read in time")
    return contents, f"{len(contents)} elements: {found.covered_part}"


def _subgraph(graph: Any, target: Any, *, stop_at: Any = None) -> Any:
    """Returns the GraphDef of the ops that compute the tensor `target` when the tensor `stop_at` is given."""

    def read(op: Any) -> list[Any]:
        above = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
        return [one for one in above if stop_at is None or one is not stop_at.op]

    needed = {op.name for op in reachable([target.op], read)}
    whole = graph.as_graph_def()
    return graph_with(whole, [node for node in whole.node if node.name in needed])


@unknown_on_error(CropDecoding)
def probe_crop(source: live.LivePipeline, node: Node) -> CropDecoding:
    """Returns whether the function of `node` could decode only the window it crops, or why not."""
    answer = probe_edit(source, node, FunctionVariant.DECODE_AND_CROP)
    if answer.why_not:
        return CropDecoding(answer.why_not)
    traced = source.datasets[node.id]._map_func
    try:
        _, seen = _sample_jpegs(source.datasets[node.inputs[0]], traced, find_crop(traced.function.graph).decode)
    except CannotEdit as reason:
        return CropDecoding(str(reason))
    return CropDecoding(digest=answer.digest, seen=seen)


_MAX_MEAN_DIFFERENCE = 0.1
"""Largest mean difference, as a share of the largest value; beyond it, the result counts as another image."""


def annotate_scales(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its JPEG-decoding functions annotated with whether they could decode at a lower scale."""
    return annotate_maps(source, pipeline, "shrinking", probe_scale, applies)


@unknown_on_error(ScaledDecoding)
def probe_scale(source: live.LivePipeline, node: Node) -> ScaledDecoding:
    """Returns the smallest scale that suffices for what the function of `node` resizes to, or why there is none."""
    original, above = source.datasets[node.id], source.datasets[node.inputs[0]]
    traced = original._map_func
    try:
        resize, size = find_resize(traced.function.graph)
        contents, seen = _sample_jpegs(above, traced, resize.decode)
        ratio = _largest_ratio(size, contents)
        most, mean = _pixel_difference(traced.function.graph, resize, ratio, contents)
        with tensorflow_private.reusing_traced_functions():
            mapped = above.map(decode_at_scale(traced, ratio))
    except CannotEdit as reason:
        return ScaledDecoding(why_not=str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return ScaledDecoding(why_not=f"its graph cannot be changed ({type(error).__name__})")
    if mapped.element_spec != original.element_spec:
        return ScaledDecoding(why_not="its shapes would not be known any more")
    if mean > _MAX_MEAN_DIFFERENCE:
        why = f"what it resizes to would be {percent(mean)} of the greatest value apart on average"
        return ScaledDecoding(why_not=why)
    return ScaledDecoding(ratio=ratio, seen=seen, most_apart=most, mean_apart=mean)


def decode_at_scale(traced: Any, ratio: int) -> Any:
    """Returns a dataset's traced function with the same ops and seeds that decodes 1/`ratio` of the rows and columns.

    Raises:
        CannotEdit: it needs the image at full scale.
    """
    graph = traced.function.graph
    resize, _ = find_resize(graph)
    graph_def = _with_ratio(graph.as_graph_def(), resize.decode, ratio)
    return tensorflow_private.with_function(traced, rebuild_function(graph, graph_def, graph.outputs))


def _with_ratio(graph_def: Any, decode: Any, ratio: int) -> Any:
    for node in graph_def.node:
        if node.name == decode.name:
            node.attr["ratio"].i = ratio
    return graph_def


def _largest_ratio(size: tuple[int, int], contents: Sequence[bytes]) -> int:
    """Returns the largest of the decoder's ratios 2, 4 and 8 that makes no image smaller than `size`; else raises."""
    shapes = [tf.io.extract_jpeg_shape(one).numpy()[:2] for one in contents]
    times = min(min(shape[0] / size[0], shape[1] / size[1]) for shape in shapes)
    fitting = [ratio for ratio in (2, 4, 8) if ratio <= times]
    if not fitting:
        raise CannotEdit(f"an image is {times:.1f} times as large as what it is resized to, and would have to be twice")
    return max(fitting)


def _pixel_difference(graph: Any, resize: DecodeUse, ratio: int, contents: Sequence[bytes]) -> tuple[float, float]:
    """Returns the largest and the mean pixel difference after the resize, as shares of the largest pixel value."""
    pairs = [_resize_function(graph, resize, scale) for scale in (1, ratio)]
    most, total, count, greatest = 0.0, 0.0, 0, 0.0
    for data in contents:
        one, other = (np.asarray(function(tf.constant(data))[0], np.float64) for function in pairs)
        distance = np.abs(one - other)
        most, greatest = max(most, float(distance.max())), max(greatest, float(np.abs(one).max()))
        total, count = total + float(distance.sum()), count + distance.size
    return (most / greatest, total / count / greatest) if greatest and count else (0.0, 0.0)


def _resize_function(graph: Any, resize: DecodeUse, ratio: int) -> Any:
    """Returns the concrete function from the bytes of an image (scalar string), decoded at 1/`ratio`, to its resize."""
    contents, resized = resize.decode.inputs[0], resize.op.outputs[0]
    graph_def = _with_ratio(_subgraph(graph, resized, stop_at=contents), resize.decode, ratio)
    return rebuild_function(graph, graph_def, [resized], arguments=[contents])
