"""`drop-no-op`: remove operators that pass every element through unchanged and in order."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Remove, Rewrite, Safety, Silence
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import described, runs_ahead
from pipetune.rules.merge_repeats import shuffled_above
from pipetune.rules.prefetch import forbidden_ahead
from pipetune.rules.pricing import buffer_bytes

NAME = "drop-no-op"

_NEUTRAL = {"take": ("count", -1), "skip": ("count", 0), "repeat": ("count", 1), "shard": ("num_shards", 1)}
"""Per operator, the argument and the value with which every element passes once, in order."""

_PASS = "experimental_optimization.noop_elimination"
_DEFAULTS = "experimental_optimization.apply_default_optimizations"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if len(node.inputs) != 1:
            continue
        if node.op == "shuffle" and node.argument("buffer_size") == 1:
            yield Silence(NAME, node.id, f"{described(node)} stays: {_SHUFFLES_NOTHING}.")
        elif node.op == "prefetch":
            yield from _twin(node, context)
        elif _hands_on_everything(node, context):
            anew = shuffled_above(node, context) if node.op == "repeat" else None
            if anew is not None:
                why = f"{described(anew)} above draws its orders by how often it is begun"
                yield Silence(NAME, node.id, f"{described(node)} stays: {why}.")
            elif tensorflow_leaves_out(node, context):
                yield Silence(NAME, node.id, f"TensorFlow leaves {described(node)} out by itself.")
            else:
                yield from _left_out(node, context, summary=f"Leave out {described(node)}, which changes nothing.")


_SHUFFLES_NOTHING = (
    "it shuffles nothing, but its call draws a seed, and without it the shuffles after it would get other ones"
)


def _hands_on_everything(node: Node, context: RuleContext) -> bool:
    """Whether the output equals the input: elements, order, count, structure and static shapes."""
    if node.op in _NEUTRAL:
        name, value = _NEUTRAL[node.op]
        return node.argument(name) == value
    function = node.function
    return (
        node.op == "map"
        and function is not None
        and function.stateless
        and not function.can_raise
        and function.hands_on != ()
        and function.hands_on == tuple(range(len(function.hands_on)))
        and node.spec == context.pipeline[node.inputs[0]].spec
    )


def tensorflow_leaves_out(node: Node, context: RuleContext) -> bool:
    """Whether TensorFlow's own pass (`noop_elimination`) removes no-ops from the graph that it runs."""
    options = context.pipeline.options
    on = options.get(_PASS) if options.get(_PASS) is not None else options.get(_DEFAULTS)
    return on is not False


def _twin(node: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    """Proposes to remove the smaller of two consecutive prefetches."""
    above = context.pipeline[node.inputs[0]]
    if above.op != "prefetch" or len(above.inputs) != 1 or len(context.pipeline.consumers(above.id)) != 1:
        return
    smaller = node if _holds_less(node, above) else above
    yield from _left_out(
        smaller, context, summary=f"Leave out {described(smaller)}: another prefetch stands next to it."
    )


def _holds_less(one: Node, other: Node) -> bool:
    sizes = [node.argument("buffer_size") for node in (one, other)]
    first, second = (size if isinstance(size, int) else AUTOTUNE for size in sizes)
    return first != AUTOTUNE and (second == AUTOTUNE or first < second)


def _left_out(node: Node, context: RuleContext, *, summary: str) -> Iterator[Rewrite | Silence]:
    ahead = runs_ahead(node)
    why = forbidden_ahead(context.pipeline.upstream(node.id), context) if ahead else ""
    if why:
        yield Silence(NAME, node.id, f"{described(node)} stays: {why}.")
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
    summary="Leaves out operators that change nothing: identity maps, take(-1), skip(0), repeat(1), a second prefetch.",
    legality=(
        "A map only where its traced function hands every component on as it got it, with the same structure, types "
        "and static shapes, and neither checks values nor keeps state: one that sets shapes, asserts or prints is no "
        "no-op. Of two prefetches directly behind each other the one that holds less. Never a shuffle, for its call "
        "draws a seed, nor a repeat below one that orders each epoch anew, nor batches, which make other elements, "
        "nor where what is read ahead reads what training changes. Nothing is proposed where TensorFlow's own pass "
        "leaves the operator out."
    ),
    safety="EXACT: the same elements in the same order.",
    propose=propose,
)
