"""Checks whether rewrites that are each legal alone are also legal together.

Each rule sees only the original pipeline. Together, one edit can break what another relies on: a cache after a map is
EXACT until the shuffle downstream moves upstream of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, Move, Remove, ReplaceFunction, ReplaceSource, Rewrite, Safety, SetArgument
from pipetune.core.errors import PipetuneError
from pipetune.core.fused_shuffles import FUSED_SHUFFLE, fused_shuffles
from pipetune.core.operators import facts
from pipetune.core.pipeline import Node, Pipeline
from pipetune.rules.base import RuleContext
from pipetune.rules.epoch_constancy import Constancy, batches_of_several_sizes, constancy_after, shuffles_anew
from pipetune.rules.gathering import HANDS_NUMBERS_ON
from pipetune.rules.legality import POSITIONAL, picks_by_place, runs_ahead
from pipetune.rules.parallel_interleave import cycle_length_in_force


def conflict(context: RuleContext, rewrites: Iterable[Rewrite]) -> str:
    """Returns why `rewrites`, applied in this order, must not be in one plan; "" if they may."""
    chosen = tuple(rewrites)
    groups = Counter(rewrite.group for rewrite in chosen if rewrite.group)
    doubled = next((group for group, count in groups.items() if count > 1), None)
    if doubled is not None:
        return f"two rewrites of {doubled} exclude each other"
    try:
        edited = apply_edits(context.pipeline, (edit for rewrite in chosen for edit in rewrite.edits))
    except PipetuneError as error:
        return error.message
    identifiers = Counter(node.id for node in edited)
    twice = next((name for name, count in identifiers.items() if count > 1), None)
    if twice is not None:
        return f"{twice} would be inserted twice"
    safety = max((rewrite.safety for rewrite in chosen), default=Safety.EXACT)
    clash = _frozen_twice(chosen) or _moved_away(chosen) or _replaced_twice(chosen) or _taken_away(chosen, edited)
    if clash:
        return clash
    return (
        _numbers_conflict(edited)
        or _cache_conflict(context, edited, safety)
        or _interleave_conflict(context, edited)
        or remainder_conflict(context, edited)
        or shuffle_conflict(context, edited)
    )


def remainder_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why a `drop_remainder` batch would begin or cease to stack elements of several sizes; "" if it would not.

    A serial batch takes one element after the other and never stacks the incomplete last batch, which it drops. A
    batch with threads stacks it, and raises an error. TensorFlow uses threads if `num_parallel_calls` is set, and if a
    map is directly upstream (`map_and_batch_fusion`).
    """
    for batch in context.pipeline:
        if batch.id not in edited or not batch.argument("drop_remainder"):
            continue
        changed = _with_threads(edited[batch.id], edited) != _with_threads(batch, context.pipeline)
        if changed and batches_of_several_sizes(batch, context):
            return f"{batch.title} drops elements of several sizes at the end, which parallel batches would refuse"
    return ""


def shuffle_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why other elements would come out because shuffles would have other orders; "" if none would.

    A comparison does not see it: it gives both pipelines the same orders.
    """
    return _fusion_conflict(context, edited) or _restart_conflict(context, edited)


def _fusion_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why TensorFlow must not begin or cease to fuse a shuffle and a repeat; "" if it does not, or may.

    The fusion changes the order of later epochs, and an operator that goes by positions then outputs other elements.
    """
    before, after = fused_shuffles(context.pipeline), fused_shuffles(edited)
    for pipeline, names in ((context.pipeline, before - after), (edited, after - before)):
        for name in sorted(names):
            picker = picks_by_place(pipeline[name], replace(context, pipeline=pipeline), among=POSITIONAL)
            if picker is not None:
                return f"{FUSED_SHUFFLE}, and {picker.title} would output other elements"
    return ""


def _restart_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why an operator must not run ahead in a branch, or in several; "" if it may.

    The iterators of a shuffle take their seeds from one generator, in the order in which they are created. A branch
    that runs ahead of its repeat creates the next one earlier, and exchanges orders with the branch that it is joined
    with. (TensorFlow itself lets maps without state run ahead.)
    """
    for node in edited:
        if not runs_ahead(node) or (node.id in context.pipeline and runs_ahead(context.pipeline[node.id])):
            continue
        if node.op == "map" and node.function is not None and node.function.stateless:
            continue
        above = edited.upstream(node.id)
        for shuffle in filter(shuffles_anew, above):
            reached = {shuffle.id, *(one.id for one in edited.downstream(shuffle.id))}
            restarts = any(one.id in reached and one.op in _RESTARTING for one in (*above, node))
            joins = (one for one in edited.downstream(node.id) if sum(name in reached for name in one.inputs) > 1)
            join = next(joins, None)
            if restarts and join is not None:
                return f"{node.title} would run ahead, and exchange orders of {shuffle.title} within {join.title}"
    return ""


_RESTARTING = frozenset({"concatenate", "flat_map", "interleave", "repeat"})
"""Operators that iterate over a dataset again, or over another one, at the end of the first."""


def _with_threads(batch: Node, pipeline: Pipeline) -> bool:
    return batch.argument("num_parallel_calls") is not None or pipeline[batch.inputs[0]].op == "map"


def _frozen_twice(chosen: tuple[Rewrite, ...]) -> str:
    """Returns a reason if one rewrite freezes a value chosen by AUTOTUNE and another sets the same argument."""
    said = [
        {(edit.node, edit.name) for edit in rewrite.edits if isinstance(edit, SetArgument)} for rewrite in chosen
    ]
    for position, rewrite in enumerate(chosen):
        others = [said[other] for other in range(len(chosen)) if other != position]
        both = next((place for place in sorted(said[position]) if any(place in one for one in others)), None)
        if rewrite.equal_is_enough and both is not None:
            return f"{both[1]} of {both[0]} is set twice"
    return ""


def _moved_away(chosen: tuple[Rewrite, ...]) -> str:
    """Returns a reason if one rewrite caches the output of an operator that another moves away from the cache."""
    for rewrite in chosen:
        cached = {edit.after: edit.op for edit in rewrite.edits if isinstance(edit, Insert) and edit.op != "prefetch"}
        for other in chosen:
            if other is rewrite:
                continue
            moved = {edit.node for edit in other.edits if isinstance(edit, Move | Remove)}
            both = next((name for name in cached if name in moved), None)
            if both is not None:
                return f"the {cached[both]} would stay where {both} is moved away from"
    return ""


def _replaced_twice(chosen: tuple[Rewrite, ...]) -> str:
    """Returns a reason if two rewrites replace the function of one operator."""
    replaced = Counter(edit.node for one in chosen for edit in one.edits if isinstance(edit, ReplaceFunction))
    return next((f"the function of {node} is replaced twice" for node, count in replaced.items() if count > 1), "")


def _taken_away(chosen: tuple[Rewrite, ...], edited: Pipeline) -> str:
    """Returns a reason if one rewrite changes or inserts an operator that another removes with the source of rows."""
    for rewrite in chosen:
        others = (edit for other in chosen if other is not rewrite for edit in other.edits)
        numbered = {edit.node for edit in others if isinstance(edit, ReplaceSource)}
        for edit in rewrite.edits if numbered else ():
            changed = edit.id if isinstance(edit, Insert) else edit.node if isinstance(edit, SetArgument) else None
            if changed is not None and (changed not in edited or changed in numbered):
                return f"{changed} is taken away with all that made the rows"
    return ""


def _numbers_conflict(edited: Pipeline) -> str:
    """Returns a reason if an operator that needs rows would receive row indices."""
    needs = next((node for node in edited if node.id in edited.numbered and not _takes_numbers(node)), None)
    return f"{needs.title} would get the numbers of rows in place of the rows" if needs is not None else ""


def _takes_numbers(node: Node) -> bool:
    return not node.inputs or node.op in HANDS_NUMBERS_ON or node.op == "batch"


def _cache_conflict(context: RuleContext, edited: Pipeline, safety: Safety) -> str:
    """Returns a reason if a new or an existing cache would no longer hold what repeats in every epoch."""
    after = replace(context, pipeline=edited)
    for node in edited:
        if node.op != "cache":
            continue
        found = constancy_after(after, node.inputs[0])
        if node.id in context.pipeline:
            found_before = constancy_after(context, context.pipeline[node.id].inputs[0])
            worse = found.constancy > found_before.constancy
        else:
            worse = found.constancy > (
                Constancy.SAME_ELEMENTS if safety >= Safety.REORDERS else Constancy.SAME
            )
        if worse:
            return f"the cache would then stand below {edited[found.node].title}: {found.why}"
        if node.id in context.pipeline:
            continue
        partly = next(
            (reader for reader in edited.downstream(node.id) if not facts(reader.op).reads_all), None
        )
        if partly is not None:
            return f"the cache would then stand above {partly.title}, which may not read it to the end"
    return ""


def _interleave_conflict(context: RuleContext, edited: Pipeline) -> str:
    for node in edited:
        calls = node.argument("num_parallel_calls")
        untouched = node.id in context.pipeline and node.arguments == context.pipeline[node.id].arguments
        if untouched:
            continue  # the script's own settings are not checked
        if node.op == "interleave" and isinstance(calls, int):
            length = cycle_length_in_force(node, context)
            if calls > length:
                return f"{calls} parallel calls exceed the cycle length {length}"
    return ""
