"""Cuts a pipeline after each operator and makes it run in one thread: the prefixes for prefix differencing.

Nothing in a prefix works in the background: parallel operators run one call in the calling thread, prefetching is
removed, TensorFlow's optimizations are off. So prefixes do not disturb each other, the wall seconds of their operators
add up, and wall time that is not CPU time was spent waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Remove, SetArgument
from pipetune.core.operators import facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import OperatorProfile
from pipetune.model.stages import behind_cache
from pipetune.tf import private
from pipetune.tf.pipelines import live, replay

REPLAYS = True  # datasets built in calls from this module are pipetune's, not the user's

HANDS_OVER = frozenset({"repeat", "take", "skip", "prefetch", "with_options", "assert_cardinality", "ignore_errors"})
"""Operators that pass elements through unchanged: no prefix ends in one, the next one downstream gets their cost."""

_NEGLIGIBLE = 0.003  # share of the whole input's cost below which differencing cannot resolve an operator
_FILL_SECONDS = 0.3  # limit for filling a buffer or a cache
_FILL_BYTES = 32 << 20
_FILL_ELEMENTS = 1 << 16
_UNKNOWN_ELEMENTS = 128  # kept where time or size of an element is unknown
_ENDLESS = 1 << 62
_OPTIMISATIONS = (
    "apply_default_optimizations", "filter_fusion", "filter_parallelization", "inject_prefetch",
    "map_and_batch_fusion", "map_and_filter_fusion", "map_fusion", "map_parallelization", "noop_elimination",
    "parallel_batch", "seq_interleave_prefetch", "shuffle_and_repeat_fusion",
)  # fmt: skip


@dataclass
class Prefixes:
    """The prefixes of one pipeline, by the id of the operator that each ends in."""

    pipeline: Pipeline  # as run: in one thread, with smaller buffers
    datasets: Mapping[str, Any]  # by operator id
    measured: tuple[str, ...]  # operators whose cost is measured, sources first
    options: Any
    caches: Mapping[str, Any] = field(default_factory=dict)  # to be read to the end once, sources first
    ratios: dict[tuple[str, str], float] = field(default_factory=dict)  # (operator, input): elements in per element out

    def drained(self, node: str, elements: int) -> Any:
        """An endless dataset each of whose elements consumes `elements` of the prefix, inside TensorFlow."""
        return drained(self.datasets[node].repeat(), elements, self.options)

    def fill(self) -> None:
        """Reads every cache to its end, so that prefixes downstream of it see what later epochs see."""
        for cache in self.caches.values():
            for _ in drained(cache, 1 << 30, self.options):
                pass

    def visits(self, node_id: str, pipeline: Pipeline | None = None) -> dict[str, float]:
        """Elements that every operator puts out per element of `node_id`, in later epochs: none upstream of a cache.

        Given the original `pipeline`, it includes the operators that were removed for the run.
        """
        pipeline = pipeline or self.pipeline
        found = {node_id: 1.0}
        for node in reversed(pipeline.nodes):
            for name in node.inputs if node.id in found else ():
                found[name] = found.get(name, 0.0) + found[node.id] * self._ratio(pipeline, node.id, name)
        return found

    def _ratio(self, pipeline: Pipeline, node_id: str, above: str) -> float:
        while above not in self.pipeline:
            (above,) = pipeline[above].inputs
        return self.ratios[node_id, above] if node_id in self.pipeline else 1.0

    def uncounted(self) -> tuple[Node, ...]:
        """Operators that must be run to find out how many elements they take in, where that matters to a cost."""
        return tuple(
            node
            for node in self.pipeline
            if any((node.id, name) not in self.ratios and self._costs(name) for name in node.inputs)
        )

    def guess_ratios(self, operators: Mapping[str, OperatorProfile]) -> None:
        """Sets the ratios that were not counted to those of the runtime's model."""
        for node in self.pipeline:
            for name in node.inputs:
                measured = operators.get(node.id)
                if (node.id, name) not in self.ratios:
                    guess = measured.ratio if measured is not None and measured.ratio is not None else 1.0
                    self.ratios[node.id, name] = guess / len(node.inputs)

    def _costs(self, node_id: str) -> bool:
        return node_id in self.measured or any(above.id in self.measured for above in self.pipeline.upstream(node_id))


def cut(source: live.LivePipeline, operators: Mapping[str, OperatorProfile], folder: str) -> Prefixes:
    """Builds the prefixes of a live pipeline; nothing is run yet.

    Args:
        source: the live pipeline.
        operators: the quick profile, by node id: decides which operators matter, and how much may be buffered.
        folder: for the files of caches; the user's own cache files are never touched.

    Raises:
        CannotReplay: an operator cannot be rebuilt in one thread; the message names it.
    """
    estimate = _Estimate(source.pipeline, operators)
    pipeline = apply_edits(source.pipeline, _edits(source.pipeline, estimate))
    given = {
        node.id: _in_one_thread(source.datasets[node.id])
        for node in pipeline
        if node.argument("num_parallel_reads") is not None
    }
    datasets = replay.replay_nodes(source, pipeline, given=given)
    caches: dict[str, Any] = {}
    for node in pipeline:
        if node.op == "cache":
            name = os.path.join(folder, node.id) if node.argument("filename") else ""
            caches[node.id] = datasets[node.inputs[0]].take(estimate.kept(node.inputs[0])).cache(name)
            given[node.id] = caches[node.id].repeat()
            datasets = replay.replay_nodes(source, pipeline, given=given)
    first_epoch = behind_cache(pipeline)
    prefixes = Prefixes(
        pipeline=pipeline,
        datasets=datasets,
        measured=tuple(
            node.id
            for node in pipeline
            if node.op not in HANDS_OVER and (node.id in first_epoch or estimate.matters(node.id))
        ),
        options=plain_options(source.dataset),
        caches=caches,
    )
    for node in pipeline:
        for name in node.inputs:
            cached = any(above.op == "cache" for above in pipeline.upstream(node.id))
            ratio = _known_ratio(node, pipeline[name], endless=cached)
            if ratio is not None:
                prefixes.ratios[node.id, name] = ratio
    return prefixes


def drained(dataset: Any, elements: int, options: Any) -> Any:
    """Every `elements`-th element of `dataset`; the others are built and dropped inside TensorFlow.

    `shard` skips elements, and the `take` before it skips by building each of them: it has no shortcut as readers do.
    """
    return dataset.take(_ENDLESS).shard(elements, elements - 1).with_options(options)


def counted(prefixes: Prefixes, source: live.LivePipeline, node: Node) -> tuple[Any, Callable[[], dict[str, int]]]:
    """Returns the prefix that ends in `node`, and a function that reads its counters.

    The function returns the elements taken so far from each input, by its name, and under "" those put out.

    Raises:
        CannotReplay: the operator cannot be placed after one that counts.
    """
    counters = {name: tf.Variable(0, dtype=tf.int64, trainable=False) for name in ("", *node.inputs)}
    given = {name: _counting(prefixes.datasets[name], counters[name]) for name in node.inputs}
    single = Pipeline((*(prefixes.pipeline[name] for name in node.inputs), node))
    dataset = _counting(replay.replay_nodes(source, single, given=given)[node.id], counters[""])
    return dataset, lambda: {name: int(counter.numpy()) for name, counter in counters.items()}


def _counting(dataset: Any, counter: Any) -> Any:
    def count(*element: Any) -> Any:
        counter.assign_add(1)
        return element if len(element) > 1 else element[0]

    return private.restructured(dataset.map(count, synchronous=True), dataset.element_spec)


class _Estimate:
    """Estimates from the quick profile, for an operator and all operators upstream of it."""

    def __init__(self, pipeline: Pipeline, operators: Mapping[str, OperatorProfile]) -> None:
        self._pipeline, self._operators = pipeline, operators
        self._total = sum(self._seconds(node.id) or 0.0 for node in pipeline)

    def matters(self, node_id: str) -> bool:
        """Whether differencing could resolve the cost of an operator; True if nothing is known of it."""
        seconds = self._seconds(node_id)
        return seconds is None or seconds >= _NEGLIGIBLE * self._total

    def kept(self, node_id: str) -> int:
        """Number of elements of an operator that may be kept: limited by the time to build them and by memory."""
        measured = self._operators.get(node_id)
        size = measured.bytes_out if measured is not None and measured.bytes_out else None
        size = size or self._pipeline[node_id].element_bytes
        above = [other.id for other in self._pipeline.upstream(node_id)]
        seconds = sum(self._seconds(name) or 0.0 for name in (node_id, *above))
        visits = measured.visits if measured is not None else None
        limits = [_FILL_ELEMENTS]
        limits += [int(_FILL_BYTES / size)] if size else []
        limits += [int(_FILL_SECONDS * visits / seconds)] if visits and seconds else []
        return max(1, min(limits if len(limits) == 3 else [*limits, _UNKNOWN_ELEMENTS]))

    def _seconds(self, node_id: str) -> float | None:
        """Seconds per element of the whole pipeline; None if the runtime showed no such operator."""
        measured = self._operators.get(node_id)
        if measured is None or measured.visits is None or measured.cpu_seconds is None:
            return None
        return measured.visits * max(measured.cpu_seconds, measured.wall_seconds or 0.0)


def _edits(pipeline: Pipeline, estimate: _Estimate) -> list[Edit]:
    edits: list[Edit] = []
    for node in pipeline:
        if node.argument("num_parallel_calls") is not None:
            edits.append(SetArgument(node.id, "num_parallel_calls", None))
        if node.op == "prefetch":
            edits.append(Remove(node.id))
        if node.op == "shuffle":
            size, kept = node.argument("buffer_size"), estimate.kept(node.inputs[0])
            if isinstance(size, int) and size > kept:
                edits.append(SetArgument(node.id, "buffer_size", kept))
    return edits


def _in_one_thread(reader: Any) -> Any:
    """Rebuilds a reader of several files at once as one that reads them one after another."""
    return tf.data.TFRecordDataset(
        reader._filenames, compression_type=reader._compression_type, buffer_size=reader._buffer_size
    )


def plain_options(dataset: Any) -> Any:
    """The options of the whole pipeline, which apply to all of it, with every graph rewrite disabled."""
    plain = tf.data.Options()
    for name in _OPTIMISATIONS:
        setattr(plain.experimental_optimization, name, False)
    plain.experimental_slack = False
    plain.experimental_warm_start = False
    return dataset.options().merge(plain)


def _known_ratio(node: Node, above: Node, *, endless: bool) -> float | None:
    """Elements taken from `above` per element put out; None if only running it can tell.

    `endless`: the run has no last, partial batch, as downstream of the repeated sample of a cache.
    """
    if node.op == "cache":
        return 0.0
    if node.op in ("batch", "padded_batch"):
        if node.cardinality > 0 and above.cardinality > 0 and not endless:
            return above.cardinality / node.cardinality
        size = node.argument("batch_size")
        return float(size) if isinstance(size, int) else None
    made = not facts(above.op).source  # a source skips without building elements; that is the operator's own cost
    if node.op == "skip" and made and not endless and node.cardinality > 0 and above.cardinality > 0:
        return above.cardinality / node.cardinality
    if node.op == "shard":
        count = node.argument("num_shards")
        return float(count) if made and isinstance(count, int) else 1.0
    if node.op in HANDS_OVER or node.op in ("zip", "shuffle", "snapshot") or facts(node.op).count == "one-to-one":
        return 1.0
    return None
