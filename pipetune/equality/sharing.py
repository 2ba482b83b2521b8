"""Finds what two pipelines share and what they do not, where elements can be recorded, and where data can be cut."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import FunctionVariant, RowWindows
from pipetune.core.operators import FLATTENING, READERS, EpochEffect, operator_facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import live

EXPANDING_OPERATORS = FLATTENING | READERS | {"unbatch", "rebatch", "opaque"}
"""Operators that may yield many elements for one input element."""

_SELECTING_OPERATORS = frozenset({"take", "skip", "shard", "filter", "shuffle"})
"""Operators that drop or reorder elements: a function downstream of one computes some elements later, or never."""


@dataclass(frozen=True)
class ComparedPipeline:
    """One of the two compared pipelines: live objects, and the pipeline to build from them."""

    live: live.LivePipeline
    pipeline: Pipeline


def compared_pipelines(original: live.LivePipeline, candidate: Any) -> tuple[ComparedPipeline, ComparedPipeline]:
    """Returns the sides of two live datasets; a dataset object in both has the same operator id in both."""
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
    return ComparedPipeline(original, original.pipeline), ComparedPipeline(renamed, renamed.pipeline)


def shared_operators(original: ComparedPipeline, candidate: ComparedPipeline) -> frozenset[str]:
    """Returns the ids of the operators that are the same in both, together with everything upstream of them."""
    found: set[str] = set()
    for node in original.pipeline:
        if node.id not in candidate.pipeline:
            continue
        same = operator_identity(node) == operator_identity(candidate.pipeline[node.id])
        same_object = original.live.datasets[node.id] is candidate.live.datasets.get(node.id)
        if same and same_object and _calls_as_traced(node) and found.issuperset(node.inputs):
            found.add(node.id)
    return frozenset(found)


def operator_identity(node: Node) -> tuple[object, ...]:
    """Returns the identity of an operator: its kind, inputs, arguments, and function (variant and digest)."""
    function = (node.function.form, node.function.digest) if node.function is not None else None
    return node.op, node.inputs, dict(node.arguments), function


def gathered_arrays(original: ComparedPipeline, candidate: ComparedPipeline) -> dict[str, RowWindows | None]:
    """Returns the ids of the original's in-memory arrays that the candidate gathers by index.

    Each with the windows that are gathered; None if these are single rows.
    """
    return {
        source.id: node.gathering.windows
        for node in candidate.pipeline
        if node.gathers_rows
        and node.gathering is not None
        and (source := candidate.pipeline.source_of(node.id)).id in original.live.datasets
    }


@dataclass(frozen=True)
class ChangedRegion:
    """The part in which two pipelines differ: from a shared operator to the position where they are equal again."""

    start: str  # id of the operator whose elements are replaced by generated ones
    sides: tuple[ComparedPipeline, ComparedPipeline]  # each ends where the pipelines are equal again

    @property
    def functions(self) -> list[tuple[Node, Any]]:
        """The original's consecutive maps from the start, each with its traced function."""
        original = self.sides[0]
        found = []
        for node in original.pipeline.downstream(self.start):
            if node.op == "map":
                found.append((node, original.live.datasets[node.id]._map_func))
            elif not operator_facts(node.op).same_elements:
                break
        return found

    @property
    def stateless(self) -> bool:
        """Whether its functions may be called outside the pipeline."""
        return all(node.function is not None and node.function.stateless for node, _ in self.functions)


def changed_region(original: ComparedPipeline, candidate: ComparedPipeline) -> ChangedRegion | None:
    """Returns the region in which functions are called in another variant, on other elements or at another position.

    None if there is none, or if it does not have exactly one start: several datasets join in it, or the pipelines
    share no operator.
    """
    if all(map(_calls_as_traced, candidate.pipeline)):
        return None
    a, b = original.pipeline.output, candidate.pipeline.output
    while a.id == b.id and operator_identity(a)[2:] == operator_identity(b)[2:] and a.op == b.op and len(a.inputs) == 1:
        a, b = original.pipeline[a.inputs[0]], candidate.pipeline[b.inputs[0]]
    sides = (
        replace(original, pipeline=_upstream_part(original.pipeline, a.id)),
        replace(candidate, pipeline=_upstream_part(candidate.pipeline, b.id)),
    )
    common = shared_operators(*sides) | gathered_arrays(*sides).keys()
    changed = [node for side in sides for node in side.pipeline if node.id not in common]
    starts = {name for node in changed for name in node.inputs if name in common}
    return ChangedRegion(starts.pop(), sides) if len(starts) == 1 else None


def _calls_as_traced(node: Node) -> bool:
    return node.function is None or node.function.form is FunctionVariant.AS_TRACED


def _upstream_part(pipeline: Pipeline, node_id: str) -> Pipeline:
    kept = {node_id, *(node.id for node in pipeline.upstream(node_id))}
    return replace(pipeline, nodes=tuple(node for node in pipeline.nodes if node.id in kept), options={})


def frontier(original: ComparedPipeline, candidate: ComparedPipeline) -> dict[str, int]:
    """Returns the shared operators furthest downstream whose elements can be recorded, and how many passes that takes.

    No operator upstream of them makes random draws that can be pinned: these must be drawn again in each epoch. One
    pass is needed if every epoch provably yields the same elements, three otherwise.
    """
    passes = dict.fromkeys(gathered_arrays(original, candidate), 1)
    common = shared_operators(original, candidate)
    for node in original.pipeline.nodes:
        if node.id not in common:
            continue
        own = _recording_passes(node, original.live.datasets[node.id])
        if own and all(name in passes for name in node.inputs):
            passes[node.id] = max([own, *(passes[name] for name in node.inputs)])
    ends = {original.pipeline.output.id, candidate.pipeline.output.id}
    return {
        name: count
        for name, count in passes.items()
        if name in ends
        or any(node.id not in passes for side in (original, candidate) for node in side.pipeline.consumers(name))
    }


def inputs_selected_earlier(original: ComparedPipeline, candidate: ComparedPipeline) -> list[str]:
    """Returns the inputs of operators that drop or reorder elements and have fewer maps upstream in the candidate.

    Inputs that cannot be read again without side effects are left out.
    """
    found: list[str] = []
    for op in sorted(_SELECTING_OPERATORS):
        if _maps_upstream(op, candidate.pipeline) < _maps_upstream(op, original.pipeline):
            found += [name for node in original.pipeline if node.op == op for name in node.inputs[:1]]
    return [name for name in found if not _has_side_effects(name, original.pipeline)]


def _has_side_effects(name: str, pipeline: Pipeline) -> bool:
    """Whether reading the output of an operator may change state of the script."""
    return any(
        operator_facts(node.op).python
        or (node.function.may_change_state if node.function else operator_facts(node.op).takes_function)
        for node in (pipeline[name], *pipeline.upstream(name))
    )


def _maps_upstream(op: str, pipeline: Pipeline) -> int:
    """Returns how many maps are upstream of operators of a kind, without those of the first part of a function."""
    above = (one for node in pipeline if node.op == op for one in pipeline.upstream(node.id) if one.op == "map")
    return sum(one.function is None or one.function.form is not FunctionVariant.HEAD for one in above)


def expanding_downstream(pipeline: Pipeline, node_id: str) -> list[Node]:
    """Returns the operators downstream by which one element (a file name) may become many.

    Not those behind a window: a `flat_map` there only undoes it.
    """
    nodes = takewhile(lambda node: node.op != "window", pipeline.downstream(node_id))
    return [node for node in nodes if node.op in EXPANDING_OPERATORS]


def expanded_without_draws(original: ComparedPipeline, candidate: ComparedPipeline) -> list[str]:
    """Returns the ids of the operators of both pipelines that expand elements, upstream of all random functions."""
    return [
        node.id
        for node in original.pipeline.nodes
        if node.op in EXPANDING_OPERATORS - {"opaque"}
        and node.id in candidate.pipeline
        and _has_plain_elements(original.live.datasets[node.id])
        and not any(
            upper.function is not None and (upper.function.random or upper.function.random_python)
            for side in (original, candidate)
            for upper in (*side.pipeline.upstream(node.id), side.pipeline[node.id])
        )
    ]


def cut_points(original: ComparedPipeline, candidate: ComparedPipeline, recorded: Collection[str]) -> list[str]:
    """Returns the ids of the operators after which data is cut, because no recording limits it.

    Never downstream of a cache: a cache that is not read to its end keeps nothing, and would not repeat an epoch.

    Args:
        recorded: ids of the operators that were recorded.
    """
    common = [node for node in original.pipeline.nodes if node.id in candidate.pipeline]
    above = {upper.id for name in recorded for upper in original.pipeline.upstream(name)} | set(recorded)
    return [
        node.id
        for node in common
        if node.id not in above
        and (node.op in EXPANDING_OPERATORS or not node.inputs)
        and not any(is_cached_upstream(side.pipeline, node.id) for side in (original, candidate))
    ]


def draws_per_element(pipeline: Pipeline, source: str) -> int:
    """Returns how many elements of a source to draw per element of the others: 1, but more if it chooses among them.

    As in `sample_from_datasets`, which draws two seeds per element of the output: of half as many draws it would end
    early, and of an odd number with an error.
    """
    draws = 1
    for node in pipeline.downstream(source):
        size = node.argument("batch_size") if node.op == "batch" else None
        draws *= size if isinstance(size, int) else 1
        if node.op == "choose":
            first = node.inputs[0]
            chooses = source in (first, *(above.id for above in pipeline.upstream(first)))
            return draws * (len(node.inputs) - 1) if chooses else 1
    return 1


def is_cached_upstream(pipeline: Pipeline, node_id: str) -> bool:
    """Whether a cache is upstream, which a cut here would prevent from being read to its end."""
    return any(node.op in ("cache", "snapshot") for node in pipeline.upstream(node_id))


def _recording_passes(node: Node, dataset: Any) -> int:
    """Returns how many passes a recording of this operator takes; 0 if it cannot be recorded."""
    known, function = operator_facts(node.op), node.function
    generator = node.op == "from_generator"
    if not _has_plain_elements(dataset):
        return 0
    if (known.random or known.epochs not in (EpochEffect.SAME, EpochEffect.FREEZES)) and not generator:
        return 0
    if node.op in ("opaque", "snapshot") or (node.op == "cache" and node.argument("filename")):
        return 0
    if function is not None and not generator:
        if function.random or function.random_python or function.writes_variables or function.mutable_tables:
            return 0
        if not function.stateless:
            return 3
    return 3 if generator else 1


def _has_plain_elements(dataset: Any) -> bool:
    """Whether elements have components, and none of them is a dataset or an optional."""
    components = tf.nest.flatten(dataset.element_spec)
    return any(not isinstance(part, tensorflow_private.NoneTensorSpec) for part in components) and not any(
        isinstance(part, tf.data.DatasetSpec | tf.OptionalSpec) for part in components
    )
