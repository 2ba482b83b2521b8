"""Whether the elements at a place are the same, in the same order, in every epoch: the precondition of a cache."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pipetune.core.operators import Epochs, Order, facts
from pipetune.core.pipeline import INFINITE, Node
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import (
    POSITIONAL,
    asserts,
    deterministic,
    draws,
    inner_facts,
    is_unknown,
    keeps_state,
    order_asked_for,
    runs_parallel,
    runs_python,
)

READS_PARTLY = frozenset({"take", "take_while", "zip", "choose"})
"""Operators that may stop before their input ends: a cache upstream may never be complete, and is then refilled."""


class Constancy(enum.IntEnum):
    """How much of the data repeats in every epoch, from everything to nothing."""

    SAME = 0
    SAME_ELEMENTS = 1  # in a different order each epoch
    DIFFERENT = 2


@dataclass(frozen=True)
class Finding:
    """The constancy at one place, and the operator that decides it."""

    constancy: Constancy
    node: str = ""
    why: str = ""


def constancy_after(context: RuleContext, node_id: str, *, read_whole: bool = True) -> Finding:
    """Returns how much of the output of `node_id` repeats in every epoch; a cache makes all upstream of it constant.

    Args:
        context: provides the pipeline.
        node_id: the operator whose output is judged.
        read_whole: whether its output is read to the end in every epoch; if not, a cache upstream is never complete.
    """
    node = context.pipeline[node_id]
    own = _of(node, context)
    if (node.op == "cache" and read_whole) or own.constancy is Constancy.DIFFERENT:
        return own
    read_whole = read_whole and node.op not in READS_PARTLY
    above = max(
        (constancy_after(context, name, read_whole=read_whole) for name in node.inputs),
        key=lambda finding: finding.constancy,
        default=own,
    )
    if above.constancy is Constancy.SAME_ELEMENTS and (why := _by_position(node)):
        return Finding(Constancy.DIFFERENT, node.id, why)
    return max((own, above), key=lambda finding: finding.constancy)


def _of(node: Node, context: RuleContext) -> Finding:
    """Returns the constancy of `node` alone, without its inputs."""
    unread = facts(node.op).takes_function and node.function is None
    for holds, constancy, why in (
        (is_unknown(node), Constancy.DIFFERENT, "it is not known what this step does"),
        (unread, Constancy.DIFFERENT, "nothing is known about its function"),
        (runs_python(node), Constancy.DIFFERENT, "it runs Python, which may give something else each time"),
        (draws(node) and node.op != "shuffle", Constancy.DIFFERENT, "it draws random numbers"),
        (bool(keeps_state(node)), Constancy.DIFFERENT, f"its function {keeps_state(node)}"),
        (_ends_never(node), Constancy.DIFFERENT, "it repeats without end: the cache would never be complete"),
        (node.op == "repeat", Constancy.DIFFERENT, "it repeats: the cache would hold each epoch again"),
        (node.op == "snapshot", Constancy.DIFFERENT, "it stores its elements already"),
        (asserts(node), Constancy.DIFFERENT, "it refuses elements, and from the second epoch on none would be refused"),
        (
            batches_of_several_sizes(node, context),
            Constancy.DIFFERENT,
            "it refuses a last batch that is shorter, and from the second epoch on would not",
        ),
        (
            _unordered(node, context),
            Constancy.DIFFERENT,
            "`deterministic=False` lets elements overtake each other",
        ),
        (shuffles_anew(node), Constancy.SAME_ELEMENTS, "it shuffles anew in each epoch"),
    ):
        if holds:
            return Finding(constancy, node.id, why)
    return Finding(Constancy.SAME, node.id)


def batches_of_several_sizes(node: Node, context: RuleContext) -> bool:
    """Whether `node` may batch batches of which the last one is shorter, which TensorFlow refuses."""
    if node.op != "batch":
        return False
    given = context.pipeline[node.inputs[0]].spec
    if given and "None" not in given:
        return False
    for above in reversed(context.pipeline.upstream(node.id)):
        if above.op in ("flat_map", "interleave"):
            return "None" in above.spec and any("Batch" in kernel for kernel in above.inner)
        if above.op == "unbatch":
            return False
        if facts(above.op).batches:
            size, rows = above.argument("batch_size"), context.pipeline[above.inputs[0]].cardinality
            whole = rows >= 0 and isinstance(size, int) and size > 0 and rows % size == 0
            return not above.argument("drop_remainder") and not whole
    return False


def _by_position(node: Node) -> str:
    """Returns why `node` outputs other elements if the order of its input changes; "" if it does not."""
    if node.op in POSITIONAL:
        return "what it gives depends on the order of elements, and the shuffle above draws one for each epoch"
    if facts(node.op).batches and node.argument("drop_remainder"):
        return "behind a shuffle it drops other elements at the end of each epoch"
    return ""


def frozen_with_order(node: Node) -> str:
    """Returns what `node` varies between epochs and would repeat if its input had a fixed order; "" if nothing."""
    if _by_position(node):
        return "each epoch takes or joins other elements by their places, and would not with the order of the first"
    if draws(node) and node.op != "shuffle" and node.function is not None and node.function.seeded:
        return "its draws repeat in each epoch, and would go to the same elements with the order of the first"
    return ""


def _ends_never(node: Node) -> bool:
    return node.op == "repeat" and node.argument("count") in (None, INFINITE)


def _unordered(node: Node, context: RuleContext) -> bool:
    if node.argument("deterministic") is False or node.argument("deterministic") == "false":
        return True
    if node.op == "map" and not order_asked_for(context):
        return True  # TensorFlow may run it in parallel by itself
    return (runs_parallel(node) or node.op == "interleave") and not deterministic(node, context)


def shuffles_anew(node: Node) -> bool:
    """Whether the operator reshuffles its elements in each epoch."""
    shuffles = facts(node.op).order is Order.SHUFFLES and facts(node.op).epochs is Epochs.DIFFERENT
    shuffles = shuffles or any(inner.order is Order.SHUFFLES for inner in inner_facts(node))
    return shuffles and node.argument("reshuffle_each_iteration") is not False
