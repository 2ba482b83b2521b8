"""What TensorFlow chooses by itself: the values of AUTOTUNE per operator, read from the runtime's own model while a
pipeline runs, and the graph passes that change a pipeline."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.errors import PipetuneError
from pipetune.core.operators import FLATTENING, runs_pass
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.results import BUFFER_SIZE, PARALLELISM, AppliedPass, AutotuneValues, OptimizationPasses, TunedValue
from pipetune.measure.profiler import ADDED_OPERATORS, runtime_names, upstream_of
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line
from pipetune.pipelines.functions import all_nodes
from pipetune.pipelines.gathering import array_bytes
from pipetune.pipelines.graphs import DATASET_OP
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators, iterating

_POLL_SECONDS = 0.05  # between two readings, by judgement: longer dates a change less exactly, shorter costs time
_STABLE_SECONDS = 0.8  # AUTOTUNE optimizes every 10 ms at first, then doubles the period each time, up to 60 s
_MODELS_KEPT = 8  # latest readings, by judgement: enough to find one in which no operator is missing between epochs
_STABLE_SHARE = 0.3  # of the observed time: values that have not changed for this long count as converged

_NO_MODEL = (
    "TensorFlow's runtime has no model of this pipeline: AUTOTUNE is disabled, or the pipeline runs in another process."
)


class ParameterLog:
    """Record of the runtime's parameters over time: call `poll` repeatedly and `reading` at the end."""

    def __init__(self, *, repeated: bool, divided: bool = False) -> None:
        """Describes the operators that run downstream of the pipeline itself.

        Args:
            repeated: whether the window added the outermost repeat, after which TensorFlow inserts a prefetch.
            divided: whether a strategy divides and prefetches the elements, downstream of all that.
        """
        self._repeated, self._divided = repeated, divided
        self._started: float | None = None
        self._models: deque[Any] = deque(maxlen=_MODELS_KEPT)
        self._first: dict[tuple[int, str], float] = {}
        self._last: dict[tuple[int, str], float] = {}
        self._moved: dict[tuple[int, str], float] = {}
        self.seconds = 0.0

    def poll(self, iterator: Any) -> None:
        """Reads the current parameters; the clock of the log starts at the first call."""
        now = time.perf_counter()
        if self._started is None:
            self._started = now
        try:
            model = tf.data.experimental.get_model_proto(iterator)
        except (tf.errors.OpError, ValueError):
            return
        self._models.append(model)
        self.seconds = now - self._started
        for number, node in model.nodes.items():
            for one in node.parameters:
                key, value = (number, one.name), windows.effective_value(one)
                self._first.setdefault(key, value)
                if self._last.get(key, value) != value:
                    self._moved[key] = self.seconds
                self._last[key] = value

    @property
    def stable_seconds(self) -> float:
        """Seconds since a parallelism value last changed."""
        moved = [when for (_, name), when in self._moved.items() if name == PARALLELISM]
        return self.seconds - max(moved, default=0.0)

    def reading(self, pipeline: Pipeline) -> AutotuneValues:
        """Returns the recorded values, each with the operator of `pipeline` it belongs to."""
        if not self._models:
            return AutotuneValues(note=_NO_MODEL)
        model, chain = self._fullest(pipeline)
        found = []
        kernels: dict[str, str] = {}
        for number, node_id in chain:
            runtime = model.nodes[number]
            if node_id:
                kernels[node_id] = runtime.name
            for one in runtime.parameters:
                if one.name not in (PARALLELISM, BUFFER_SIZE):
                    continue
                key = (number, one.name)
                found.append(
                    TunedValue(
                        node=node_id,
                        kernel=runtime.name,
                        parameter=one.name,
                        value=windows.effective_value(one),
                        low=float(one.min),
                        high=float(one.max),
                        tunable=bool(one.tunable),
                        first=self._first.get(key),
                        moved_seconds=self._moved.get(key),
                    )
                )
        still = self.stable_seconds >= min(_STABLE_SECONDS, _STABLE_SHARE * self.seconds)
        return AutotuneValues(tuple(found), self.seconds, still and self.seconds > 0, kernels=kernels)

    def _fullest(self, pipeline: Pipeline) -> tuple[Any, list[tuple[int, str]]]:
        """Returns the recent model with the most operators, the newest of equals: between epochs some are missing."""
        looks: list[tuple[Any, list[tuple[int, str]]]] = []
        for model in reversed(self._models):
            top = int(model.output)
            if self._divided:  # a strategy divides elements by a rebatch
                top = upstream_of(model, top, lambda name: name.startswith("Rebatch"))
            if self._repeated:  # by the window: the pipeline itself is upstream of that
                top = upstream_of(model, top, lambda name: name in runtime_names("repeat"))
            looks.append((model, list(_chain(model, pipeline, top))))
        return max(looks, key=lambda look: len({node_id for _, node_id in look[1]}))


def log_parameters(dataset: Any, *, seconds: float) -> ParameterLog:
    """Consumes `dataset` until its parallelism values are stable, and returns the log of its parameters.

    Args:
        dataset: the dataset; it is repeated indefinitely.
        seconds: longest observation; the shortest is half of it.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    free_iterators()
    log = ParameterLog(repeated=not windows.is_endless(dataset))
    with windows.as_run_failed(), iterating(windows.repeat_forever(dataset)) as iterator:
        next(iterator)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            log.poll(iterator)
            if log.stable_seconds >= _STABLE_SECONDS and log.seconds >= seconds / 2:
                break
            windows.consume(iterator, _POLL_SECONDS, fewest=0)
        log.poll(iterator)
    return log


def _chain(model: Any, pipeline: Pipeline, top: int) -> Iterator[tuple[int, str]]:
    """Yields runtime nodes from the output upstream, each with the operator it runs; '' for one that TensorFlow added.

    A kernel that fuses two operators counts for the upstream one; the other is skipped. The walk ends at the first node
    without a match, so that no value is shown under a wrong operator.
    """
    todo: list[tuple[int, str]] = [(top, pipeline.output.id)]
    while todo:
        number, node_id = todo.pop()
        runtime = model.nodes[number]
        fitting = _fitting(runtime.name, pipeline, node_id)
        if fitting is None:
            if runtime.name in ADDED_OPERATORS:
                yield number, ""
                todo.extend((above, node_id) for above in runtime.inputs)
            continue
        node, nexts = fitting
        yield number, node.id
        if len(nexts) == 1 and node.op not in FLATTENING:
            todo.extend((above, nexts[0]) for above in runtime.inputs)
        elif len(nexts) == len(runtime.inputs):
            todo.extend(zip(runtime.inputs, nexts, strict=True))
        elif node.op in FLATTENING:  # its input is listed among the readers it opened
            todo.extend(
                (above, name)
                for name in nexts
                for above in runtime.inputs
                if model.nodes[above].name in (*runtime_names(pipeline[name].op), *ADDED_OPERATORS)
            )


def _fitting(kernel: str, pipeline: Pipeline, node_id: str) -> tuple[Node, tuple[str, ...]] | None:
    """Returns the operator at or upstream of `node_id` that `kernel` runs, with its inputs; None if there is none."""
    node = pipeline[node_id]
    while node.op in _WITHOUT_ITERATOR and kernel not in runtime_names(node.op) and len(node.inputs) == 1:
        node = pipeline[node.inputs[0]]
    if kernel == "MapAndBatch" and node.op == "batch":
        above = pipeline[node.inputs[0]]
        return (above, above.inputs) if above.op == "map" else None
    if kernel.startswith("ShuffleAndRepeat") and node.op == "repeat":
        above = pipeline[node.inputs[0]]
        return (above, above.inputs) if above.op == "shuffle" else None
    if kernel in runtime_names(node.op):
        return node, node.inputs
    return None


_WITHOUT_ITERATOR = frozenset({"with_options", "assert_cardinality", "cache"})


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


def read_passes(source: live.LivePipeline, *, limit_seconds: float = 3.0) -> OptimizationPasses:
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
        if node.op in ("from_tensor_slices", "from_tensors") and array_bytes(original) > _LARGE_BYTES:
            for element in original.take(1):
                given[node.id] = tf.data.Dataset.from_tensors(element)
    return replay.replay(source, source.pipeline, replacements=given) if given else source.dataset


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
