"""Probes where functions of maps could be split in two, from graph and data; only where a rule may use the cut."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.functions import Cut, CutKind, FunctionFacts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.equality import elements, recorded
from pipetune.tf.pipelines import functions, live
from pipetune.tf.pipelines.cutting import Cuttable, NoCut, first_draw, first_of_the_end
from pipetune.tf.pipelines.lifting import Lifted
from pipetune.tf.pipelines.on_batches import batch_below
from pipetune.tf.pipelines.statements import statements_of

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's

_SAMPLED = 48  # elements whose size is measured
_SECONDS = 1.0
_BYTES = 64e6


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions annotated with where they could be split in two.

    Args:
        pipeline: that of `source`, already annotated with what its functions do on batches.
    """
    told = {
        node.id: replace(node.function, cuts=tuple(ask(source, pipeline, node)))
        for node in pipeline
        if node.op == "map" and node.inputs and node.function is not None and _keeps_no_state(node.function)
    }
    return pipeline.with_functions(told)


def _keeps_no_state(function: FunctionFacts) -> bool:
    """Whether the function keeps no state other than that of the random ops in its graph."""
    return replace(function, random=False).stateless and not function.random_python


def ask(source: live.LivePipeline, pipeline: Pipeline, node: Node) -> Iterator[Cut]:
    """Yields the cuts of the function of `node` that a rule may use, or why there is none where one is expected."""
    assert node.function is not None
    batch = batch_below(pipeline, node)
    answer = node.function.on_batches
    if node.function.random:
        yield _tried(CutKind.BEFORE_DRAWS, source, node)
    elif batch is not None and answer is not None and answer.why_not:  # otherwise all of it can run after the batch
        found = _tried(CutKind.BEFORE_EACH_NUMBER, source, node, batch=batch)
        if found.why_not != _NO_END:
            yield found


_NO_END = "it does not end in ops that treat every number by itself"


def _tried(kind: CutKind, source: live.LivePipeline, node: Node, *, batch: Node | None = None) -> Cut:
    original = source.datasets[node.id]
    try:
        whole = Cuttable(original._map_func)
        placed = _in_front_of_draws(whole) if batch is None else _in_front_of_the_end(whole)
        return _described(kind, source, node, whole, placed, batch=batch)
    except NoCut as reason:
        return Cut(kind, why_not=str(reason))
    except Exception as error:  # the graph cannot be rebuilt, or a user's function fails on its elements
        return Cut(kind, why_not=f"its graph cannot be cut ({type(error).__name__})")


Placed = tuple[int, int | None]
"""A cut: the number of ops before it, and the index of the statement that begins there (None inside a statement)."""


def _in_front_of_draws(whole: Cuttable) -> Placed:
    """Places the cut before the statement that first draws, or before that op if earlier statements do no work.

    Raises:
        NoCut: no op of the graph draws, or nothing is computed before the first that does.
    """
    place = first_draw(whole)
    statements = statements_of(private.python_function(whole.traced), whole.ops)
    if statements is not None:
        between = statements.index(statements[place])
        if whole.working(whole.ops[:between]):
            return between, statements[place]
    if not whole.working(whole.ops[:place]):
        raise NoCut("it does nothing before it draws")
    return place, None


def _in_front_of_the_end(whole: Cuttable) -> Placed:
    """Places the cut where the fewest bytes are passed on; ties go to a place between statements, then to the first.

    Raises:
        NoCut: the function does not end in elementwise ops, consists of them, or passes on tensors of unknown size.
    """
    first = first_of_the_end(whole)
    if not whole.working(whole.ops[first:]):
        raise NoCut(_NO_END)
    if not whole.working(whole.ops[:first]):
        raise NoCut("all of it treats every number by itself")
    statements = statements_of(private.python_function(whole.traced), whole.ops)
    found: list[tuple[float, bool, int]] = []
    for place in range(first, len(whole.ops)):
        starts = statements is not None and place > 0 and statements[place] > statements[place - 1]
        if not whole.working(whole.ops[place:]) or not (starts or id(whole.ops[place]) in whole.varying):
            continue
        size = live.element_bytes([tf.TensorSpec(one.shape, one.dtype) for one in whole.handed(place)])
        if size is None:
            raise NoCut("the size of what its first part gives is not fixed")
        found.append((size, not starts, place))
    _, inside, place = min(found)
    return place, None if inside or statements is None else statements[place]


def _described(
    kind: CutKind, source: live.LivePipeline, node: Node, whole: Cuttable, placed: Placed, *, batch: Node | None
) -> Cut:
    position, statement = placed
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    lifted = Lifted()
    with private.reusing_traced_functions():
        head = above.map(whole.head(position))
        if batch is None:
            tail = head.map(whole.tail(position))
            wanted = original.element_spec
        else:
            size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
            batches = head.batch(size, drop_remainder=drops)
            rows = size if drops and isinstance(size, int) else None
            function, lifted = whole.tail_on_batches(position, rows)
            tail = batches.map(function)
            wanted = original.batch(size, drop_remainder=drops).element_spec
    if tail.element_spec != wanted:
        raise NoCut("its shapes would not be known any more")
    return Cut(
        kind,
        position=position,
        spec=str(head.element_spec),
        element_bytes=_element_bytes(head, sampled=not _python_above(source.pipeline, node)),
        head=functions.read_facts(head._map_func).digest,
        tail=functions.read_facts(tail._map_func).digest,
        inexact=lifted.inexact,
        zero_signs=lifted.zero_signs,
        statement=statement,
        handed=len(whole.handed(position)),
        taken=whole.taken(position),
        components=len(whole.arguments),
    )


def _python_above(pipeline: Pipeline, node: Node) -> bool:
    """Whether Python code produces the input: it is not run to measure a size, and no cache may be put after it."""
    return any(
        above.op == "from_generator" or (above.function is not None and above.function.python)
        for above in pipeline.upstream(node.id)
    )


def _element_bytes(head: Any, *, sampled: bool) -> float | None:
    """Returns bytes per element of `head`: from static shapes, else the mean of start, middle and end of the data.

    None if the shapes are not static and `sampled` is False, or no element could be read.
    """
    static = live.element_bytes(tf.nest.flatten(head.element_spec))
    if static is not None or not sampled:
        return static
    found = recorded.record(head, count=_SAMPLED, deadline=time.monotonic() + _SECONDS, max_bytes=_BYTES)
    (sample,) = found.passes
    return sum(map(elements.element_bytes, sample)) / len(sample) if sample else None


