"""Probes whether functions only pad elements, which a padded batch could do."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf

from pipetune.core.functions import Padding
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.functions import VALUE_CHECKS
from pipetune.pipelines.pad_batches import require_padding
from pipetune.pipelines.terms import CannotProve
from pipetune.probes.batches import batched, downstream_batch

_PADS = frozenset({"Pad", "PadV2"})
_OTHER_CHECKS = VALUE_CHECKS - {"EnsureShape"}  # a padded batch checks shapes


def annotate_padding(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions that pad annotated with whether they do nothing else."""
    facts = {}
    for node in pipeline:
        batch = downstream_batch(pipeline, node)
        if node.op == "map" and node.function is not None and batch is not None and _PADS & {*node.function.operations}:
            facts[node.id] = replace(node.function, padding=probe_padding(source, node, batch))
    return pipeline.with_functions(facts)


@unknown_on_error(Padding)
def probe_padding(source: live.LivePipeline, node: Node, batch: Node) -> Padding:
    """Returns to what shapes the map `node` pads elements that `batch` collects, or why it does more than that."""
    given, padded = source.datasets[node.inputs[0]], source.datasets[node.id]
    if node.function is None or not node.function.stateless or _OTHER_CHECKS & {*node.function.operations}:
        return Padding("its function has state or checks values")
    before, after = (tf.nest.map_structure(lambda _: 0, one.element_spec) for one in (given, padded))
    if before != after:
        return Padding("its function gives elements of another structure")
    if not all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(given.element_spec)):
        return Padding("it gets components that are no plain tensors")
    try:
        require_padding(padded._map_func.function)
    except CannotProve as reason:
        return Padding(f"its function {reason}")
    fixed = tf.nest.map_structure(lambda part: part.shape.as_list(), padded.element_spec)
    shapes = live.shapes_text(padded.element_spec, fixed)
    if shapes is None:
        return Padding("its elements are no tensors, dicts or tuples")
    size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
    made = given.padded_batch(size, padded_shapes=fixed, drop_remainder=drops)
    if made.element_spec != batched(padded, batch).element_spec:
        return Padding("a padded batch would have other shapes")
    return Padding(shapes=shapes)
