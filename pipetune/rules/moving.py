"""Moves an operator upstream past others: which ones it may pass, and the resulting safety class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.edits import Safety
from pipetune.core.operators import CAUTIOUS, Count, facts
from pipetune.core.pipeline import DEFAULT_GRAPH_SEED, Node, Pipeline
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import DROPS_BY_PLACE, described, deterministic, draws, keeps_state, runs_python

_DROPS = DROPS_BY_PLACE | {"filter"}

_PASSIVE = frozenset({"prefetch", "with_options", "assert_cardinality"})
"""Operators that pass every element through in order: the moved operator may swap places with them."""

_KEEPS_COUNT = frozenset({"assert_cardinality"})
"""Those of them that only one-to-one operators may pass: they compare the element count with the script's."""


@dataclass(frozen=True)
class Step:
    """One operator that was passed: the place upstream of it, and the worst safety class so far."""

    passed: Node
    anchor: str  # the operator that the moved one would then directly follow
    safety: Safety
    maps: tuple[Node, ...]  # the maps passed so far, nearest first


@dataclass(frozen=True)
class Obstacle:
    """The operator that cannot be passed, and why."""

    node: Node
    why: str


def steps_up(context: RuleContext, node: Node, *, along: tuple[Node, ...] = ()) -> Iterator[Step | Obstacle]:
    """Yields the places that `node` can be moved up to, nearest first, and finally an `Obstacle` if a map stops it.

    The moved operator keeps, drops or permutes elements and modifies none (shuffle, prefetch, take, skip, shard,
    repeat, filter), so it commutes with a map that depends on its element alone. A random map may be passed, but its
    draws then meet other elements. Whether a filter decides the same upstream of a map is checked by its rule.

    Args:
        node: the operator to move.
        along: operators directly downstream of `node` that move with it.
    """
    safety, maps = Safety.EXACT, list[Node]()
    moved = (node, *along)
    one_to_one = all(facts(one.op).count is Count.ONE_TO_ONE for one in moved)
    for above in way_up(context.pipeline, node):
        if above.op == "map":
            why = _map_obstacle(above, context, moved={one.op for one in moved})
            if why:
                yield Obstacle(above, why)
                return
            safety = max(safety, _class_of_passing(above, context))
            maps.append(above)
        elif above.op not in _PASSIVE or (above.op in _KEEPS_COUNT and not one_to_one):
            return
        yield Step(above, above.inputs[0], safety, tuple(maps))


def way_up(pipeline: Pipeline, node: Node) -> Iterator[Node]:
    """Yields the operators upstream of `node`, nearest first, as long as each has one input and one consumer."""
    while len(node.inputs) == 1:
        node = pipeline[node.inputs[0]]
        if len(pipeline.consumers(node.id)) != 1 or len(node.inputs) != 1:
            return
        yield node


def _map_obstacle(above: Node, context: RuleContext, *, moved: set[str]) -> str:
    """Returns why operators of the kinds `moved` must not pass a map; "" if they may."""
    if above.function is None:
        return "nothing is known about its function"
    if runs_python(above):
        return "its function runs Python, which may depend on the order of elements"
    state = keeps_state(above)
    if state:
        return f"its function {state}"
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(above.id)):
        return "ignore_errors below drops what the map refuses, and which elements that are may change"
    if not moved & _DROPS:
        return ""
    if above.function.can_raise:
        return "its function checks values, and would no longer check those that are dropped"
    if draws(above):
        return "its function draws random numbers, and other elements would get them"
    if moved & DROPS_BY_PLACE and not deterministic(above, context):
        return "it need not keep the order, and other elements would be dropped"
    return _read_less_far(above, context) if "take" in moved else ""


def _read_less_far(above: Node, context: RuleContext) -> str:
    """Returns why the operators upstream of a map must be read as far as it reads ahead of a `take`; "" if not."""
    for source in context.pipeline.upstream(above.id):
        if source.op in ("cache", "snapshot"):
            return f"{described(source)} above it might never be read to its end"
        drawn = source.function is not None and draws(source)
        if drawn or runs_python(source) or keeps_state(source) or facts(source.op) is CAUTIOUS:
            return f"{described(source)} above it has state, and would be read less far ahead"
    return ""


def _class_of_passing(above: Node, context: RuleContext) -> Safety:
    return Safety.STATISTICAL if draws(above) else Safety.EXACT


def seed_draws_may_swap(context: RuleContext, moved: Node, passed: tuple[Node, ...]) -> bool:
    """Whether moving an unseeded shuffle call in the source may move it past another call that draws a seed.

    An unseeded shuffle draws its seed from a counter that all calls of the script share. Only calls that directly
    follow one another in one function are certain to have no other call in between.
    """
    if not context.randomness_fixed or _seed_given(moved) or moved.location is None:
        return False
    below = moved.location
    for node in passed:
        above = node.location
        if above is None or (above.file, above.scope) != (below.file, below.scope):
            return True
        if not 0 <= below.line - above.end_line <= 1:
            return True
        below = above
    return False


def _seed_given(shuffle: Node) -> bool:
    """Whether the call certainly passes a seed: under a global seed, a drawn one looks the same in the dataset."""
    seed = shuffle.argument("seed")
    if not isinstance(seed, str):
        return seed is not None
    return "," not in seed or seed.startswith(f"{DEFAULT_GRAPH_SEED},")


def shuffle_move_class(shuffle: Node, context: RuleContext, step: Step) -> tuple[Safety, tuple[str, ...]]:
    """Returns the safety class of moving `shuffle` up by `step`, and the notes for the user."""
    safety, notes = step.safety, list[str]()
    if any(draws(node) for node in step.maps):
        notes.append("The order stays; the random draws of the maps meet other elements.")
    if seed_draws_may_swap(context, shuffle, step.maps):
        safety = max(safety, Safety.STATISTICAL)
        notes.append("The shuffle has no seed of its own: moving its call may give it another one.")
    return safety, tuple(notes)


def place_group(node: Node) -> str:
    """Returns the group of all rewrites that move `node`, whichever rule proposes them."""
    return f"place@{node.id}"
