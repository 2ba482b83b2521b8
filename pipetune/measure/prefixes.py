"""Cuts a pipeline after each operator and makes it run in one thread: the prefixes for prefix differencing.

Nothing in a prefix works in the background: parallel operators run one call in the calling thread, prefetching is
removed, TensorFlow's optimizations are off. So prefixes do not disturb each other, the wall seconds of their operators
add up, and wall time that is not CPU time was spent waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.edits import Edit, Remove, SetArgument, apply_edits
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import OperatorProfile
from pipetune.model.segments import upstream_of_cache
from pipetune.pipelines import live, replay

PASS_THROUGH_OPERATORS = frozenset(
    {"repeat", "take", "skip", "prefetch", "with_options", "assert_cardinality", "ignore_errors"}
)
"""Operators that pass elements through unchanged: no prefix ends in one, the next one downstream gets their cost."""

_NEGLIGIBLE = 0.003  # share of the whole input's cost below which differencing cannot resolve an operator
_FILL_SECONDS = 0.3  # limit for filling a buffer or a cache
_FILL_BYTES = 32 << 20  # limit for the contents of one buffer or cache, by judgement: more takes more memory
_FILL_ELEMENTS = 1 << 16  # limit for the elements of one buffer or cache, by judgement: more takes longer to fill
_UNKNOWN_ELEMENTS = 128  # elements kept if time or size of an element is unknown
_ENDLESS = 1 << 62  # elements: more than any run takes
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
    measured_nodes: tuple[str, ...]  # operators whose cost is measured, sources first
    options: Any
    caches: Mapping[str, Any] = field(default_factory=dict)  # to be read to the end once, sources first
    ratios: dict[tuple[str, str], float] = field(default_factory=dict)  # (operator, input): elements in per element out

    def every_nth(self, node: str, elements: int) -> Any:
        """Returns an endless dataset; each of its elements consumes `elements` of the prefix, inside TensorFlow."""
        return every_nth_element(self.datasets[node].repeat(), elements, self.options)

    def fill(self) -> None:
        """Reads every cache to its end, so that prefixes downstream of it see what later epochs see."""
        for cache in self.caches.values():
            for _ in every_nth_element(cache, 1 << 30, self.options):
                pass

    def visits(self, node_id: str, pipeline: Pipeline | None = None) -> dict[str, float]:
        """Returns the output elements of every operator per element of `node_id` in later epochs, by operator id.

        Operators upstream of a cache output none. Given the original `pipeline`, those removed for the run count too.
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

    def nodes_to_count(self) -> tuple[Node, ...]:
        """Returns the operators that must be run to count their input elements, because a cost depends on the count."""
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
        return node_id in self.measured_nodes or any(
            above.id in self.measured_nodes for above in self.pipeline.upstream(node_id)
        )


def cut(
    source: live.LivePipeline, operators: Mapping[str, OperatorProfile], folder: str, *, full_caches: bool = False
) -> Prefixes:
    """Returns the prefixes of a live pipeline; nothing is run yet.

    Args:
        source: the live pipeline.
        operators: the quick profile, by node id: decides which operators matter, and how much may be buffered.
        folder: for the files of caches; the user's own cache files are never touched.
        full_caches: whether the memory caches of `source` are full. What is idle then has no prefix.

    Raises:
        CannotReplay: an operator cannot be rebuilt in one thread; the message names it.
    """
    estimate = _Estimate(source.pipeline, operators)
    idle = source.pipeline.idle_operators if full_caches else {}
    pipeline = apply_edits(source.pipeline, _edits(source.pipeline, estimate, idle))
    given = {
        node.id: _in_one_thread(source.datasets[node.id])
        for node in pipeline
        if node.argument("num_parallel_reads") is not None and node.id not in idle
    }
    datasets = replay.replay_nodes(source, pipeline, replacements=given)
    caches: dict[str, Any] = {}
    for node in pipeline:
        if node.op == "cache" and node.id not in idle:
            full, in_file = datasets[node.id], bool(node.argument("filename"))
            if in_file or not full_caches:
                name = os.path.join(folder, node.id) if in_file else ""
                full = datasets[node.inputs[0]].take(estimate.elements_to_keep(node.inputs[0])).cache(name)
                caches[node.id] = full
            given[node.id] = full.repeat()
            datasets = replay.replay_nodes(source, pipeline, replacements=given)
    first_epoch = upstream_of_cache(pipeline)
    prefixes = Prefixes(
        pipeline=pipeline,
        datasets=datasets,
        measured_nodes=tuple(
            node.id
            for node in pipeline
            if node.op not in PASS_THROUGH_OPERATORS
            and node.id not in idle
            and (node.id in first_epoch or estimate.matters(node.id))
        ),
        options=plain_options(source.dataset),
        caches=caches,
    )
    for node in pipeline:
        for name in node.inputs:
            cached = any(above.op == "cache" for above in pipeline.upstream(node.id))
            ratio = _known_ratio(node, pipeline[name], endless=cached)
            if ratio is None and node.op == "choose":
                ratio = _ratio_in_profile(operators.get(node.id), operators.get(name))
            if ratio is not None:
                prefixes.ratios[node.id, name] = ratio
    return prefixes


def every_nth_element(dataset: Any, elements: int, options: Any) -> Any:
    """Returns a dataset of every `elements`-th element; the others are built and dropped inside TensorFlow.

    `shard` skips elements. The `take` before it builds each skipped element, while readers have a shortcut for skips.
    """
    return dataset.take(_ENDLESS).shard(elements, elements - 1).with_options(options)


def counting_prefix(
    prefixes: Prefixes, source: live.LivePipeline, node: Node
) -> tuple[Any, Callable[[], dict[str, int]]]:
    """Returns the prefix that ends in `node`, and a function that reads its counters.

    The function returns the elements taken so far from each input, by its id, and under "" the output elements.

    Raises:
        CannotReplay: the operator cannot be placed after one that counts.
    """
    with tf.device("CPU:0"):  # on a GPU each element would be counted by a kernel there
        counters = {name: tf.Variable(0, dtype=tf.int64, trainable=False) for name in ("", *node.inputs)}
    given = {name: _counting(prefixes.datasets[name], counters[name]) for name in node.inputs}
    single = Pipeline((*(prefixes.pipeline[name] for name in node.inputs), node))
    dataset = _counting(replay.replay_nodes(source, single, replacements=given)[node.id], counters[""])
    return dataset, lambda: {name: int(counter.numpy()) for name, counter in counters.items()}


def _counting(dataset: Any, counter: Any) -> Any:
    def count(*element: Any) -> Any:
        counter.assign_add(1)
        return element if len(element) > 1 else element[0]

    return tensorflow_private.with_structure(dataset.map(count, synchronous=True), dataset.element_spec)


class _Estimate:
    """Estimates from the quick profile, for an operator and all operators upstream of it."""

    def __init__(self, pipeline: Pipeline, operators: Mapping[str, OperatorProfile]) -> None:
        self._pipeline, self._operators = pipeline, operators
        self._total = sum(self._seconds(node.id) or 0.0 for node in pipeline)

    def matters(self, node_id: str) -> bool:
        """Whether differencing could resolve the cost of an operator; True if its cost is unknown."""
        seconds = self._seconds(node_id)
        return seconds is None or seconds >= _NEGLIGIBLE * self._total

    def elements_to_keep(self, node_id: str) -> int:
        """Returns the number of elements of an operator to keep, limited by the time to build them and by memory."""
        measured = self._operators.get(node_id)
        size = (measured.bytes_out if measured is not None else None) or self._pipeline[node_id].element_bytes
        above = [other.id for other in self._pipeline.upstream(node_id)]
        seconds = sum(self._seconds(name) or 0.0 for name in (node_id, *above))
        visits = measured.visits if measured is not None else None
        limits = [_FILL_ELEMENTS]
        limits += [int(_FILL_BYTES / size)] if size else []
        limits += [int(_FILL_SECONDS * visits / seconds)] if visits and seconds else []
        return max(1, min(limits if len(limits) == 3 else [*limits, _UNKNOWN_ELEMENTS]))

    def _seconds(self, node_id: str) -> float | None:
        """Returns the seconds per element of the whole pipeline; None if the runtime showed no such operator."""
        measured = self._operators.get(node_id)
        if measured is None or measured.visits is None or measured.cpu_seconds is None:
            return None
        return measured.visits * max(measured.cpu_seconds, measured.wall_seconds or 0.0)


def _edits(pipeline: Pipeline, estimate: _Estimate, idle: Collection[str]) -> list[Edit]:
    edits: list[Edit] = []
    for node in (node for node in pipeline if node.id not in idle):
        if node.argument("num_parallel_calls") is not None:
            edits.append(SetArgument(node.id, "num_parallel_calls", None))
        if node.op == "prefetch":
            edits.append(Remove(node.id))
        if node.op == "shuffle":
            size, kept = node.argument("buffer_size"), estimate.elements_to_keep(node.inputs[0])
            if isinstance(size, int) and size > kept:
                edits.append(SetArgument(node.id, "buffer_size", kept))
    return edits


def _in_one_thread(reader: Any) -> Any:
    """Rebuilds a reader of several files at once as one that reads them one after another."""
    return tf.data.TFRecordDataset(
        reader._filenames, compression_type=reader._compression_type, buffer_size=reader._buffer_size
    )


def plain_options(dataset: Any) -> Any:
    """Returns the options of the whole pipeline, which apply to all of it, with every graph rewrite disabled."""
    plain = tf.data.Options()
    for name in _OPTIMISATIONS:
        setattr(plain.experimental_optimization, name, False)
    plain.experimental_slack = False
    plain.experimental_warm_start = False
    return dataset.options().merge(plain)


def _ratio_in_profile(chooser: OperatorProfile | None, input_: OperatorProfile | None) -> float | None:
    """Returns the elements taken from one of the datasets chosen from, per element; None if they were not counted.

    A count of its own would end before each of them has been chosen often: it begins while their buffers are filled.
    """
    if chooser is None or input_ is None or not chooser.elements or input_.elements is None:
        return None
    return input_.elements / chooser.elements


def _known_ratio(node: Node, input_node: Node, *, endless: bool) -> float | None:
    """Returns the elements taken from `input_node` per output element; None if only a run can show it.

    With `endless`, the run has no last, partial batch, as downstream of the repeated sample of a cache.
    """
    if node.op == "cache":
        return 0.0
    counted = not endless and node.cardinality > 0 and input_node.cardinality > 0
    by_count = input_node.cardinality / node.cardinality if counted else None
    if node.op in ("batch", "padded_batch"):
        size = node.argument("batch_size")
        return by_count or (float(size) if isinstance(size, int) else None)
    # A source skips without building elements; that is the operator's own cost.
    made = not operator_facts(input_node.op).source
    if by_count is not None and ((node.op == "skip" and made) or node.op == "concatenate"):
        return by_count  # of what follows another, a run may not reach anything
    if node.op == "shard":
        count = node.argument("num_shards")
        return float(count) if made and isinstance(count, int) else 1.0
    passes_through = node.op in PASS_THROUGH_OPERATORS or node.op in ("zip", "shuffle", "snapshot")
    return 1.0 if passes_through or operator_facts(node.op).count == "one-to-one" else None
