"""`merge-repeats`: merge consecutive repeats into one."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipetune.core.edits import Edit, Remove, Rewrite, Safety, SetArgument, Silence
from pipetune.core.pipeline import INFINITE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.epoch_constancy import shuffles_anew
from pipetune.rules.legality import described

NAME = "merge-repeats"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        readers = context.pipeline.consumers(node.id)
        lowest = len(readers) != 1 or readers[0].op != "repeat"
        if node.op != "repeat" or len(node.inputs) != 1 or not lowest:
            continue
        run = _run(node, context)
        if len(run) > 1:
            yield _merged(run, context)


def _run(node: Node, context: RuleContext) -> tuple[Node, ...]:
    """Returns `node` and the repeats directly upstream without another consumer, the most upstream first."""
    run: tuple[Node, ...] = (node,)
    while True:
        above = context.pipeline[run[0].inputs[0]]
        if above.op != "repeat" or len(above.inputs) != 1 or len(context.pipeline.consumers(above.id)) != 1:
            return run
        run = (above, *run)


def _merged(run: tuple[Node, ...], context: RuleContext) -> Rewrite | Silence:
    counts = [_count(node) for node in run]
    if any(count is None for count in counts):
        why = f"{described(run[0])} and the next stay two: it is not known how often they repeat."
        return Silence(NAME, run[-1].id, why)
    known = [count for count in counts if count is not None]
    if 0 in known:
        return Silence(NAME, run[-1].id, "A repeat of none gives no element: there is nothing to merge.")
    anew = shuffled_above(run[0], context)
    if anew is not None:
        why = f"{described(anew)} above draws its orders by how often it is begun, and later epochs would get others"
        return Silence(NAME, run[-1].id, f"{described(run[0])} and the next stay two: {why}.")
    together = INFINITE if INFINITE in known else math.prod(known)
    kept = run[known.index(together)] if together in known else run[0]
    edits: list[Edit] = [Remove(node.id) for node in run if node is not kept]
    if _count(kept) != together:
        edits.append(SetArgument(kept.id, "count", together))
    often = "for ever" if together == INFINITE else f"{together} times"
    return Rewrite(
        rule=NAME,
        node=run[-1].id,
        safety=Safety.EXACT,
        edits=tuple(edits),
        summary=f"Repeat {often} in one step instead of {len(run)}.",
        group=f"{NAME}@{run[0].id}",
    )


def shuffled_above(repeat: Node, context: RuleContext) -> Node | None:
    """Returns an operator upstream that reshuffles each epoch; its orders depend on the repeats downstream.

    Measured with TensorFlow 2.21: `shuffle(5, seed=3).repeat(2).repeat(3)`, iterated again, has other orders than
    `shuffle(5, seed=3).repeat(6)`.
    """
    return next((node for node in context.pipeline.upstream(repeat.id) if shuffles_anew(node)), None)


def _count(node: Node) -> int | None:
    """Returns how often a repeat outputs its input, `INFINITE` if endless; None if not known."""
    count = node.argument("count")
    return max(count, INFINITE) if isinstance(count, int) else None


RULE = Rule(
    name=NAME,
    summary="Makes one repeat of several that stand directly behind each other.",
    legality=(
        "Only repeats with nothing between them and no other reader, whose counts are known and not 0. Finite counts "
        "are multiplied; one without end makes all of it without end. Never below a shuffle that orders each epoch "
        "anew: its later orders depend on how often it is begun."
    ),
    safety="EXACT: the same epochs, one after the other.",
    propose=propose,
)
