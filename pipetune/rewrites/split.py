"""`split-map` and `late-cast`: split a function in two, to cache its first part or to call its second on batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipetune.core.edits import Insert, Move, NoProposal, Rewrite, Safety, SplitFunction, apply_edits
from pipetune.core.element_counts import integer_or
from pipetune.core.functions import FunctionSplit, SplitPosition
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.core.profile import split_costs, with_part_costs
from pipetune.rewrites.batch_first import PASS_THROUGH_OPERATORS, batch_first_group, numeric_notes, plain_batches
from pipetune.rewrites.cache import position_after
from pipetune.rewrites.cache_places import CachePosition, available_cache_bytes, describe_memory_saving
from pipetune.rewrites.legality import (
    describe_external_dependency,
    describe_operator,
    draws_random_numbers,
    keeps_order,
    requests_parallelism,
    short_batch_may_overtake,
)
from pipetune.rewrites.pricing import (
    buffer_bytes,
    bytes_per_element,
    element_count,
    format_bytes,
    seconds_per_output,
    shuffle_buffer_elements,
)
from pipetune.rewrites.reorder import upstream_chain
from pipetune.rewrites.rule import Rule, RuleContext

MIN_SAVED_SHARE = 0.10
"""Minimum saving, as a share of the input's CPU time: two functions in place of one are new code, and whether a saving
of a few percent is accepted would change from run to run."""

MIN_SAVED_BYTES = 16 * 2**20
"""Memory saving that justifies the rewrite as well."""

_PASSABLE_OPERATORS = PASS_THROUGH_OPERATORS | {"cache"}  # allowed between the map and the batch


@dataclass(frozen=True)
class LateSplit:
    """A map whose function ends in ops that could run after the batch, and the expected gain."""

    node: Node
    batch: Node
    passed: tuple[Node, ...]  # operators in between, the nearest to the batch first
    cut: FunctionSplit
    saved_bytes_per_element: float  # bytes per element by which the batch's input shrinks
    saved_share: float  # of the CPU time of the whole input
    saved_buffer_bytes: float  # bytes by which the buffers of `passed` shrink


def find_cut(node: Node, kind: SplitPosition) -> FunctionSplit | None:
    """Returns how the function of an operator is cut there; None if it was not probed."""
    cuts = node.function.cuts if node.function is not None else None
    return next((cut for cut in cuts or () if cut.kind is kind), None)


def find_late_splits(
    context: RuleContext, *, rule: str, is_responsible: Callable[[FunctionSplit, float], bool]
) -> Iterator[LateSplit | NoProposal]:
    """Yields, for every map whose function could be cut so that its end runs after the batch, the cut or why not.

    Args:
        rule: name of the proposing rule.
        is_responsible: whether this rule handles a cut, given the cut and the bytes of a whole output element.
    """
    for batch in plain_batches(context.pipeline):
        passed: list[Node] = []
        for above in upstream_chain(context.pipeline, batch):
            if above.op == "map":
                yield from _late_splits_of(above, batch, tuple(passed), context, rule=rule, concerns=is_responsible)
                break
            if above.op not in _PASSABLE_OPERATORS:
                break
            passed.append(above)


def _late_splits_of(
    node: Node,
    batch: Node,
    passed: tuple[Node, ...],
    context: RuleContext,
    *,
    rule: str,
    concerns: Callable[[FunctionSplit, float], bool],
) -> Iterator[LateSplit | NoProposal]:
    cut, now = find_cut(node, SplitPosition.BEFORE_ELEMENTWISE_OPS), bytes_per_element(context, node.id)
    if cut is None or (not cut.why_not and (now is None or cut.element_bytes is None)):
        return
    if not concerns(cut, now or 0.0):
        return
    why = _obstacle(node, passed, context) or cut.why_not
    if why:
        yield NoProposal(rule, node.id, f"The function of {describe_operator(node)} is not split: {why}.")
        return
    less = (now or 0.0) - (cut.element_bytes or 0.0)
    cached = any(one.op == "cache" for one in passed)  # later epochs would then compute what the cache saves now
    saved = 0.0 if cached else _saved_share(node, context)
    spared = sum(less * _buffered_elements(one, context) for one in passed)
    if (saved is None or saved < MIN_SAVED_SHARE) and spared < MIN_SAVED_BYTES:
        gains = "the saving was not measured" if saved is None else f"it would save {_format_cpu_share(saved)}"
        gains = "it would run in every epoch, no longer before the cache" if cached else gains
        yield NoProposal(
            rule,
            node.id,
            (
                f"The end of {describe_operator(node)} stays before the batch: {gains}, too little to justify the "
                "additional code."
            ),
        )
        return
    yield LateSplit(node, batch, passed, cut, less, saved or 0.0, spared)


def _obstacle(node: Node, passed: tuple[Node, ...], context: RuleContext) -> str:
    """Returns why the end of a function must not run after the batch; "" if it may."""
    if node.function is None:
        return "nothing is known about it"
    outside = describe_external_dependency(node)
    if outside:
        return f"it {outside}"
    if draws_random_numbers(node):
        return "it draws random numbers"
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id)):
        return "ignore_errors downstream drops the element on which it fails, and would then drop a whole batch"
    if any(one.op == "cache" and one.argument("filename") for one in passed):
        return "a file cache downstream holds its complete output, possibly from an earlier run"
    return ""


def _saved_share(node: Node, context: RuleContext) -> float | None:
    """Returns the saved share of the input's CPU time; None if it was not measured."""
    costs = split_costs(context.profile, node.id, SplitPosition.BEFORE_ELEMENTWISE_OPS)
    measured = context.profile.operator(node.id) if context.profile is not None else None
    if costs is None or costs.saved_seconds is None or measured is None or measured.visits is None:
        return None
    input_seconds = input_cpu_seconds(context)
    return measured.visits * costs.saved_seconds / input_seconds if input_seconds else None


def input_cpu_seconds(context: RuleContext) -> float | None:
    """Returns the CPU seconds of the whole input per output element; None if not measured."""
    if context.profile is None:
        return None
    if context.profile.input_cpu_seconds:
        return context.profile.input_cpu_seconds
    return sum((one.cpu_seconds or 0.0) * (one.visits or 0.0) for one in context.profile.operators) or None


def _buffered_elements(node: Node, context: RuleContext) -> float:
    """Returns how many elements an operator buffers."""
    if node.op == "shuffle":
        return float(shuffle_buffer_elements(context, node))
    if node.op == "cache":
        return float(max(0, element_count(context, node.id) or 0))
    if node.op != "prefetch":
        return 0.0
    size = bytes_per_element(context, node.id)
    return buffer_bytes(context, node.id, integer_or(node.argument("buffer_size"), AUTOTUNE)) / size if size else 0.0


def move_tail_after_batch(late: LateSplit, context: RuleContext, *, rule: str) -> Rewrite:
    """Returns the rewrite that splits the function and moves its second part after the batch."""
    node, batch, cut = late.node, late.batch, late.cut
    reorders = short_batch_may_overtake(batch, (node,), context)
    notes = (
        [f"In a measurement on a few elements, {_format_cpu_share(late.saved_share)} was saved."]
        if late.saved_share > 0
        else []
    )
    if late.saved_buffer_bytes > 0:
        holding = " and ".join(describe_operator(one) for one in late.passed if _buffered_elements(one, context))
        notes.append(f"{holding} then take {format_bytes(late.saved_buffer_bytes)} less memory.")
    if any(one.op == "cache" for one in late.passed):
        notes.append("The end is then computed in every epoch: the cache no longer contains its results.")
    notes += numeric_notes(cut.inexact, zero_signs=cut.zero_signs)
    what = "while elements are still small" if late.saved_bytes_per_element > 0 else "before the end of the function"
    return Rewrite(
        rule=rule,
        node=node.id,
        safety=Safety.APPROXIMATE if cut.inexact else Safety.REORDERS if reorders else Safety.EXACT,
        edits=(SplitFunction(node.id, cut), Move(node.id, batch.id)),
        summary=(
            f"Split the function of {describe_operator(node)} in two, batch its intermediate result {what}, "
            f"and call the end once per batch of {batch.argument('batch_size')}."
        ),
        group=batch_first_group(batch),
        notes=tuple(notes),
        predicted_bytes=-late.saved_buffer_bytes,
    )


def _format_cpu_share(share: float) -> str:
    return f"{share:.0%} of the input's CPU time" if share > 0 else "none of the input's CPU time"


SPLIT_MAP = "split-map"


def propose_split_map(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields maps split to cache their first part or to call their second on batches, or why they are not split."""
    for node in context.pipeline:
        cut = find_cut(node, SplitPosition.BEFORE_DRAWS)
        if cut is not None:
            why = _split_obstacle(node, cut, context)
            found = why or _cached_first_part(node, cut, context)
            if isinstance(found, Rewrite):
                yield found
            else:
                yield NoProposal(
                    SPLIT_MAP, node.id, f"The function of {describe_operator(node)} is not split: {found}."
                )
    for late in find_late_splits(context, rule=SPLIT_MAP, is_responsible=_is_as_large_at_cut):
        yield late if isinstance(late, NoProposal) else move_tail_after_batch(late, context, rule=SPLIT_MAP)


def _is_as_large_at_cut(cut: FunctionSplit, whole_bytes: float) -> bool:
    return bool(cut.why_not) or cut.element_bytes is None or cut.element_bytes >= whole_bytes


def _split_obstacle(node: Node, cut: FunctionSplit, context: RuleContext) -> str:
    """Returns why the part of the function before its random draws cannot be split off; "" if it can."""
    if node.function is None:
        return "nothing is known about it"
    outside = describe_external_dependency(node)
    if outside:
        return f"it {outside}"
    if cut.why_not:
        return cut.why_not
    if requests_parallelism(node) and not keeps_order(node, context):
        return "`deterministic=False` lets elements overtake each other, and a cache would freeze one order"
    return (
        "a consumer stops before the end of the data, so a cache would never be complete"
        if context.partial_read
        else ""
    )


def _cached_first_part(node: Node, cut: FunctionSplit, context: RuleContext) -> Rewrite | str:
    """Returns the rewrite that caches the first part, or why it is not worthwhile."""
    split = SplitFunction(node.id, cut)
    costs = split_costs(context.profile, node.id, cut.kind)
    if context.profile is None or costs is None:
        return "the cost of the part before its random draws is unknown"
    edited = apply_edits(context.pipeline, [split])
    split_context = replace(context, pipeline=edited, profile=with_part_costs(context.profile, edited))
    place = position_after(split_context, edited[split.head])
    if isinstance(place, NoProposal):
        return f"the part before its random draws cannot be cached. {place.why.rstrip('.')}"
    if place.safety is Safety.REORDERS:
        return "the part before its random draws cannot be cached: the order upstream differs in each epoch"
    if place.never_pays:
        return "the script reads its data once, and a cache pays off only in later epochs"
    if place.size_bytes > available_cache_bytes(context):
        size = format_bytes(place.size_bytes)
        return f"a cache of the part before its random draws would take {size}, more than the memory limit leaves"
    own, whole = seconds_per_output(split_context, split.head), input_cpu_seconds(context)
    if own is None or not whole or own < MIN_SAVED_SHARE * whole:
        return (
            f"the part before its random draws takes {costs.head_share:.0%} of its time, less than a tenth of "
            "the input's CPU time: too little to justify the additional code"
        )
    return _rewrite(node, split, place, share=costs.head_share)


def _rewrite(node: Node, split: SplitFunction, place: CachePosition, *, share: float) -> Rewrite:
    paid, below = describe_memory_saving(place), place.moved_shuffle
    return Rewrite(
        rule=SPLIT_MAP,
        node=node.id,
        safety=Safety.STATISTICAL,
        edits=(
            split,
            *([below.move] if below else []),
            Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""}),
        ),
        summary=(
            f"Split the function of {describe_operator(node)} before its first random draw, and cache the "
            f"first part in memory ({place.elements:,} elements, {format_bytes(place.size_bytes)}): only the "
            f"first epoch computes this part, {share:.0%} of the work."
        ),
        group="cache",  # two caches on one path hold the same data twice
        notes=(
            *([paid] if paid else ()),
            *(below.notes if below else ()),
            (
                "The number and order of random draws stay the same; an op without a seed of its own may get a "
                "different one."
            ),
        ),
        predicted_bytes=place.size_bytes,
    )


SPLIT_MAP_RULE = Rule(
    name=SPLIT_MAP,
    summary="Splits a map's function in two, to cache the part before its random draws or to run its end on batches.",
    legality=(
        "The first kind of split is before the first op that draws random numbers. Everything before it "
        "depends on the element alone, and is cached if `cache` allows that: nothing upstream may differ "
        "between epochs, including the order, and the data must be read to its end more than once and fit in "
        "memory at a known price. The cached part must account for at least a tenth of the input's CPU time. "
        "The second kind is before ops that process every number on its own, up to the end of the function: "
        "these move after the batch and run once for all its rows, if that is measured to save a tenth of the "
        "input's CPU time. Then every component that is passed on must have a fixed shape, the batch must be a "
        "plain one, and only operators that pass elements through unchanged may be in between. Never a "
        "function with Python, variables, mutable tables or side effects, and for the second kind never one "
        "that draws random numbers; never inside a branch or a loop. At run time the graph is split; in "
        "source, a plain function is split between two statements, and its local variables are passed on. If "
        "the two splits differ, the rewrite stays in the plan and says why."
    ),
    safety=(
        "STATISTICAL before random draws, although ops with seeds of their own draw the same numbers. After "
        "the batch EXACT, or APPROXIMATE for ops whose last bits depend on the number of rows (exp, log, pow), "
        "and REORDERS if the map ran unordered and the last batch may be short."
    ),
    propose=propose_split_map,
    order=2,  # both parts then inherit the values that other rules set for the whole map
)


LATE_CAST = "late-cast"


def propose_late_cast(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields maps whose enlarging end moves after the batch, or why it does not."""
    for found in find_late_splits(context, rule=LATE_CAST, is_responsible=_is_smaller_at_cut):
        yield found if isinstance(found, NoProposal) else move_tail_after_batch(found, context, rule=LATE_CAST)


def _is_smaller_at_cut(cut: FunctionSplit, whole_bytes: float) -> bool:
    return not cut.why_not and cut.element_bytes is not None and cut.element_bytes < whole_bytes


LATE_CAST_RULE = Rule(
    name=LATE_CAST,
    summary="Casts late: elements pass through shuffle, cache and batch in their small form, bytes instead of floats.",
    legality=(
        "Like the second kind of split-map: the end of a map's function that processes every number on its own "
        "(a cast, a scale, an addition of a constant) moves after the batch, and the rest stays. This rule "
        "handles splits at which an element is smaller than at the end, usually before a cast; split-map "
        "handles the others. Of the possible splits, the one that passes on the fewest bytes is used. The end "
        "moves past shuffle, prefetch, take, skip, shard, repeat and a cache in memory, never past a file "
        "cache, and stays before everything that follows the batch. Nothing is proposed if the measured saving "
        "is less than a tenth of the input's CPU time, unless at least 16 MiB of memory are saved; past a "
        "cache, where the end would run in every epoch, only memory counts. A function that can move after the "
        "batch as a whole is handled by vectorize-map."
    ),
    safety=(
        "EXACT if every moved op gives the same bits on batches. APPROXIMATE for ops whose last bits depend on "
        "the number of rows per call (exp, log, pow). REORDERS if the map ran unordered and the last batch may "
        "be short."
    ),
    propose=propose_late_cast,
    order=2,  # both parts then inherit the values that other rules set for the whole map
)
