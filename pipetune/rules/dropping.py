"""Moves operators that drop elements by position before the maps; shared by `split-early` and `shard-early`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pipetune.core.edits import Edit, Move, Rewrite, Silence
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import DROPS_BY_PLACE, described, runs_parallel
from pipetune.rules.moving import Obstacle, Step, place_group, steps_up
from pipetune.rules.parallel_map import tensorflow_does_it
from pipetune.rules.pricing import ASSUMED_AUTOTUNE_ELEMENTS

_WORTH = 0.03
"""Elements read ahead in vain per element that a `take` lets through: with fewer, no trial could accept its move."""

_ERRORS = "What is dropped is then never computed: an error in it no longer ends the run."


def drop_first(context: RuleContext, *, rule: str, concerns: frozenset[str]) -> Iterator[Rewrite | Silence]:
    """Yields the move of each dropping operator, with those directly upstream of it, past the maps further upstream.

    Args:
        rule: name of the proposing rule.
        concerns: the operators of `DROPS_BY_PLACE` that this rule handles; of several consecutive ones, the most
            downstream one stands for all.
    """
    for node in context.pipeline:
        if node.op not in concerns or len(node.inputs) != 1:
            continue
        readers = context.pipeline.consumers(node.id)
        if len(readers) != 1 or readers[0].op not in concerns:
            yield from _move_up(_run(node, context), context, rule=rule)


def _run(node: Node, context: RuleContext) -> tuple[Node, ...]:
    """Returns `node` and the operators directly upstream that drop by position too, the most upstream first."""
    run: tuple[Node, ...] = (node,)
    while True:
        above = context.pipeline[run[0].inputs[0]]
        if above.op not in DROPS_BY_PLACE or len(context.pipeline.consumers(above.id)) != 1:
            return run
        run = (above, *run)


def _move_up(run: tuple[Node, ...], context: RuleContext, *, rule: str) -> Iterator[Rewrite | Silence]:
    top, node = run[0], run[-1]
    names = " and ".join(one.op for one in run)
    stay = "stays" if len(run) == 1 else "stay"
    steps: list[Step] = []
    stopped: Obstacle | None = None
    for step in steps_up(context, top, along=run[1:]):
        if isinstance(step, Step):
            steps.append(step)
        else:
            stopped = step
    while steps and steps[-1].passed.op != "map":
        steps.pop()  # passing operators that do no work gains nothing
    if not steps:
        if stopped is not None:
            yield Silence(rule, node.id, f"The {names} {stay} behind {described(stopped.node)}: {stopped.why}.")
        return
    best = steps[-1]
    why = _nothing_saved(run, [step.passed for step in steps], context)
    if why:
        yield Silence(rule, node.id, f"The {names} {stay} behind {described(best.maps[0])}: {why}.")
        return
    edits: list[Edit] = [Move(top.id, best.anchor)]
    edits += [Move(lower.id, upper.id) for upper, lower in pairwise(run)]
    maps = ", ".join(described(one) for one in reversed(best.maps))
    yield Rewrite(
        rule=rule,
        node=node.id,
        safety=best.safety,
        edits=tuple(edits),
        summary=f"Let {names} drop elements before {maps} instead of computing them first.",
        group=place_group(top),
        notes=(_ERRORS,),
    )


def _nothing_saved(run: tuple[Node, ...], passed: list[Node], context: RuleContext) -> str:
    """Returns why the passed operators would compute about as many elements as before; "" if they would not."""
    counts = [(node.op, node.argument("num_shards" if node.op == "shard" else "count")) for node in run]
    if any(not isinstance(count, int) for _, count in counts):
        return "it is not known how many elements it drops"
    if any(count != 0 for op, count in counts if op == "skip") or any(
        count != 1 for op, count in counts if op == "shard"
    ):
        return ""
    let_through = [count for op, count in counts if op == "take" and isinstance(count, int) and count >= 0]
    if not let_through:
        return "it drops nothing"
    ahead, least = sum(_read_ahead(node, context) for node in passed), min(let_through)
    if ahead < _WORTH * least or least == 0:
        return f"of what a take drops no more than {ahead} elements are computed, ahead of the {least} it lets through"
    return ""


def _read_ahead(node: Node, context: RuleContext) -> int:
    """Returns how many elements an operator may produce before they are requested."""
    if node.op == "prefetch":
        size = node.argument("buffer_size")
        return ASSUMED_AUTOTUNE_ELEMENTS if size == AUTOTUNE or not isinstance(size, int) else size
    if node.op != "map" or not (runs_parallel(node) or tensorflow_does_it(node, context)):
        return 0
    calls = node.argument("num_parallel_calls")
    return calls if isinstance(calls, int) and calls != AUTOTUNE else context.cores
