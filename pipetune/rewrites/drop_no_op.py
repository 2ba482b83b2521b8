"""`drop-no-op`: remove operators that pass every element through unchanged and in order."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipetune.core.edits import NoProposal, Remove, Rewrite, Safety
from pipetune.core.operators import runs_pass
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rewrites.legality import describe_operator, runs_ahead
from pipetune.rewrites.prefetch import read_ahead_obstacle
from pipetune.rewrites.pricing import buffer_bytes
from pipetune.rewrites.rule import Rule, RuleContext
from pipetune.rewrites.shuffle_repeat import upstream_reshuffle

NAME = "drop-no-op"


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the removal of each operator that has no effect, and why others that seem to have none stay."""
    for node in context.pipeline:
        if len(node.inputs) != 1:
            continue
        if node.op == "shuffle" and node.argument("buffer_size") == 1:
            why = "the call draws a seed, and without it the following shuffles would get different seeds"
            yield NoProposal(NAME, node.id, f"{describe_operator(node)} stays: it does not shuffle, but {why}.")
        elif node.op == "prefetch":
            yield from _remove_redundant_prefetch(node, context)
        elif context.pipeline.has_no_effect(node):
            reshuffle = upstream_reshuffle(node, context) if node.op == "repeat" else None
            if reshuffle is not None:
                shuffle = describe_operator(reshuffle)
                why = f"the orders of {shuffle} upstream depend on how often its iteration is restarted"
                yield NoProposal(NAME, node.id, f"{describe_operator(node)} stays: {why}.")
            elif runs_pass(context.pipeline.options, "noop_elimination"):
                yield NoProposal(NAME, node.id, f"TensorFlow removes {describe_operator(node)} itself.")
            else:
                yield from _removal(node, context, summary=f"Remove {describe_operator(node)}, which has no effect.")


def _remove_redundant_prefetch(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    above = context.pipeline[node.inputs[0]]
    if above.op != "prefetch" or len(above.inputs) != 1 or len(context.pipeline.consumers(above.id)) != 1:
        return
    sizes = (one.argument("buffer_size") for one in (node, above))
    here, there = (size if isinstance(size, int) and size != AUTOTUNE else math.inf for size in sizes)
    smaller = node if here < there else above
    summary = f"Remove {describe_operator(smaller)}: it is next to another prefetch."
    yield from _removal(smaller, context, summary=summary)


def _removal(node: Node, context: RuleContext, *, summary: str) -> Iterator[Rewrite | NoProposal]:
    if runs_ahead(node) and (why := read_ahead_obstacle(context.pipeline.upstream(node.id))):
        yield NoProposal(NAME, node.id, f"{describe_operator(node)} stays: {why}.")
        return
    size = node.argument("buffer_size")
    held = buffer_bytes(context, node.inputs[0], size) if node.op == "prefetch" and isinstance(size, int) else 0.0
    yield Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.EXACT,
        edits=(Remove(node.id),),
        summary=summary,
        group=f"{NAME}@{node.id}",
        predicted_bytes=-held,
    )


RULE = Rule(
    name=NAME,
    summary="Removes operators without effect: identity maps, take(-1), skip(0), repeat(1), a second prefetch.",
    legality=(
        "A map is removed only if its traced function returns every component unchanged, with the same structure, "
        "types and static shapes, and neither validates values nor keeps state: a map that sets shapes, asserts or "
        "prints is not a no-op. Of two consecutive prefetches, the smaller one is removed. Never a shuffle, because "
        "its call draws a seed; never a repeat downstream of an operator that reshuffles each epoch; never a batch, "
        "which produces other elements; and never if an operator that reads ahead reads what training changes. Nothing "
        "is proposed if TensorFlow's own pass removes the operator."
    ),
    safety="EXACT: the same elements in the same order.",
    propose=propose,
)
