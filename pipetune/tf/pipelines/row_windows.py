"""Detects windows over rows of in-memory arrays, built by `window` and a `flat_map` that batches each window."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pipetune.core.functions import Windows
from pipetune.core.operators import facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf.pipelines import functions, live, series

_ALLOWED = frozenset({"Placeholder", "Const", "Identity", "NoOp", "BatchDatasetV2", "ZipDataset"})


def windows_above(source: live.LivePipeline, pipeline: Pipeline, node: Node) -> Windows | None:
    """Returns the windows that a flat_map emits, over rows of arrays and all of one length; None for anything else."""
    if node.op != "flat_map" or len(node.inputs) != 1:
        return None
    window = pipeline[node.inputs[0]]
    if window.op != "window" or pipeline[window.inputs[0]].op != "from_tensor_slices":
        return None
    size, shift, stride = (window.argument(name) for name in ("size", "shift", "stride"))
    rows, windows = source.datasets[window.inputs[0]], source.datasets[node.id]
    batching = _batching(windows._map_func.function, len(tf.nest.flatten(rows.element_spec)))
    if not (isinstance(size, int) and isinstance(shift, int) and isinstance(stride, int)) or batching is None:
        return None
    batch_size, drops = batching
    if batch_size != size or not (window.argument("drop_remainder") or drops):
        return None
    lengths = {part.shape[:1].as_list()[0] for part in tf.nest.flatten(windows.element_spec)}
    same_structure = tf.nest.map_structure(lambda _: 0, windows.element_spec) == tf.nest.map_structure(
        lambda _: 0, rows.element_spec
    )
    return Windows(size, shift, stride, lengths == {size}) if same_structure and len(lengths) == 1 else None


def gets_windows(source: live.LivePipeline, node: Node) -> bool:
    """Whether the input of an operator is windows, all of one length, passed through unchanged."""
    above = source.pipeline[node.inputs[0]]
    while facts(above.op).same_elements and len(above.inputs) == 1:
        above = source.pipeline[above.inputs[0]]
    if windows_above(source, source.pipeline, above) is not None:
        return True
    return above.op in ("map", "zip") and series.read(source.datasets[above.id]) is not None


def _batching(function: Any, components: int) -> tuple[int, bool] | None:
    """Returns size and `drop_remainder` of the batch that a flat_map makes of each window; None for anything else."""
    graph = function.graph
    operations = graph.get_operations()
    if function.captured_inputs or any(op.type not in _ALLOWED for op in operations):
        return None
    batches = [op for op in operations if op.type == "BatchDatasetV2"]
    zips = [op for op in operations if op.type == "ZipDataset"]
    if len(batches) != components or len(graph.inputs) != components or len(zips) != (components > 1):
        return None
    made = [_origin(tensor) for tensor in (zips[0].inputs if zips else graph.outputs)]
    if [op.type for op in made] != ["BatchDatasetV2"] * components:
        return None
    if [_origin(op.inputs[0]) for op in made] != [tensor.op for tensor in graph.inputs]:
        return None
    if zips and [_origin(tensor) for tensor in graph.outputs] != zips:
        return None
    found = {tuple(_constant(tensor) for tensor in op.inputs[1:3]) for op in made}
    (one,) = found if len(found) == 1 else ((None, None),)
    return (int(one[0]), bool(one[1])) if None not in one else None


def _origin(tensor: Any) -> Any:
    return functions.before_identity(tensor).op


def _constant(tensor: Any) -> Any:
    value = tf.get_static_value(tensor)
    return None if value is None else value.item()
