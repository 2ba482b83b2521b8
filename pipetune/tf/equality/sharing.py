"""Finds what two pipelines share, where their common elements can be recorded, and where their data can be cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Insert, Remove
from pipetune.core.functions import FunctionForm, Windows
from pipetune.core.operators import Epochs, facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's

EXPANDING = frozenset({"interleave", "flat_map", "unbatch", "rebatch", "opaque", "TFRecordDataset",
                       "TextLineDataset", "FixedLengthRecordDataset"})  # fmt: skip
"""Operators that may yield many elements for one input element."""

_CHOOSING = frozenset({"take", "skip", "shard", "filter", "shuffle"})
"""Operators that drop or reorder: a function moved downstream of one computes some elements later, or never."""


@dataclass(frozen=True)
class Side:
    """One of the two compared pipelines: live objects, and the pipeline to build from them."""

    live: live.LivePipeline
    pipeline: Pipeline
    asserted: frozenset[str] = frozenset()  # ids of `assert_cardinality` operators that both sides have

    def build(
        self, given: Mapping[str, Any], cuts: Mapping[str, int], rows: Mapping[str, Any] | None = None
    ) -> Any:
        """Builds the dataset, with recorded elements in place of some operators and `take` after others.

        The cardinality assertions that both sides have are then removed: on a sample they would only raise.

        Args:
            given: operator id -> dataset to use in its place.
            cuts: operator id -> number of elements to take after it.
            rows: source id -> dataset of arrays to gather rows from, in place of that source.

        Raises:
            CannotReplay: an operator downstream of a change cannot be rebuilt.
        """
        edits: list[Edit] = [
            Insert(after=name, op="take", id=f"cut@{name}", arguments={"count": count})
            for name, count in cuts.items()
            if name not in given
        ]
        if given or cuts:
            edits += [Remove(name) for name in self.asserted - given.keys() - cuts.keys()]
        source = replace(self.live, datasets={**self.live.datasets, **(rows or {})})
        return replay(source, apply_edits(self.pipeline, edits), given=given)


def sides_of(original: live.LivePipeline, candidate: Any) -> tuple[Side, Side]:
    """The sides of two live datasets; a dataset object that both hold has the same operator id in both."""
    read = live.read(candidate, name=original.pipeline.name)
    known = {id(dataset): name for name, dataset in original.datasets.items()}
    names = {name: known.get(id(dataset), f"candidate-{name}") for name, dataset in read.datasets.items()}
    nodes = tuple(
        replace(node, id=names[node.id], inputs=tuple(names[name] for name in node.inputs))
        for node in read.pipeline.nodes
    )
    renamed = live.LivePipeline(
        replace(read.pipeline, nodes=nodes), {names[name]: dataset for name, dataset in read.datasets.items()}
    )
    return Side(original, original.pipeline), Side(renamed, renamed.pipeline)


def with_common_assertions(original: Side, candidate: Side) -> tuple[Side, Side]:
    """The sides, with `asserted` set to the cardinality assertions that both have."""
    one, other = (
        {node.id for node in side.pipeline if node.op == "assert_cardinality"} for side in (original, candidate)
    )
    both = frozenset(one & other)
    return replace(original, asserted=both), replace(candidate, asserted=both)


def shared(original: Side, candidate: Side) -> frozenset[str]:
    """Ids of the operators that are the same in both, together with everything upstream of them."""
    found: set[str] = set()
    for node in original.pipeline.nodes:
        if node.id not in candidate.pipeline or node.id not in original.live.datasets:
            continue
        other = candidate.pipeline[node.id]
        same = described(node) == described(other)
        same_object = original.live.datasets[node.id] is candidate.live.datasets.get(node.id)
        as_live = node.function is None or node.function.form is FunctionForm.AS_TRACED
        if same and same_object and as_live and found.issuperset(node.inputs):
            found.add(node.id)
    return frozenset(found)


def described(node: Node) -> tuple[object, ...]:
    """The identity of an operator: its kind, inputs, arguments, and function (variant and digest)."""
    function = (node.function.form, node.function.digest) if node.function is not None else None
    return node.op, node.inputs, dict(node.arguments), function


def numbered(original: Side, candidate: Side) -> dict[str, Windows | None]:
    """In-memory arrays of the original that the candidate gathers by index: id -> their windows, None for rows."""
    return {
        source.id: node.gathering.windows
        for node in candidate.pipeline
        if node.gathers
        and node.gathering is not None
        and (source := candidate.pipeline.source_of(node.id)).id in original.live.datasets
    }


def frontier(original: Side, candidate: Side) -> dict[str, int]:
    """The shared operators furthest downstream whose elements can be recorded, and how many passes that takes.

    Nothing upstream of them makes random draws that can be pinned: those must be drawn again in each epoch, as the
    pipeline does. One pass where every epoch provably yields the same elements, three otherwise.
    """
    passes = dict.fromkeys(numbered(original, candidate), 1)
    common = shared(original, candidate)
    for node in original.pipeline.nodes:
        if node.id not in common:
            continue
        own = _passes(node, original.live.datasets[node.id])
        if own and all(name in passes for name in node.inputs):
            passes[node.id] = max([own, *(passes[name] for name in node.inputs)])
    ends = {original.pipeline.output.id, candidate.pipeline.output.id}
    return {
        name: count
        for name, count in passes.items()
        if name in ends
        or any(
            node.id not in passes for side in (original, candidate) for node in side.pipeline.consumers(name)
        )
    }


def chosen_earlier(original: Side, candidate: Side) -> list[str]:
    """Inputs of operators that drop or reorder elements, if these have fewer maps upstream in the candidate.

    Inputs that cannot be read once more without side effects are left out.
    """
    found: list[str] = []
    for op in sorted(_CHOOSING):
        if _maps_above(op, candidate.pipeline) < _maps_above(op, original.pipeline):
            found += [name for node in original.pipeline if node.op == op for name in node.inputs[:1]]
    return [name for name in found if not _leaves_traces(name, original.pipeline)]


def _leaves_traces(name: str, pipeline: Pipeline) -> bool:
    """Whether reading the output of an operator may change state of the script."""
    return any(
        facts(node.op).python or (node.function.leaves_traces if node.function else facts(node.op).takes_function)
        for node in (pipeline[name], *pipeline.upstream(name))
    )


def _maps_above(op: str, pipeline: Pipeline) -> int:
    return sum(above.op == "map" for node in pipeline if node.op == op for above in pipeline.upstream(node.id))


def expands_below(pipeline: Pipeline, node_id: str) -> bool:
    """Whether one element of an operator (a file name) may become many downstream."""
    for node in pipeline.downstream(node_id):
        if node.op == "window":
            return False  # a flat_map further downstream only takes apart what the window put together
        if node.op in EXPANDING:
            return True
    return False


def expanded_without_draws(original: Side, candidate: Side) -> list[str]:
    """Operators of both pipelines where one element has become many and no function has drawn a random number yet."""
    return [
        node.id
        for node in original.pipeline.nodes
        if node.op in EXPANDING - {"opaque"}
        and node.id in candidate.pipeline
        and _has_plain_elements(original.live.datasets[node.id])
        and not any(
            upper.function is not None and (upper.function.random or upper.function.random_python)
            for side in (original, candidate)
            for upper in (*side.pipeline.upstream(node.id), side.pipeline[node.id])
        )
    ]


def cuts(original: Side, candidate: Side, recorded: Collection[str], count: int) -> dict[str, int]:
    """Operators of both pipelines after which the data is cut to `count` elements because no recording limits it.

    Never downstream of a cache: a cache that is not read to its end keeps nothing, and would freeze no epoch.
    """
    common = [node for node in original.pipeline.nodes if node.id in candidate.pipeline]
    above = {upper.id for name in recorded for upper in original.pipeline.upstream(name)} | set(recorded)
    return {
        node.id: count
        for node in common
        if node.id not in above
        and (node.op in EXPANDING or not node.inputs)
        and not any(_cached_above(side.pipeline, node.id) for side in (original, candidate))
    }


def expands_behind_cache(pipeline: Pipeline, node_id: str) -> bool:
    """Whether elements become many downstream of a cache: cut there, the cache would never be read to its end."""
    return any(
        node.op in EXPANDING and _cached_above(pipeline, node.id) for node in pipeline.downstream(node_id)
    )


def _cached_above(pipeline: Pipeline, node_id: str) -> bool:
    return any(node.op in ("cache", "snapshot") for node in pipeline.upstream(node_id))


def _passes(node: Node, dataset: Any) -> int:
    """How many passes a recording of this operator takes; 0 if it cannot be recorded."""
    known, function = facts(node.op), node.function
    generator = node.op == "from_generator"
    if not _has_plain_elements(dataset):
        return 0
    if (known.random or known.epochs not in (Epochs.SAME, Epochs.FREEZES)) and not generator:
        return 0
    if node.op in ("opaque", "snapshot") or (node.op == "cache" and node.argument("filename")):
        return 0
    if function is not None and not generator:
        if function.random or function.random_python or function.writes_variables or function.mutable_tables:
            return 0
        if not function.stateless:
            return 3
    unordered = node.argument("deterministic") is False
    return 3 if generator or unordered else 1


def _has_plain_elements(dataset: Any) -> bool:
    """Whether elements have components, and none of them is a dataset or an optional."""
    components = tf.nest.flatten(dataset.element_spec)
    return any(not isinstance(part, private.NoneTensorSpec) for part in components) and not any(
        isinstance(part, tf.data.DatasetSpec | tf.OptionalSpec) for part in components
    )
