"""Finds which of TensorFlow's graph passes change a pipeline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.errors import PipetuneError
from pipetune.core.operators import runs_pass
from pipetune.core.results import AppliedPass, OptimizationPasses
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line
from pipetune.pipelines.functions import all_nodes
from pipetune.pipelines.op_types import DATASET_OP

PASSES = (
    "noop_elimination", "shuffle_and_repeat_fusion", "map_fusion", "filter_fusion", "map_and_filter_fusion",
    "map_parallelization", "filter_parallelization", "map_and_batch_fusion", "batch_parallelization", "parallel_batch",
    "make_sloppy", "seq_interleave_prefetch", "autotune_buffer_sizes", "inject_prefetch",
)  # fmt: skip
"""Passes worth reporting, roughly in the order TensorFlow runs them; the installed version may know fewer."""

_LARGE_BYTES = 4 << 20  # largest array that stays whole in the graph
_LARGEST_GRAPH_BYTES = 32 << 20  # each pass serializes the graph again
_UNREADABLE = (tf.errors.OpError, ValueError, TypeError, AttributeError, RuntimeError, PipetuneError)
_WRAPPERS = frozenset({"OptionsDataset", "MaxIntraOpParallelismDataset", "PrivateThreadPoolDataset"})
"""Wrappers that `OptimizeDatasetV2` puts around every dataset; a running pipeline has them at its root."""
_Ops = Counter[str]
_REPORTED_ATTRIBUTES = ("deterministic", "sloppy", "parallel_copy", "legacy_autotune", "buffer_size_min")
_DESCRIPTIONS = {
    "parallel_copy=True": "elements are copied into the batch by several threads",
    "deterministic=false": "elements may come out of order",
}


def read(source: live.LivePipeline, *, limit_seconds: float = 3.0) -> OptimizationPasses:
    """Returns the passes that TensorFlow applies to this pipeline, and what each changes.

    One has fired if the graph without it would be different; its changes are those that it makes alone. Passes that
    are switched off are not tried: TensorFlow 2.21 crashes in `map_and_filter_fusion` on some pipelines. Nothing is
    run, and the user's arrays are not copied.
    """
    try:
        dataset, pipeline = _with_small_sources(source), source.pipeline
        size = len(tensorflow_private.serialized_graph(dataset))
        if size > _LARGEST_GRAPH_BYTES:
            return OptimizationPasses(note=f"Not checked: the graph holds {size >> 20} MiB of constants.")

        def ops(passes: Sequence[str], autotune: bool = pipeline.options.get("autotune.enabled") is not False) -> _Ops:
            return _dataset_ops(tensorflow_private.with_graph_passes(dataset, tuple(passes), autotune=autotune))

        in_force = [name for name in PASSES if runs_pass(pipeline.options, name)]
        written, together = ops((), autotune=True), ops(in_force)
        end = time.perf_counter() + limit_seconds
        found: list[AppliedPass] = []
        for name in in_force:
            if time.perf_counter() > end:
                return OptimizationPasses(tuple(found), "The time limit was reached before all passes were checked.")
            without = ops([other for other in in_force if other != name])
            if without != together:
                found.append(AppliedPass(name, _changes(written, ops([name])) or _changes(without, together)))
    except _UNREADABLE as error:
        return OptimizationPasses(note=f"TensorFlow's passes could not be checked: {first_line(error)}")
    return OptimizationPasses(tuple(found))


def _with_small_sources(source: live.LivePipeline) -> Any:
    """Returns the dataset with large source arrays cut to one element, because a graph holds them as constants."""
    given = {}
    for node in source.pipeline:
        original = source.datasets[node.id]
        if node.op in ("from_tensor_slices", "from_tensors") and _array_bytes(original) > _LARGE_BYTES:
            for element in original.take(1):
                given[node.id] = tf.data.Dataset.from_tensors(element)
    return replay.replay(source, source.pipeline, replacements=given) if given else source.dataset


def _array_bytes(dataset: Any) -> int:
    return sum(
        (tensor.shape.num_elements() or 0) * max(tensor.dtype.size, 8 if tensor.dtype == tf.string else 1)
        for tensor in tensorflow_private.source_tensors(dataset)
    )


def _dataset_ops(dataset: Any) -> _Ops:
    """Counts the dataset ops of the graph and of its functions, each with the attributes that passes set."""
    graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
    datasets = (node for node in all_nodes(graph) if DATASET_OP.search(node.op) and node.op not in _WRAPPERS)
    return Counter(map(_describe_node, datasets))


def _describe_node(node: Any) -> str:
    parts = [DATASET_OP.sub("", node.op)]
    for name in filter(node.attr.__contains__, _REPORTED_ATTRIBUTES):
        value = getattr(node.attr[name], node.attr[name].WhichOneof("value"))
        parts.append(f"{name}={value.decode() if isinstance(value, bytes) else value}")
    return " ".join(parts)


def _changes(before: _Ops, after: _Ops) -> tuple[str, ...]:
    """Describes which operators a pass removed, replaced and added."""
    out, new = list((before - after).elements()), list((after - before).elements())
    removed, added = (sorted(text.split()[0] for text in texts) for texts in (out, new))
    if removed == added:  # empty if nothing changed
        changed = {attribute for text in new for attribute in text.split()[1:]}
        changed -= {attribute for text in out for attribute in text.split()[1:]}
        return tuple(_DESCRIPTIONS.get(attribute, attribute) for attribute in sorted(changed))
    before_text, after_text = " and ".join(removed), " and ".join(added)
    if not removed or not added:
        return (f"{after_text} added" if added else f"{before_text} removed",)
    return (f"{before_text} become{'s' if len(removed) == 1 else ''} {after_text}",)
