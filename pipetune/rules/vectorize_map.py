"""`vectorize-map`: batch first, then call the function once per batch instead of once per element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.edits import Edit, Move, ReplaceFunction, Rewrite, Safety, Silence
from pipetune.core.functions import FunctionForm, OnBatches
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import described, deterministic, draws, keeps_state, runs_parallel, runs_python

NAME = "vectorize-map"

_HANDS_THROUGH = frozenset({"shuffle", "prefetch", "take", "skip", "shard", "repeat"})
"""Operators that hand every element through whole: whether it went through a function before makes no difference."""


@dataclass(frozen=True)
class MapAbove:
    """A map whose elements reach a batch through nothing but operators that hand them through, or other such maps."""

    node: Node
    why_not: str = ""  # why it has to stay above the batch


def maps_above(batch: Node, context: RuleContext) -> Iterator[MapAbove]:
    """The maps that could stand behind `batch`, nearest first; the last one says why it and those above cannot."""
    pipeline = context.pipeline
    current = batch
    while len(current.inputs) == 1:
        above = pipeline[current.inputs[0]]
        if len(pipeline.consumers(above.id)) != 1 or len(above.inputs) != 1:
            return
        if above.op == "map":
            why = _obstacle(above, context)
            yield MapAbove(above, why)
            if why:
                return
        elif above.op not in _HANDS_THROUGH:
            return
        current = above


def _obstacle(node: Node, context: RuleContext) -> str:
    """Why the function of a map must be called on single elements; empty where nothing says so."""
    if node.function is None:
        return "nothing is known about its function"
    if runs_python(node):
        return "its function runs Python"
    state = keeps_state(node)
    if state:
        return f"its function {state}"
    if draws(node):
        return "its function draws random numbers: once per element, and would draw them once per batch"
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id)):
        return "ignore_errors below drops the element that the function refuses, and would drop a whole batch"
    if node.function.can_raise:
        return "its function checks values, and would refuse a whole batch for one element"
    if node.function.on_batches is None:
        return "it is not known what its function does on batches"
    return node.function.on_batches.why_not


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for batch in context.pipeline:
        if batch.op != "batch" or len(batch.inputs) != 1:
            continue
        size = batch.argument("batch_size")
        if not isinstance(size, int) or size < 2:
            continue
        moved: list[Node] = []
        for found in maps_above(batch, context):
            if found.why_not:
                yield Silence(NAME, found.node.id, f"{described(found.node)} stays above the batch: {found.why_not}.")
                break
            moved.append(found.node)
            yield _rewrite(batch, tuple(moved), context)


def _rewrite(batch: Node, moved: tuple[Node, ...], context: RuleContext) -> Rewrite:
    """`moved`, nearest first, behind `batch`, in the order they had."""
    edits: list[Edit] = []
    inexact: set[str] = set()
    for node in moved:
        known = _known(node)
        inexact |= set(known.inexact)
        edits += [Move(node.id, batch.id), ReplaceFunction(node.id, known.form, known.digest)]
    reorders = any(runs_parallel(node) and not deterministic(node, context) for node in moved)
    safety = Safety.APPROXIMATE if inexact else Safety.REORDERS if reorders else Safety.EXACT
    notes = []
    if inexact:
        notes.append(f"The last bits of what {', '.join(sorted(inexact))} give depend on how many rows there are.")
    if any(_known(node).form is FunctionForm.VECTORIZED for node in moved):
        notes.append("tf.vectorized_map turns the function into one that works on a batch; it traces more slowly.")
    names = ", ".join(described(node) for node in reversed(moved))
    size = batch.argument("batch_size")
    return Rewrite(
        rule=NAME,
        node=moved[-1].id,
        safety=safety,
        edits=tuple(edits),
        summary=f"Batch first, then call {names} once per batch of {size}, not once per element.",
        group=f"{NAME}@{batch.id}",
        notes=tuple(notes),
    )


def _known(node: Node) -> OnBatches:
    assert node.function is not None and node.function.on_batches is not None
    return node.function.on_batches


RULE = Rule(
    name=NAME,
    summary="Batches first and calls the map's function once per batch, where it gives the same rows.",
    legality=(
        "The function is traced on batches and every op of it must be on a list of those that treat the rows of a "
        "batch one by one, its axes included; the same ops and constants must be in it as on single elements. Where "
        "that is not so it is called through tf.vectorized_map, if that knows a form for every op of it and needs no "
        "loop. "
        "Never a function with state, a Python function, control flow, a check on values or random numbers; never "
        "where a component of the map's input has no fixed shape. The batch must be a plain one, and between the "
        "two may stand only operators that hand elements through whole (shuffle, repeat, take, skip, shard, "
        "prefetch). Values are compared on real elements before a plan holds it."
    ),
    safety=(
        "EXACT where every op gives the same bits on batches. APPROXIMATE with ops whose last bits depend on how "
        "many rows they get at once (exp, log, pow, sums of floats). REORDERS where the map ran unordered."
    ),
    propose=propose,
)
