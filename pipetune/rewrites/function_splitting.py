"""`split-map`: split a function in two before its first random draw or call of Python, to cache what precedes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import Insert, Move, NoProposal, Rewrite, Safety, SplitFunction, apply_edits
from pipetune.core.functions import FunctionSplit
from pipetune.core.measurement import percent
from pipetune.core.pipeline import Node
from pipetune.core.profile import with_part_costs
from pipetune.rewrites.cache_places import (
    CachePosition,
    MovedOperators,
    available_cache_bytes,
    cache_group,
    describe_memory_saving,
    position_after,
)
from pipetune.rewrites.pricing import format_bytes, seconds_per_output
from pipetune.rewrites.reorder import UpstreamMove, shuffle_move_class, upstream_moves
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    describe_operator,
    describe_state,
    keeps_order,
    requests_parallelism,
)

NAME = "split-map"

MIN_SAVED_SHARE = 0.10
"""Minimum saving, as a share of the input's CPU time: two functions in place of one are new code, and whether a saving
of a few percent is accepted would change from run to run."""


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields maps that are split to cache their first part, or why they are not."""
    for node in context.pipeline:
        split = node.function.before_draws if node.function is not None else None
        if split is not None:
            found = _split_obstacle(node, split, context) or _cached_first_part(node, split, context)
            if isinstance(found, Rewrite):
                yield found
            else:
                whole = f"The function of {describe_operator(node)} is not split {split.kind}"
                yield NoProposal(NAME, node.id, f"{whole}: {found}.")


def _split_obstacle(node: Node, cut: FunctionSplit, context: RuleContext) -> str:
    """Returns why the part of the function before the cut cannot be split off; "" if it can."""
    if outside := describe_state(node):
        return f"it {outside}"
    if cut.why_not:
        return cut.why_not
    if requests_parallelism(node) and not keeps_order(node, context):
        return "`deterministic=False` lets elements overtake each other, and a cache would freeze one order"
    if context.partial_read:
        return "a consumer stops before the end of the data, so a cache would never be complete"
    return ""


def _cached_first_part(node: Node, cut: FunctionSplit, context: RuleContext) -> Rewrite | str:
    """Returns the rewrite that caches the first part, or why it is not worthwhile."""
    split = SplitFunction(node.id, cut)
    measured = context.measured(node.id)
    if context.profile is None or measured is None or measured.head_share is None:
        return "the cost of the part before that is unknown"
    edited = apply_edits(context.pipeline, [split])
    rebuilt = context.rebuilt_operators | ({split.head} if node.id in context.rebuilt_operators else set())
    profile = with_part_costs(context.profile, edited)
    split_context = replace(context, pipeline=edited, profile=profile, rebuilt_operators=rebuilt)
    place = position_after(split_context, edited[split.head])
    if isinstance(place, NoProposal):
        return f"the part before that cannot be cached. {place.why.rstrip('.')}"
    if place.safety is Safety.REORDERS:
        return "the part before that cannot be cached: the order upstream differs in each epoch"
    if place.never_pays:
        return "the script reads its data once, and a cache pays off only in later epochs"
    if place.size_bytes > available_cache_bytes(context):
        size = format_bytes(place.size_bytes)
        return f"a cache of the part before that would take {size}, more than the memory limit leaves"
    operators = sum((one.cpu_seconds or 0.0) * (one.visits or 0.0) for one in context.profile.operators)
    own, whole = seconds_per_output(split_context, split.head), context.profile.input_cpu_seconds or operators
    if own is None or not whole or own < MIN_SAVED_SHARE * whole:
        little = "less than a tenth of the input's CPU time: too little to justify the additional code"
        return f"the part before that takes {percent(measured.head_share)} of its time, {little}"
    shuffle = place.moved or _downstream_shuffle(split_context, node, split.head)
    group = cache_group(context.pipeline, node.id)
    return _rewrite(node, split, place, shuffle, group=group, share=measured.head_share)


def _downstream_shuffle(context: RuleContext, tail: Node, head: str) -> MovedOperators | None:
    """Returns the shuffle downstream of the second part to move upstream of it; None if there is none that may.

    Its buffer then holds cached elements, which take no more memory there, and the first batch of an epoch no longer
    waits until the second part has been computed for the whole buffer. `context` is that of the split pipeline, `head`
    the id of the map that calls the first part, and `tail` calls the second.
    """
    shuffle = next((node for node in context.pipeline.downstream(tail.id) if node.op == "shuffle"), None)
    if shuffle is None:
        return None
    for step in upstream_moves(context, shuffle):
        if isinstance(step, UpstreamMove) and step.passed.id == tail.id:
            return MovedOperators((Move(shuffle.id, head),), *shuffle_move_class(shuffle, context, step))
    return None


def _rewrite(
    node: Node, split: SplitFunction, place: CachePosition, shuffle: MovedOperators | None, *, group: str, share: float
) -> Rewrite:
    paid, function = describe_memory_saving(place), node.function
    assert function is not None
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=max(Safety.STATISTICAL, shuffle.safety if shuffle else Safety.EXACT),
        edits=(
            split,
            *(shuffle.moves if shuffle else ()),
            Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""}),
        ),
        summary=(
            f"Split the function of {describe_operator(node)} {split.cut.kind}, and cache the first part in "
            f"memory ({place.elements:,} elements, {format_bytes(place.size_bytes)}): only the "
            f"first epoch computes this part, {percent(share)} of the work."
        ),
        group=group,
        notes=(
            *([paid] if paid else ()),
            *(shuffle.notes if shuffle else ()),
            *([_DRAWS] if function.random else ()),
            *([_CALLS] if function.python else ()),
        ),
        predicted_bytes=place.size_bytes,
    )


_DRAWS = "The number and order of random draws stay the same; an op without a seed of its own may get a different one."
_CALLS = "Python is called as often, in the same order and with the same values."

RULE = Rule(
    name=NAME,
    summary="Splits a map's function in two before its first random draw or call of Python, to cache the first part.",
    legality=(
        "Everything before the first op that draws random numbers or calls Python depends on the element alone, and "
        "is cached if `cache` allows that: nothing upstream may differ between epochs, including the order, and the "
        "data must be read to its end more than once and fit in memory at a known price. The cached part must account "
        "for at least a tenth of the input's CPU time. A shuffle downstream of the map moves in front of the second "
        "part, as `shuffle-small` moves it. Never a function with variables, mutable tables or side effects; never "
        "inside a branch or a loop. At run time the graph is split; in source, a function is split between two "
        "statements, or, like a lambda, behind the call of another function in one, and its local variables are passed "
        "on. If the two splits differ, the rewrite stays in the plan and says why."
    ),
    safety="STATISTICAL, although ops with seeds of their own draw the same numbers.",
    propose=propose,
    order=2,  # both parts then inherit the values that other rules set for the whole map
)
