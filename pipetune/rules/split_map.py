"""`split-map`: split a map function in two, to cache its first part or to call its second on batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, Rewrite, Safety, Silence, SplitFunction
from pipetune.core.functions import Cut, CutKind
from pipetune.core.parts import costs_of_cut, with_parts
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.cache import place_behind
from pipetune.rules.cache_costs import paid_in_memory
from pipetune.rules.cache_places import Place, room_bytes
from pipetune.rules.legality import described, deterministic, reaches_outside, runs_parallel
from pipetune.rules.pricing import as_size, seconds_per_output
from pipetune.rules.splitting import LEAST_SAVED, behind_batch, cut_of, input_cpu_seconds, late_parts

NAME = "split-map"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        cut = cut_of(node, CutKind.BEFORE_DRAWS)
        if cut is not None:
            why = _obstacle(node, cut, context)
            found = why or _priced(node, cut, context)
            if isinstance(found, Rewrite):
                yield found
            else:
                yield Silence(NAME, node.id, f"The function of {described(node)} stays one: {found}.")
    for late in late_parts(context, rule=NAME, concerns=_as_large):
        yield late if isinstance(late, Silence) else behind_batch(late, context, rule=NAME)


def _as_large(cut: Cut, whole_bytes: float) -> bool:
    return bool(cut.why_not) or cut.element_bytes is None or cut.element_bytes >= whole_bytes


def _obstacle(node: Node, cut: Cut, context: RuleContext) -> str:
    """Returns why the part of the function before its random draws cannot be split off; "" if it can."""
    if node.function is None:
        return "nothing is known about it"
    outside = reaches_outside(node)
    if outside:
        return f"it {outside}"
    if cut.why_not:
        return cut.why_not
    if runs_parallel(node) and not deterministic(node, context):
        return "`deterministic=False` lets elements overtake each other, and a cache would keep one order"
    return "a consumer stops before the data ends, so a cache would never be complete" if context.partial_read else ""


def _priced(node: Node, cut: Cut, context: RuleContext) -> Rewrite | str:
    """Returns the rewrite that caches the first part, or why it is not worthwhile."""
    split = SplitFunction(node.id, cut)
    costs = costs_of_cut(context.profile, node.id, cut.kind)
    if context.profile is None or costs is None:
        return "it is not known what it costs before it draws"
    edited = apply_edits(context.pipeline, [split])
    apart = replace(context, pipeline=edited, profile=with_parts(context.profile, edited))
    place = place_behind(apart, edited[split.head])
    if isinstance(place, Silence):
        return f"what it does before it draws cannot be cached. {place.why.rstrip('.')}"
    if place.safety is Safety.REORDERS:
        return "what it does before it draws cannot be cached: what stands above gives another order in each epoch"
    if place.never_pays:
        return "the script reads its data once, and a cache of what it does before it draws serves later epochs"
    if place.size_bytes > room_bytes(context):
        size = as_size(place.size_bytes)
        return f"a cache of what it gives before it draws would take {size}, more than the memory limit leaves"
    own, whole = seconds_per_output(apart, split.head), input_cpu_seconds(context)
    if own is None or not whole or own < LEAST_SAVED * whole:
        return (
            f"before it draws it does {costs.head_share:.0%} of its work, less than a tenth of the input's processor "
            "time: too little for new code"
        )
    return _rewrite(node, split, place, share=costs.head_share)


def _rewrite(node: Node, split: SplitFunction, place: Place, *, share: float) -> Rewrite:
    paid, below = paid_in_memory(place), place.below
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.STATISTICAL,
        edits=(
            split,
            *([below.move] if below else []),
            Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""}),
        ),
        summary=(
            f"Cut the function of {described(node)} where it first draws a random number, and keep what it has by then "
            f"in memory ({place.elements:,} elements, {as_size(place.size_bytes)}): only the first epoch computes "
            f"that, {share:.0%} of its work."
        ),
        group="cache",  # two caches on one path hold the same data twice
        notes=(
            *([paid] if paid else ()),
            *(below.notes if below else ()),
            "It draws as often as before and in the same order; an op without a seed of its own may get another one.",
        ),
        predicted_bytes=place.size_bytes,
    )


RULE = Rule(
    name=NAME,
    summary="Cuts a map's function in two: the part before its random draws is cached, or its end runs on batches.",
    legality=(
        "Either in front of the first op that draws random numbers. Everything before it depends on the element alone, "
        "and is kept by a cache where `cache` may put one: above it nothing may differ from epoch to epoch, the order "
        "included, it must be read to its end, more than once, and fit in memory with a known price. What the "
        "function did before must have been a tenth of the input's processor time. Or in front of ops that treat every "
        "number by itself, to the end of the function: they move behind the batch and run once for all its rows, where "
        "that is measured to save a tenth of the input's processor time. Every component that is handed on must have "
        "a fixed shape then, the batch must be a plain one, and between may stand only operators that hand elements "
        "through whole. Never a function with Python, variables, tables that can change or side effects, and for the "
        "second never one that draws; never inside a branch or a loop. The graph is cut at run time; in source, "
        "between two statements of a plain function whose local variables are what is handed on. Where those differ "
        "the rewrite stays in the plan and says why."
    ),
    safety=(
        "STATISTICAL in front of draws, though they stay the same, number by number, where they have seeds of their "
        "own. EXACT behind the batch, or APPROXIMATE with ops whose last bits depend on how many rows they get (exp, "
        "log, pow), and REORDERS where the map ran unordered and the last batch may be short."
    ),
    propose=propose,
    turn=2,  # both parts then inherit the values that other rules set for the whole map
)
