"""Applies edits to a Pipeline: a pure function that defines the meaning of each edit for all emitters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from pipetune.core.edits import (
    Edit,
    Insert,
    Move,
    Remove,
    ReplaceFunction,
    ReplaceOperator,
    ReplaceSource,
    SetArgument,
    SetOption,
    SplitFunction,
)
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import CutKind, FunctionFacts, FunctionForm, Gathering
from pipetune.core.operators import facts
from pipetune.core.pipeline import Node, Pipeline

ROW_NUMBER_BYTES = 8.0
_ROW_NUMBER = "TensorSpec(shape=(), dtype=tf.int64, name=None)"


def apply_edits(pipeline: Pipeline, edits: Iterable[Edit]) -> Pipeline:
    """Returns the pipeline after applying `edits` in order.

    Raises:
        PipetuneError: an edit names an operator that does not exist, or one that it cannot be applied to.
    """
    for edit in edits:
        pipeline = _apply(pipeline, edit)
    return pipeline


def _apply(pipeline: Pipeline, edit: Edit) -> Pipeline:
    match edit:
        case SetArgument(node=node_id, name=name, value=value):
            node = _find(pipeline, node_id)
            return _substitute(pipeline, replace(node, arguments={**node.arguments, name: value}))
        case Insert(after=after, op=op, id=new_id, arguments=arguments):
            anchor = _find(pipeline, after)
            new = Node(id=new_id, op=op, inputs=(after,), arguments=dict(arguments))
            if not facts(op).batches:
                new = replace(
                    new, spec=anchor.spec, cardinality=anchor.cardinality, element_bytes=anchor.element_bytes
                )
            return _insert(pipeline, new, after=after)
        case Remove(node=node_id):
            return _take_out(pipeline, node_id)[0]
        case Move(node=node_id, after=after):
            rest, node = _take_out(pipeline, node_id)
            return _insert(rest, replace(node, inputs=(after,)), after=after)
        case ReplaceFunction(node=node_id, form=form, digest=digest, first=first):
            node = _find(pipeline, node_id)
            if node.function is None:
                raise PipetuneError(f"Operator {node_id} ({node.op}) has no function to replace.")
            _check_run(pipeline, node, first)
            function = replace(node.function, form=form, digest=digest, first=first)
            return _substitute(pipeline, replace(node, function=function))
        case ReplaceSource():
            return _gather(pipeline, edit)
        case SplitFunction():
            return _split(pipeline, edit)
        case ReplaceOperator(node=node_id, op=op, arguments=arguments):
            node = _find(pipeline, node_id)
            return _substitute(pipeline, _called(replace(node, arguments=dict(arguments)), op))
        case SetOption(name=name, value=value):
            return replace(pipeline, options={**pipeline.options, name: value})


def _gather(pipeline: Pipeline, edit: ReplaceSource) -> Pipeline:
    """Replaces the source and its upstream by a range of row indices, and inserts a map that gathers the rows."""
    rows, anchor = _find(pipeline, edit.node), _find(pipeline, edit.after)
    if rows.cardinality < 0:
        raise PipetuneError(f"Operator {rows.id} ({rows.op}) has no rows that could be numbered.")
    starts = edit.windows.starts(rows.cardinality) if edit.windows is not None else range(rows.cardinality)
    numbers = Node(
        id=rows.id,
        op="range",
        arguments={"start": 0, "stop": starts.stop, "step": starts.step},
        location=rows.location,
        shared=rows.shared,
        spec=_ROW_NUMBER,
        cardinality=len(starts),
        element_bytes=ROW_NUMBER_BYTES,
    )
    gather = Node(
        id=edit.gather,
        op="map",
        inputs=(anchor.id,),
        arguments={"num_parallel_calls": None, "deterministic": None},
        function=FunctionFacts(
            name="gather", digest=edit.digest, operations=("GatherV2",), form=FunctionForm.GATHERING
        ),
        spec=anchor.spec,
        cardinality=anchor.cardinality,
        element_bytes=anchor.element_bytes,
        gathering=Gathering(digest=edit.digest, windows=edit.windows),
    )
    edited = _insert(_substitute(pipeline, numbers), gather, after=anchor.id)
    reached = {edited.output.id, *(above.id for above in edited.upstream(edited.output.id))}
    return replace(edited, nodes=tuple(node for node in edited if node.id in reached))


def _split(pipeline: Pipeline, edit: SplitFunction) -> Pipeline:
    """Splits a map into one map per part of its function; the second keeps the id and the output of the original."""
    node, cut = _find(pipeline, edit.node), edit.cut
    if node.op != "map" or node.function is None or node.function.form is not FunctionForm.AS_TRACED:
        raise PipetuneError(f"Operator {node.id} ({node.op}) has no function that could be cut in two as it is.")
    part = FunctionFacts(
        name=node.function.name,
        digest=cut.head,
        operations=node.function.operations,
        size=node.function.size,
        reads_files=node.function.reads_files,
        can_raise=node.function.can_raise,
        form=FunctionForm.HEAD,
        part_of=node.id,
        cut=cut,
    )
    head = replace(
        node,
        id=edit.head,
        arguments=dict(node.arguments),
        function=part,
        location=None,
        shared=1,
        spec=cut.spec,
        element_bytes=cut.element_bytes,
    )
    each = cut.kind is CutKind.BEFORE_EACH_NUMBER
    form = FunctionForm.TAIL_ON_BATCHES if each else FunctionForm.TAIL
    part = replace(part, digest=cut.tail, form=form, random=node.function.random, seeded=node.function.seeded)
    tail = replace(node, inputs=(head.id,), function=part)
    nodes = ((head, tail) if old.id == node.id else (old,) for old in pipeline.nodes)
    return replace(pipeline, nodes=tuple(one for some in nodes for one in some))


def _called(node: Node, op: str) -> Node:
    """Returns the node as operator `op` at the same call site."""
    location = replace(node.location, method=op) if node.location is not None else None
    return replace(node, op=op, location=location)


def _check_run(pipeline: Pipeline, node: Node, first: tuple[str, ...]) -> None:
    """Raises if functions cannot be fused: an earlier edit changed one of them or inserted an operator in between."""
    run = [*(_find(pipeline, name) for name in first), node]
    if node.function is not None and node.function.first:
        raise PipetuneError(f"Operator {node.id} ({node.op}) calls other functions before its own already.")
    if not first:
        return
    if any(lower.inputs != (upper.id,) for upper, lower in pairwise(run)):
        raise PipetuneError(f"Something stands between {node.id} ({node.op}) and the maps it is to be one with.")
    if any(one.function is None or one.function.form is not FunctionForm.AS_TRACED for one in run):
        raise PipetuneError(f"A function that {node.id} ({node.op}) is to call is called in another form already.")


def _find(pipeline: Pipeline, node_id: str) -> Node:
    if node_id not in pipeline:
        raise PipetuneError(f"The edit names operator {node_id}, which the pipeline does not have.")
    return pipeline[node_id]


def _substitute(pipeline: Pipeline, node: Node) -> Pipeline:
    return replace(pipeline, nodes=tuple(node if old.id == node.id else old for old in pipeline.nodes))


def _insert(pipeline: Pipeline, new: Node, *, after: str) -> Pipeline:
    _find(pipeline, after)
    nodes: list[Node] = []
    for node in pipeline.nodes:
        if node.id != new.id and after in node.inputs:
            node = replace(node, inputs=tuple(new.id if name == after else name for name in node.inputs))
        nodes.append(node)
        if node.id == after:
            nodes.append(new)
    return replace(pipeline, nodes=tuple(nodes))


def _take_out(pipeline: Pipeline, node_id: str) -> tuple[Pipeline, Node]:
    node = _find(pipeline, node_id)
    if len(node.inputs) != 1:
        raise PipetuneError(f"Operator {node_id} ({node.op}) has {len(node.inputs)} inputs and cannot be taken out.")
    (above,) = node.inputs
    nodes = tuple(
        replace(other, inputs=tuple(above if name == node_id else name for name in other.inputs))
        for other in pipeline.nodes
        if other.id != node_id
    )
    return replace(pipeline, nodes=nodes), node
