"""Finds which of TensorFlow's graph passes change a pipeline; each is run alone on the original graph."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.errors import PipetuneError
from pipetune.core.operators import DEFAULT_PASSES, passes_in_force
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import OptimizationPasses, PassReason, PassResult, PassState
from pipetune.model.optimization_reasons import unchanged_reasons
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line

PASSES = (
    "noop_elimination",
    "shuffle_and_repeat_fusion",
    "map_fusion",
    "filter_fusion",
    "map_and_filter_fusion",
    "map_parallelization",
    "filter_parallelization",
    "map_and_batch_fusion",
    "batch_parallelization",
    "parallel_batch",
    "make_sloppy",
    "seq_interleave_prefetch",
    "autotune_buffer_sizes",
    "inject_prefetch",
)
"""Passes worth reporting, roughly in the order TensorFlow runs them; the installed version may know fewer."""

_LARGE_BYTES = 4 << 20  # largest array that stays whole in the graph
_LARGEST_GRAPH_BYTES = 32 << 20  # each pass serializes the graph again
_UNREADABLE = (tf.errors.OpError, ValueError, TypeError, AttributeError, RuntimeError, PipetuneError)
_WRAPPERS = frozenset({"OptionsDataset", "MaxIntraOpParallelismDataset", "PrivateThreadPoolDataset"})
"""Wrappers that `OptimizeDatasetV2` puts around every dataset; a running pipeline has them at its root."""
_KERNEL = re.compile(r"Dataset(V\d+)?$")
_REPORTED_ATTRIBUTES = ("deterministic", "sloppy", "parallel_copy", "legacy_autotune", "buffer_size_min")
_DESCRIPTIONS = {
    "parallel_copy=True": "elements are copied into the batch by several threads",
    "deterministic=false": "elements may come out of order",
}


def read(source: live.LivePipeline, *, limit_seconds: float = 3.0) -> OptimizationPasses:
    """Returns what every pass does to this pipeline; nothing is run, and the user's arrays are not copied.

    An active pass has fired if the graph without it would be different; its changes are those that it makes alone. An
    inactive pass is run alone on the original graph.
    """
    try:
        dataset = _with_small_sources(source)
        size = len(tensorflow_private.serialized_graph(dataset))
        if size > _LARGEST_GRAPH_BYTES:
            return OptimizationPasses(note=f"Not checked: the graph holds {size >> 20} MiB of constants.")
        written = _dataset_ops(tensorflow_private.with_graph_passes(dataset, (), autotune=True))
        known = installed_passes()
        in_force = passes_in_force(source.pipeline.options, known)
        together = _dataset_ops(
            tensorflow_private.with_graph_passes(dataset, in_force, autotune=_autotune_enabled(source.pipeline))
        )
        end = time.perf_counter() + limit_seconds
        found: list[PassResult] = []
        for name in known:
            if time.perf_counter() > end:
                return OptimizationPasses(tuple(found), "The time limit was reached before all passes were checked.")
            found.append(_result(name, source, dataset, written, together, in_force))
    except _UNREADABLE as error:
        return OptimizationPasses(note=f"TensorFlow's passes could not be checked: {first_line(error)}")
    order = {PassState.FIRED: 0, PassState.IDLE: 1, PassState.WOULD_FIRE: 2, PassState.OFF: 3}
    return OptimizationPasses(tuple(sorted(found, key=lambda one: order[one.state])))


def installed_passes() -> tuple[str, ...]:
    """Returns those of `PASSES` that the installed TensorFlow has, by their option or their effect on a small pipeline.

    TensorFlow silently ignores names of passes that it does not know.
    """
    optional = tf.data.Options().experimental_optimization
    probe = tf.data.Dataset.range(4).map(lambda x: x + 1, num_parallel_calls=2).batch(2).prefetch(1)
    plain = _dataset_ops(tensorflow_private.with_graph_passes(probe, (), autotune=True))
    return tuple(
        name
        for name in PASSES
        if hasattr(optional, name)
        or _dataset_ops(tensorflow_private.with_graph_passes(probe, (name,), autotune=True)) != plain
    )


def _result(
    name: str,
    source: live.LivePipeline,
    dataset: Any,
    written: Counter[str],
    together: Counter[str],
    in_force: tuple[str, ...],
) -> PassResult:
    on = name in in_force
    autotune = _autotune_enabled(source.pipeline)
    try:
        others = tuple(other for other in in_force if other != name)
        without = (
            _dataset_ops(tensorflow_private.with_graph_passes(dataset, others, autotune=autotune)) if on else together
        )
        alone = _dataset_ops(tensorflow_private.with_graph_passes(dataset, (name,), autotune=autotune))
        before, after = (without, together) if on else (written, alone)
    except tf.errors.OpError as error:
        why = PassReason("", f"TensorFlow fails when it runs this pass here: {first_line(error)}")
        return PassResult(name, name in DEFAULT_PASSES, PassState.OFF, reasons=(why,))
    changed = before != after
    state = (
        (PassState.FIRED if changed else PassState.IDLE) if on else (PassState.WOULD_FIRE if changed else PassState.OFF)
    )
    reasons = unchanged_reasons(name, source.pipeline, in_force=on, stateful=_stateful_ops(source.pipeline))
    if state is PassState.FIRED:  # operators left unchanged nevertheless; inject_prefetch is all or nothing
        reasons = tuple(reason for reason in reasons if reason.node and name != "inject_prefetch")
    if state is PassState.IDLE and alone != written:
        reasons = (PassReason("", "another pass makes the same change"), *reasons)
    return PassResult(
        name=name,
        by_default=name in DEFAULT_PASSES,
        state=state,
        changes=_changes(written, alone) or _changes(before, after) if changed else (),
        reasons=reasons,
    )


def _autotune_enabled(pipeline: Pipeline) -> bool:
    return pipeline.options.get("autotune.enabled") is not False


def _stateful_ops(pipeline: Pipeline) -> Mapping[str, tuple[str, ...]]:
    """Maps node ids to the ops of their functions that TensorFlow registers as stateful, except function calls."""
    calls = ("PartitionedCall", "StatefulPartitionedCall", "Assert", "If", "While", "Case", "StatelessIf")
    return {
        node.id: tuple(
            kind for kind in node.function.operations if kind not in calls and tensorflow_private.op_is_stateful(kind)
        )
        for node in pipeline
        if node.function is not None
    }


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
    total = 0
    for tensor in tensorflow_private.source_tensors(dataset):
        count = tensor.shape.num_elements() if tensor.shape is not None else None
        total += (count or 0) * max(tensor.dtype.size, 8 if tensor.dtype == tf.string else 1)
    return total


def _dataset_ops(dataset: Any) -> Counter[str]:
    """Counts the dataset ops of the graph and of its functions, each with the attributes that passes set."""
    graph = tf.compat.v1.GraphDef.FromString(tensorflow_private.serialized_graph(dataset))
    found: Counter[str] = Counter()
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        if _KERNEL.search(node.op) and node.op not in _WRAPPERS:
            found[_describe_node(node)] += 1
    return found


def _describe_node(node: Any) -> str:
    parts = []
    for name in _REPORTED_ATTRIBUTES:
        if name in node.attr:
            kind = node.attr[name].WhichOneof("value")
            value = getattr(node.attr[name], kind)
            parts.append(f"{name}={value.decode() if kind == 's' else value}")
    return " ".join([_KERNEL.sub("", node.op), *parts])


def _changes(before: Counter[str], after: Counter[str]) -> tuple[str, ...]:
    """Describes which operators a pass removed, replaced and added."""
    out, new = list((before - after).elements()), list((after - before).elements())
    removed, added = [text.split()[0] for text in out], [text.split()[0] for text in new]
    if not removed and not added:
        return ()
    if sorted(removed) == sorted(added):
        changed = {attribute for text in new for attribute in text.split()[1:]}
        changed -= {attribute for text in out for attribute in text.split()[1:]}
        return tuple(_DESCRIPTIONS.get(attribute, attribute) for attribute in sorted(changed))
    if not removed:
        return (f"{' and '.join(sorted(added))} added",)
    if not added:
        return (f"{' and '.join(sorted(removed))} removed",)
    return (f"{' and '.join(sorted(removed))} become{'s' if len(removed) == 1 else ''} {' and '.join(sorted(added))}",)
