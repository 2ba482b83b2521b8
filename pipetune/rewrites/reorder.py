"""`filter-early`, `split-early` and `shard-early`: drop elements before the maps that would compute them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile

from pipetune.core.edits import Move, NoProposal, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionVariant, PredicatePushdown
from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import AUTOTUNE, DEFAULT_GRAPH_SEED, Node, SourceLocation
from pipetune.rewrites.pricing import ASSUMED_AUTOTUNE_ELEMENTS
from pipetune.rewrites.rule import (
    DROPS_BY_POSITION,
    Rule,
    RuleContext,
    at_each,
    describe_operator,
    describe_state,
    draws_random_numbers,
    errors_are_ignored,
    is_unknown,
    keeps_order,
    runs_in_parallel,
    runs_python,
    upstream_chain,
)

_DROPS = DROPS_BY_POSITION | {"filter"}  # operators that drop elements

_PASSIVE = frozenset({"prefetch", "with_options", "assert_cardinality"})
"""Operators that pass every element through in order: the moved operator may swap places with them."""


@dataclass(frozen=True)
class UpstreamMove:
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


def upstream_moves(
    context: RuleContext, node: Node, *, moved_along: tuple[Node, ...] = ()
) -> Iterator[UpstreamMove | Obstacle]:
    """Yields the places that `node` can be moved up to, nearest first, and finally an `Obstacle` if a map stops it.

    The moved operator keeps, drops or permutes elements and modifies none (shuffle, prefetch, take, skip, shard,
    repeat, filter), so it commutes with a map that depends on its element alone. A random map may be passed, but its
    draws then meet other elements. Whether a filter decides the same upstream of a map is checked by its rule.

    Args:
        node: the operator to move.
        moved_along: operators directly downstream of `node` that move with it.
    """
    safety, maps = Safety.EXACT, list[Node]()
    moved = (node, *moved_along)
    one_to_one = all(operator_facts(one.op).count is CountEffect.ONE_TO_ONE for one in moved)
    for above in upstream_chain(context.pipeline, node):
        if above.op == "map":
            if why := _map_obstacle(above, context, moved={one.op for one in moved}):
                yield Obstacle(above, why)
                return
            safety = max(safety, Safety.STATISTICAL if draws_random_numbers(above) else Safety.EXACT)
            if node.op == "repeat" and not keeps_order(above, context):
                safety = Safety.REORDERS  # elements of two epochs may then overtake each other
            maps.append(above)
        elif above.op not in _PASSIVE or (above.op == "assert_cardinality" and not one_to_one):
            return  # an assertion compares the element count with the script's
        yield UpstreamMove(above, above.inputs[0], safety, tuple(maps))


def run_down_to(node: Node, kinds: Collection[str], context: RuleContext) -> tuple[Node, ...]:
    """Returns `node` and the operators of these kinds directly upstream of it, the most upstream first."""
    above = takewhile(lambda above: above.op in kinds, upstream_chain(context.pipeline, node))
    return (*reversed(tuple(above)), node)


def _map_obstacle(above: Node, context: RuleContext, *, moved: set[str]) -> str:
    """Returns why operators of the kinds `moved` must not pass a map; "" if they may."""
    if above.function is None:
        return "nothing is known about its function"
    if runs_python(above) and not context.python_repeats:
        return "its function runs Python, which may depend on the order of elements"
    if state := describe_state(above):
        return f"its function {state}"
    if errors_are_ignored(above, context):
        return "ignore_errors downstream drops the elements on which the map fails, and which ones these are may change"
    if not moved & _DROPS:
        return ""
    if above.function.can_raise:
        return "its function validates values, and would no longer validate those that are dropped"
    if moved & DROPS_BY_POSITION and not keeps_order(above, context):
        return "it need not keep the order, so different elements would be dropped"
    return _read_ahead_obstacle(above, context) if "take" in moved else ""


def _read_ahead_obstacle(above: Node, context: RuleContext) -> str:
    """Returns why the operators upstream of a map must be read as far as it reads ahead of a `take`; "" if not."""
    for source in context.pipeline.upstream(above.id):
        if source.op in ("cache", "snapshot"):
            return f"{describe_operator(source)} upstream might never be read to its end"
        drawn = source.function is not None and draws_random_numbers(source)
        if drawn or runs_python(source) or describe_state(source) or is_unknown(source):
            return f"{describe_operator(source)} upstream has state, and would not be read as far ahead"
    return ""


def _seed_draws_may_swap(context: RuleContext, moved: Node, step: UpstreamMove) -> bool:
    """Whether moving an unseeded shuffle call in the source may move it past another call that draws a seed.

    An unseeded shuffle draws its seed from a counter that all calls of the script share. There is no other call in
    between where the calls directly follow one another in one function, or where no seed was drawn in between and the
    call makes this dataset only. `step` is the move up, or that back up from the new place.
    """
    if not context.randomness_fixed or _has_explicit_seed(moved) or moved.location is None or not step.maps:
        return False
    moves_up = step.maps[0].id not in {node.id for node in context.pipeline.downstream(moved.id)}
    calls = (*reversed(step.maps), moved) if moves_up else (moved, *reversed(step.maps))
    if all(_directly_follows(first.location, second.location) for first, second in pairwise(calls)):
        return False
    first, last = (context.pipeline[step.anchor], moved) if moves_up else (moved, step.maps[0])
    if first.seeds_drawn is None or last.seeds_drawn is None or moved.shared > 1:
        return True
    return last.seeds_drawn - first.seeds_drawn > (1 if moves_up else 0)  # with its own


def _directly_follows(first: SourceLocation | None, second: SourceLocation | None) -> bool:
    if first is None or second is None or (first.file, first.scope) != (second.file, second.scope):
        return False
    return 0 <= second.line - first.end_line <= 1


def _has_explicit_seed(shuffle: Node) -> bool:
    """Whether the call certainly passes a seed: under a global seed, a drawn one looks the same in the dataset."""
    seed = shuffle.argument("seed")
    if not isinstance(seed, str):
        return seed is not None
    return "," not in seed or seed.startswith(f"{DEFAULT_GRAPH_SEED},")


def shuffle_move_class(shuffle: Node, context: RuleContext, step: UpstreamMove) -> tuple[Safety, tuple[str, ...]]:
    """Returns the safety class of moving `shuffle` up by `step`, and the notes for the user."""
    safety, notes = step.safety, list[str]()
    if any(draws_random_numbers(node) for node in step.maps):
        notes.append("The order stays the same; the random draws of the maps meet different elements.")
    if _seed_draws_may_swap(context, shuffle, step):
        safety = max(safety, Safety.STATISTICAL)
        notes.append("The shuffle has no seed of its own: moving its call may give it a different one.")
    return safety, tuple(notes)


def move_group(node: Node) -> str:
    """Returns the group of all rewrites that move `node`, whichever rule proposes them."""
    return f"place@{node.id}"


FILTER_EARLY = "filter-early"


@at_each("filter")
def propose_filter_early(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the move of a filter upstream past maps that do not change what its predicate reads, or why it stays."""
    best: tuple[UpstreamMove, PredicatePushdown] | None = None
    stopped: Obstacle | None = None
    for step in upstream_moves(context, node):
        if isinstance(step, Obstacle):
            stopped = step
        elif step.passed.op == "map":
            answer = _probed_predicate(node, passed=len(step.maps))
            if answer.why_not:
                stopped = Obstacle(step.passed, answer.why_not)
                break
            best = step, answer
    if best is not None:
        yield _rewrite(node, *best)
    elif stopped is not None:
        why = f"The filter stays after {describe_operator(stopped.node)}: {stopped.why}."
        yield NoProposal(FILTER_EARLY, node.id, why)


def _probed_predicate(node: Node, *, passed: int) -> PredicatePushdown:
    """Returns the probed predicate upstream of `passed` maps, or why it must not be called there."""
    if node.function is None:
        return PredicatePushdown("nothing is known about its predicate")
    if runs_python(node):
        return PredicatePushdown("its predicate runs Python, which may depend on the order of elements")
    if draws_random_numbers(node):
        return PredicatePushdown("its predicate draws random numbers")
    if state := describe_state(node):
        return PredicatePushdown(f"its predicate {state}")
    answers = node.function.on_inputs or ()
    if len(answers) < passed:
        return PredicatePushdown("it is unknown whether the map leaves unchanged what the predicate reads")
    return answers[passed - 1]


def _rewrite(node: Node, step: UpstreamMove, answer: PredicatePushdown) -> Rewrite:
    maps = ", ".join(describe_operator(one) for one in reversed(step.maps))
    return Rewrite(
        rule=FILTER_EARLY,
        node=node.id,
        safety=step.safety,
        edits=(Move(node.id, step.anchor), ReplaceFunction(node.id, FunctionVariant.ON_INPUT, answer.digest)),
        summary=f"Filter before {maps}, so that filtered-out elements are not computed.",
        group=move_group(node),
        notes=drop_notes(step),
    )


FILTER_EARLY_RULE = Rule(
    name=FILTER_EARLY,
    summary="Moves a filter before the maps that pass on unchanged what its predicate reads.",
    legality=(
        "Only if the predicate reads nothing but components that the map passes on unchanged, and if the "
        "predicate, traced on the input of the map, is shown to compute the same result. Both functions must "
        "depend on their element alone, or that of the map draw random numbers: no Python, variables, mutable "
        "tables or side effects; the map must not validate values, and there must be no ignore_errors downstream. "
        "Only past maps and prefetch, never past shuffle, repeat, batch, cache, take, skip or another operator that "
        "counts, orders or stores elements."
    ),
    safety="EXACT: the same elements in the same order. STATISTICAL past a map that draws random numbers.",
    propose=propose_filter_early,
    order=0,  # its positions are those of the original pipeline: later rules move the operators that it is placed after
)


_MIN_READ_AHEAD_SHARE = 0.03
"""Elements read ahead in vain per element that a `take` lets through: with fewer, no trial could accept its move."""


def propose_early_drops(
    context: RuleContext, *, rule: str, operators: frozenset[str]
) -> Iterator[Rewrite | NoProposal]:
    """Yields the move of each dropping operator, with those directly upstream of it, past the maps further upstream.

    Args:
        rule: name of the proposing rule.
        operators: the operators of `DROPS_BY_POSITION` that this rule handles; of several consecutive ones, the most
            downstream one stands for all.
    """
    for node in context.pipeline:
        if node.op not in operators or len(node.inputs) != 1:
            continue
        readers = context.pipeline.consumers(node.id)
        if len(readers) != 1 or readers[0].op not in operators:
            yield from _move_up(run_down_to(node, DROPS_BY_POSITION, context), context, rule=rule)


def _move_up(run: tuple[Node, ...], context: RuleContext, *, rule: str) -> Iterator[Rewrite | NoProposal]:
    top, node = run[0], run[-1]
    names = " and ".join(one.op for one in run)
    stay = "stays" if len(run) == 1 else "stay"
    answers = tuple(upstream_moves(context, top, moved_along=run[1:]))
    steps = [step for step in answers if isinstance(step, UpstreamMove)]
    while steps and steps[-1].passed.op != "map":
        steps.pop()  # passing operators that do no work gains nothing
    if not steps:
        for stop in (step for step in answers if isinstance(step, Obstacle)):
            yield NoProposal(rule, node.id, f"The {names} {stay} after {describe_operator(stop.node)}: {stop.why}.")
        return
    best = steps[-1]
    if why := _nothing_saved(run, [step.passed for step in steps], context):
        yield NoProposal(rule, node.id, f"The {names} {stay} after {describe_operator(best.maps[0])}: {why}.")
        return
    maps = ", ".join(describe_operator(one) for one in reversed(best.maps))
    yield Rewrite(
        rule=rule,
        node=node.id,
        safety=best.safety,
        edits=(Move(top.id, best.anchor), *(Move(lower.id, upper.id) for upper, lower in pairwise(run))),
        summary=f"Let {names} drop elements before {maps}, so that they are not computed first.",
        group=move_group(top),
        notes=drop_notes(best),
    )


def drop_notes(step: UpstreamMove) -> tuple[str, ...]:
    """Returns the notes for the user on an operator that drops elements before some maps."""
    notes = ["Dropped elements are then never computed: an error in one of them no longer ends the run."]
    if any(map(draws_random_numbers, step.maps)):
        notes.append("Nothing is drawn for them, so that the random draws meet different elements.")
    return tuple(notes)


def _nothing_saved(run: tuple[Node, ...], passed: list[Node], context: RuleContext) -> str:
    """Returns why the passed operators would compute about as many elements as before; "" if they would not."""
    counts = [(node.op, node.argument("num_shards" if node.op == "shard" else "count")) for node in run]
    if any(not isinstance(count, int) for _, count in counts):
        return "it is unknown how many elements are dropped"
    if any((op == "skip" and count != 0) or (op == "shard" and count != 1) for op, count in counts):
        return ""
    let_through = [count for op, count in counts if op == "take" and isinstance(count, int) and count >= 0]
    if not let_through:
        return "no elements are dropped"
    ahead, least = sum(_read_ahead(node, context) for node in passed), min(let_through)
    if ahead < _MIN_READ_AHEAD_SHARE * least or least == 0:
        computed = f"at most {ahead} of the elements that the take drops are computed"
        return f"{computed}, compared with {least} that it lets through"
    return ""


def _read_ahead(node: Node, context: RuleContext) -> int:
    """Returns how many elements an operator may produce before they are requested."""
    if node.op == "prefetch":
        size = node.argument("buffer_size")
        return ASSUMED_AUTOTUNE_ELEMENTS if size == AUTOTUNE or not isinstance(size, int) else size
    if node.op != "map" or not runs_in_parallel(node, context):
        return 0
    calls = node.argument("num_parallel_calls")
    return calls if isinstance(calls, int) and calls != AUTOTUNE else context.cores


SPLIT_EARLY = "split-early"

SPLIT_EARLY_RULE = Rule(
    name=SPLIT_EARLY,
    summary="Moves take and skip before the maps whose results they drop.",
    legality=(
        "Only past maps that produce one element per element and depend on it alone or draw random numbers, and past "
        "prefetch. Never past a function that runs Python, uses a variable or a mutable table, has a side effect or "
        "validates values, nor past a map that need not keep the order, nor if there is an "
        "ignore_errors downstream: different elements would result, or an error would be missed. Never past "
        "shuffle, repeat, filter, batch, cache, interleave or another operator that counts, orders or stores "
        "elements. A take stays if no operator reads far ahead of it, because nothing would be saved, and if "
        "the operators that read ahead fill a cache or advance state."
    ),
    safety=(
        "EXACT: the same elements in the same order; only dropped elements are not computed. STATISTICAL past a map "
        "that draws random numbers: none are drawn for dropped elements, so that the others get different ones."
    ),
    propose=partial(propose_early_drops, rule=SPLIT_EARLY, operators=frozenset({"take", "skip"})),
    order=0,  # its positions are those of the original pipeline: later rules move the operators that it is placed after
)


SHARD_EARLY = "shard-early"

SHARD_EARLY_RULE = Rule(
    name=SHARD_EARLY,
    summary="Moves shard before the maps whose results it drops.",
    legality=(
        "Only past maps that produce one element per element and depend on it alone or draw random numbers, and past "
        "prefetch; a take or skip directly upstream moves along. Never past a function that runs Python, uses a "
        "variable or a mutable table, has a side effect or validates values, nor past a map that need not keep the "
        "order, nor if there is an ignore_errors downstream. Never past shuffle, repeat, filter, batch, cache or "
        "interleave: a worker would then receive different elements."
    ),
    safety=(
        "EXACT: a worker receives the same elements in the same order, and does not compute those of the others. "
        "STATISTICAL past a map that draws random numbers, as for split-early."
    ),
    propose=partial(propose_early_drops, rule=SHARD_EARLY, operators=frozenset({"shard"})),
    order=0,  # its positions are those of the original pipeline: later rules move the operators that it is placed after
)
