"""Probes where functions of maps could be split in two, from graph and data; only where a rule may use the cut."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import FunctionSplit, RowGathering, SplitPosition
from pipetune.core.pipeline import Node, Pipeline
from pipetune.equality import elements, sharing
from pipetune.pipelines import functions, gathering, live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.function_splitting import (
    CannotSplit,
    SplittableFunction,
    first_varying_op,
    last_call_before,
    statement_indices,
)
from pipetune.pipelines.gathering import flat_map_windows, gather_from
from pipetune.probes.batches import batched, downstream_batch, reaches_unjoined
from pipetune.rewrites.rule import describe_state

_SAMPLED = 48  # elements whose size is measured
_SECONDS = 1.0  # to read the sample, by judgement: with less, slow sources yield no element; more delays the analysis
_BYTES = 64e6  # of the sample, by judgement: bounds the memory it takes


def annotate_splits(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` annotated with how functions are split before their first draw or call of Python."""
    facts = {
        node.id: replace(node.function, before_draws=_probe(source, node))
        for node in pipeline
        if node.op == "map" and node.inputs and node.function is not None
        if node.function.random or node.function.python
        if not node.function.random_python and not describe_state(node)
    }
    return pipeline.with_functions(facts)


def _probe(source: live.LivePipeline, node: Node) -> FunctionSplit:
    kind = SplitPosition.BEFORE_DRAWS
    try:
        whole = SplittableFunction(source.datasets[node.id]._map_func)
        place, kind = first_varying_op(whole)
        return _split(source, node, whole, place, kind)
    except CannotSplit as reason:
        return FunctionSplit(kind, why_not=str(reason))
    except Exception as error:  # the graph cannot be rebuilt, or a user's function fails on its elements
        return FunctionSplit(kind, why_not=f"its graph cannot be split ({type(error).__name__})")


Cut = tuple[int, int | None, str]
"""The number of ops before a cut, the index of the statement there, and the call in it that ends there."""


def _cuts_before(whole: SplittableFunction, place: int) -> list[Cut]:
    """Returns where a function may be cut before an op, the one with the longer first part last.

    Before the statement of the op, and behind the last call of a function in it; if neither leaves any work to the
    first part, before the op (then the index is None). Raises if nothing is computed before it.
    """
    function = tensorflow_private.python_function(whole.traced)
    statements = statement_indices(function, whole.ops)
    if statements is not None:
        before = (statements.index(statements[place]), statements[place], "")
        cuts: tuple[Cut | None, ...] = (before, last_call_before(function, whole.ops, statements, place))
        if found := [one for one in cuts if one is not None and whole.working_ops(whole.ops[: one[0]])]:
            return found
    if not whole.working_ops(whole.ops[:place]):
        raise CannotSplit("it does no work before that")
    return [(place, None, "")]


def _split(
    source: live.LivePipeline, node: Node, whole: SplittableFunction, place: int, kind: SplitPosition
) -> FunctionSplit:
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    # Python code upstream is not run to measure a size, and no cache may be put after it.
    sampled = not any(upper.runs_python for upper in source.pipeline.upstream(node.id))

    def made_by(cut: Cut) -> tuple[Any, float | None]:
        with tensorflow_private.reusing_traced_functions():
            head = above.map(whole.head(cut[0]))
        return head, _element_bytes(head, sampled=sampled)

    cut, *longer = _cuts_before(whole, place)
    head, size = made_by(cut)
    for other in longer:  # more is computed once, if it takes no more memory
        if size is None:
            break  # the source is too slow to read a sample of it
        other_head, other_size = made_by(other)
        if other_size is not None and other_size <= size:
            cut, head, size = other, other_head, other_size
    position, statement, call = cut
    with tensorflow_private.reusing_traced_functions():
        tail = head.map(whole.tail(position))
    if tail.element_spec != original.element_spec:
        raise CannotSplit("its static shapes would be lost")
    return FunctionSplit(
        kind,
        position=position,
        spec=str(head.element_spec),
        element_bytes=size,
        head=functions.read_facts(head._map_func).digest,
        tail=functions.read_facts(tail._map_func).digest,
        statement=statement,
        call=call,
        handed=len(whole.passed_tensors(position)),
        taken=whole.passed_components(position),
        components=len(whole.arguments),
    )


def _element_bytes(head: Any, *, sampled: bool) -> float | None:
    """Returns the bytes per element of `head`: from static shapes, else the mean of start, middle and end of the data.

    None if the shapes are not static and `sampled` is False, or no element could be read.
    """
    static = live.element_bytes(tf.nest.flatten(head.element_spec))
    if static is not None or not sampled:
        return static
    found = sharing.record(head, count=_SAMPLED, deadline=time.monotonic() + _SECONDS, max_bytes=_BYTES)
    (sample,) = found.passes
    return sum(map(elements.element_bytes, sample)) / len(sample) if sample else None


def annotate_gathers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with in-memory sources upstream of a batch annotated with how a batch of rows is gathered.

    Where functions take windows of the rows by index, the most downstream operator that emits them is annotated.
    """
    answers: dict[str, RowGathering] = {}
    covered: set[str] = set()
    for node in reversed(pipeline.nodes):
        batch = downstream_batch(pipeline, node)
        if batch is None or node.id in covered or not reaches_unjoined(pipeline, node, batch):
            continue
        if node.op == "from_tensor_slices":
            answers[node.id] = probe_gathering(source, pipeline, node, batch)
        elif node.op in _SERIES_OUTPUTS and gathering.read(source.datasets[node.id]) is not None:
            answers[node.id] = replace(probe_gathering(source, pipeline, node, batch), singly=True)
            covered |= {above.id for above in pipeline.upstream(node.id)}
    nodes = tuple(replace(node, gathering=answers.get(node.id, node.gathering)) for node in pipeline)
    return replace(pipeline, nodes=nodes)


_SERIES_OUTPUTS = frozenset({"map", "zip", "prefetch"})


@unknown_on_error(RowGathering)
def probe_gathering(source: live.LivePipeline, pipeline: Pipeline, node: Node, batch: Node) -> RowGathering:
    """Returns how the rows of `node`, or windows of them, could be gathered into batches, or why they cannot.

    Args:
        source: the live pipeline.
        pipeline: that of `source`, with or without annotations.
        node: a source of arrays in memory.
        batch: the batch downstream of it.
    """
    dataset = source.datasets[node.id]
    if not all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(dataset.element_spec)):
        return RowGathering(why_not="they are sparse or ragged")
    flat_map = next((below for below in pipeline.downstream(node.id) if below.op == "flat_map"), None)
    windows = flat_map_windows(source, pipeline, flat_map) if flat_map is not None else None
    as_now = source.datasets[flat_map.id] if flat_map is not None and windows is not None else dataset
    numbers = tf.data.Dataset.range(int(dataset.cardinality()))
    gathered = batched(numbers, batch).map(gather_from(dataset, windows))
    if gathered.element_spec != batched(as_now, batch).element_spec:
        return RowGathering(why_not="gathered rows would have a different structure, shape or dtype")
    return RowGathering(digest=functions.read_facts(gathered._map_func).digest, windows=windows)
