"""Checks whether rewrites that are each legal alone are also legal together.

Each rule sees only the original pipeline. Together, one edit can break what another relies on: a cache after a map is
EXACT until the shuffle downstream moves upstream of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from pipetune.core.edits import (
    Consent,
    Edit,
    Insert,
    Move,
    Remove,
    ReplaceFunction,
    ReplaceSource,
    Rewrite,
    SetArgument,
    apply_edits,
)
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import FunctionVariant
from pipetune.core.operators import FLATTENING, FUSED_SHUFFLE, fused_shuffles, operator_facts
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node, Pipeline, Value
from pipetune.rewrites.epoch_constancy import (
    Constancy,
    constancy_after,
    is_order_settled,
    losing_variation,
    may_batch_unequal_batches,
    reshuffles_each_epoch,
    stops_early,
)
from pipetune.rewrites.map_and_batch_fusion import is_fused
from pipetune.rewrites.parallel_reads import effective_cycle_length
from pipetune.rewrites.prefetch import read_ahead_obstacle
from pipetune.rewrites.rule import (
    POSITIONAL,
    ROW_INDEX_OPERATORS,
    RuleContext,
    errors_are_ignored,
    keeps_order,
    positional_operator_after,
    runs_ahead,
    runs_in_parallel,
    runs_python,
    tensorflow_parallelizes,
)


def find_conflict(context: RuleContext, rewrites: Iterable[Rewrite]) -> str:
    """Returns why `rewrites`, applied in this order, must not be in one plan; "" if they may."""
    chosen = tuple(rewrites)
    if (doubled := _repeated(rewrite.group for rewrite in chosen if rewrite.group)) is not None:
        return f"two rewrites of {doubled} exclude each other"
    try:
        edited = apply_edits(context.pipeline, (edit for rewrite in chosen for edit in rewrite.edits))
    except PipetuneError as error:
        return error.message
    if (twice := _repeated(node.id for node in edited)) is not None:
        return f"{twice} would be inserted twice"
    consents = frozenset(consent for rewrite in chosen for consent in rewrite.consents)
    # A comparison detects no conflict over shuffles, because it gives both pipelines the same orders, and none over
    # training, because nothing trains while it is made.
    return (
        _set_twice(chosen)
        or _moved_twice(chosen)
        or _moved_away(chosen)
        or _order_conflict(context.pipeline, chosen, edited)
        or _branch_conflict(context.pipeline, (edit for rewrite in chosen for edit in rewrite.edits))
        or _replaced_twice(chosen)
        or _source_replaced(chosen, edited)
        or _row_index_conflict(edited)
        or _cache_conflict(context, chosen, edited, consents)
        or _interleave_conflict(context, edited)
        or _remainder_conflict(context, edited)
        or _overtaking_conflict(context, edited)
        or _fusion_conflict(context, edited, consents)
        or _error_conflict(context, edited)
        or _restart_conflict(context, edited)
        or _reading_conflict(context, edited)
        or _training_conflict(context, edited)
    )


def _repeated(names: Iterable[str]) -> str | None:
    """Returns the first name that occurs more than once; None if there is none."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _before_and_after(context: RuleContext, edited: Pipeline) -> tuple[RuleContext, RuleContext]:
    """Returns contexts of the original and of the edited pipeline, in which kernels follow from operators and options.

    What was observed holds for the original alone.
    """
    before = replace(context, observed_kernels={})
    return before, replace(before, pipeline=edited)


def _remainder_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why a `drop_remainder` batch would begin or cease to stack elements of several sizes; "" if it would not.

    A serial batch takes one element after the other and never stacks the incomplete last batch, which it drops. A
    batch with threads stacks it, and raises an error. TensorFlow uses threads if `num_parallel_calls` is set, and if a
    map is directly upstream (`map_and_batch_fusion`).
    """
    before, after = _before_and_after(context, edited)
    for batch in context.pipeline:
        if batch.id not in edited or not batch.argument("drop_remainder"):
            continue
        changed = _is_multithreaded(edited[batch.id], after) != _is_multithreaded(batch, before)
        if changed and may_batch_unequal_batches(batch, context):
            why = "which parallel batches would reject"
            return f"{batch.title} drops a remainder with elements of different sizes, {why}"
    return ""


def _overtaking_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why elements would begin to overtake each other upstream of what goes by their position, as `zip` does.

    `options.deterministic = False` allows another order, not other partners. A comparison keeps all in order. Where
    elements overtake in the script already, the rewrite changes nothing: TensorFlow runs stateless maps in parallel.
    """
    before, after = _before_and_after(context, edited)
    overtaking = {node.id for node in context.pipeline if _may_overtake(node, before)}
    for node in edited:
        known = node.id in overtaking or any(above.id in overtaking for above in edited.upstream(node.id))
        if known or not _may_overtake(node, after):
            continue
        if (below := positional_operator_after(node, after, operators=POSITIONAL)) is not None:
            return f"what {node.title} makes would overtake upstream of {below.title}, which goes by positions"
    return ""


def _may_overtake(node: Node, context: RuleContext) -> bool:
    return runs_in_parallel(node, context) and not keeps_order(node, context)


def _fusion_conflict(context: RuleContext, edited: Pipeline, consents: frozenset[Consent]) -> str:
    """Returns why TensorFlow must not begin or cease to fuse a shuffle and a repeat; "" if it does not, or may.

    The fusion changes the order of later epochs, and an operator that selects by position then outputs other elements.
    """
    before, after = fused_shuffles(context.pipeline), fused_shuffles(edited)
    if before != after and Consent.REORDER not in consents:
        return FUSED_SHUFFLE
    for pipeline, names in ((context.pipeline, before - after), (edited, after - before)):
        within = replace(context, pipeline=pipeline)
        for name in sorted(names):
            picker = positional_operator_after(pipeline[name], within, operators=POSITIONAL)
            if picker is not None:
                return f"{FUSED_SHUFFLE}, and {picker.title} would output other elements"
    return ""


def _error_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why an operator must fail as it did before, because `ignore_errors` follows; "" if it does, or may not.

    After an error, a batch that is fused with a map loses its other elements, too, and a parallel interleave goes on
    in another order than a serial one.
    """
    before, after = _before_and_after(context, edited)
    for node in context.pipeline:
        if node.id not in edited or not errors_are_ignored(edited[node.id], after):
            continue
        own = edited[node.id]
        if own.op == node.op == "batch" and is_fused(node, before) != is_fused(own, after):
            return f"{node.title} would begin or cease to be fused with a map, and ignore_errors drop other elements"
        serial = node.op == own.op == "interleave" and node.argument("num_parallel_calls") is None
        if serial and own.argument("num_parallel_calls") is not None:
            return f"{node.title} would go on in another order after an error that ignore_errors skips"
    return ""


def _training_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why an operator must not begin to run ahead of training; "" if it may.

    TensorFlow's own passes let some operators run ahead whatever is upstream of them.
    """
    before, after = _before_and_after(context, edited)
    for node in edited:
        if node.id in context.pipeline:
            own = context.pipeline[node.id]
            if tensorflow_parallelizes(own, context) or _works_ahead(own, before):
                continue
        why = read_ahead_obstacle(edited.upstream(node.id)) if _works_ahead(node, after) else ""
        if why:
            return f"{node.title} would run ahead of training: {why}"
    return ""


def concurrent_python(context: RuleContext, edited: Pipeline) -> bool:
    """Whether Python of an operator would begin to run while Python of another does.

    The calls of both then take turns as it happens, and what draws from one generator, as `np.random` is, gets other
    numbers.
    """
    before, after = map(_python_at_once, _before_and_after(context, edited))
    return not after <= before


def _python_at_once(context: RuleContext) -> set[tuple[str, str]]:
    """Returns the operators that run Python ahead, each with another that runs Python meanwhile."""
    python, found = {node.id for node in context.pipeline if runs_python(node)}, set[tuple[str, str]]()
    for node in context.pipeline if len(python) > 1 else ():
        if _works_ahead(node, context) or tensorflow_parallelizes(node, context):
            above = {node.id, *(one.id for one in context.pipeline.upstream(node.id))}
            found |= {(one, other) for one in python & above for other in python - above}
    return found


def _works_ahead(node: Node, context: RuleContext) -> bool:
    return runs_ahead(node) or (node.op == "batch" and _is_multithreaded(node, context))


def _restart_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why an operator must not run ahead in a branch, or in several; "" if it may.

    The iterators of a shuffle take their seeds from one generator, in the order in which they are created. A branch
    that runs ahead of its repeat creates the next iterator earlier, and swaps orders with the branch it is joined to.
    (TensorFlow itself lets stateless maps run ahead.)
    """
    for node in edited:
        if not runs_ahead(node):
            continue
        if node.id in context.pipeline:
            before = context.pipeline[node.id]
            if runs_ahead(before) or tensorflow_parallelizes(before, context):
                continue
        above = edited.upstream(node.id)
        for shuffle in filter(reshuffles_each_epoch, above):
            reached = {shuffle.id, *(one.id for one in edited.downstream(shuffle.id))}
            restarts = any(one.id in reached and one.op in _RESTARTING for one in (*above, node))
            joins = (one for one in edited.downstream(node.id) if sum(name in reached for name in one.inputs) > 1)
            join = next(joins, None)
            if restarts and join is not None:
                return f"{node.title} would run ahead, and exchange orders of {shuffle.title} within {join.title}"
    return ""


def _reading_conflict(context: RuleContext, edited: Pipeline) -> str:
    """Returns why what stops early must be read ahead of, or not, as it was before; "" if it is, or may not.

    Each restart of a shuffle that is read ahead takes a seed, which a later epoch would have had. A cache is complete
    once it has been read to its end, and then no later epoch has other elements.
    """
    before, after = map(_varying_read_ahead, _before_and_after(context, edited))
    for pair in sorted(before.keys() | after.keys()):
        one, other, (name, reader) = before.get(pair), after.get(pair), pair
        undetermined = one and other and any(size == AUTOTUNE for _, size, _ in one)
        kept = all(part in side for part in pair for side in (context.pipeline, edited))
        if one != other and not undetermined and kept:
            stops = f"{edited[reader].title} would stop {edited[name].title}"
            if edited[name].op != "shuffle":
                return f"{stops} elsewhere: later epochs have other elements until it has been read to its end"
            return f"{stops} after more or fewer restarts, and later epochs would have other orders"
    return ""


def _varying_read_ahead(context: RuleContext) -> dict[tuple[str, str], set[tuple[str, Value, int]]]:
    """Returns what reads how far ahead, by what makes later epochs differ and the operator that stops early behind it.

    The former are the seeded shuffles that may be restarted, and the caches that may be complete, before the latter
    asks for that. Each operator that reads ahead comes with its number, and that of the batches in front of it.
    """
    pipeline, found = context.pipeline, dict[tuple[str, str], set[tuple[str, Value, int]]]()
    for node in pipeline:
        if not _works_ahead(node, context) and not tensorflow_parallelizes(node, context):
            continue
        below = pipeline.downstream(node.id)
        readers = [one.id for one in below if _may_stop_early(one, pipeline, {node.id, *(one.id for one in below)})]
        above = (*pipeline.upstream(node.id), node)
        fused = node.op == "batch" and node.argument("num_parallel_calls") is None
        reading = pipeline[node.inputs[0]] if fused else node
        sizes = (reading.argument(name) for name in ("buffer_size", "num_parallel_calls", "num_parallel_reads"))
        size = next((size for size in sizes if size is not None), AUTOTUNE)
        ahead = node.id, size, sum(operator_facts(one.op).batches for one in above)
        for varying in above if readers else ():
            varies = _keeps_what_varies(varying, context)
            if varying.op == "shuffle" and varying.argument("seed") is not None and reshuffles_each_epoch(varying):
                reached = {varying.id, *(one.id for one in pipeline.downstream(varying.id))}
                varies = any(one.id in reached and _restarts(one, reached) for one in above)
            for reader in readers if varies else ():
                found.setdefault((varying.id, reader), set()).add(ahead)
    return found


def _keeps_what_varies(node: Node, context: RuleContext) -> bool:
    """Whether an operator stores, once it has been read to its end, what differs in each epoch until then."""
    stores = node.op in ("cache", "snapshot") and node.cardinality != INFINITE
    return stores and constancy_after(context, node.inputs[0]).constancy is not Constancy.SAME


def _may_stop_early(reader: Node, pipeline: Pipeline, path: Collection[str]) -> bool:
    """Whether an operator may end before the inputs that are on a path."""
    read = [pipeline[name].cardinality for name in reader.inputs if name in path]
    ends = reader.cardinality != INFINITE and not 0 <= reader.cardinality == max(read)
    return ends and not operator_facts(reader.op).reads_all


def _restarts(node: Node, reached: Collection[str]) -> bool:
    """Whether an operator iterates again over what it has read, given the ids of all that is downstream of that."""
    return node.op == "repeat" or (node.op == "concatenate" and all(name in reached for name in node.inputs))


_RESTARTING = FLATTENING | {"concatenate", "repeat"}
"""Operators that iterate over a dataset again, or over another one, at the end of the first."""


def _is_multithreaded(batch: Node, context: RuleContext) -> bool:
    return batch.argument("num_parallel_calls") is not None or is_fused(batch, context)


def _set_twice(chosen: tuple[Rewrite, ...]) -> str:
    """Returns a reason if two rewrites set one argument to different values."""
    settings = ([edit for edit in one.edits if isinstance(edit, SetArgument)] for one in chosen)
    values = ({f"{edit.name} of {edit.node}": repr(edit.value) for edit in edits} for edits in settings)
    twice = _repeated(place for place, _ in sorted({item for own in values for item in own.items()}))
    return "" if twice is None else f"{twice} is set twice"


def _moved_twice(chosen: tuple[Rewrite, ...]) -> str:
    """Returns a reason if two rewrites move an operator to different places: the later one would undo the other."""
    moves = ({edit.node: edit.after for edit in one.edits if isinstance(edit, Move)} for one in chosen)
    twice = _repeated(node for node, _ in sorted({place for own in moves for place in own.items()}))
    return "" if twice is None else f"{twice} would be moved to two places"


def _moved_away(chosen: tuple[Rewrite, ...]) -> str:
    """Returns a reason if one rewrite caches the output of an operator that another moves away from the cache."""
    for rewrite in chosen:
        cached = {edit.after: edit.op for edit in rewrite.edits if isinstance(edit, Insert) and edit.op != "prefetch"}
        for other in (one for one in chosen if one is not rewrite):
            moved = {edit.node for edit in other.edits if isinstance(edit, Move | Remove)}
            if (both := next((name for name in cached if name in moved), None)) is not None:
                return f"the {cached[both]} would stay in place while {both} is moved"
    return ""


def _order_conflict(pipeline: Pipeline, chosen: tuple[Rewrite, ...], edited: Pipeline) -> str:
    """Returns a reason if two operators would change places that no rewrite alone makes them change; "" if none do.

    That happens where one moves behind an operator that another rewrite moves on.
    """
    moving = [one for one in chosen if any(isinstance(edit, Move) for edit in one.edits)]
    if len(moving) < 2:
        return ""
    alone = (_exchanged(pipeline, apply_edits(pipeline, one.edits)) for one in moving)
    for upper, lower in sorted(_exchanged(pipeline, edited).difference(*alone)):
        return (
            f"the {pipeline[lower].title} would move in front of {pipeline[upper].title}, which no rewrite alone does"
        )
    return ""


def _exchanged(pipeline: Pipeline, edited: Pipeline) -> set[tuple[str, str]]:
    """Returns the pairs of operators of which the first was upstream of the second, and is downstream of it."""
    above = {node.id: {one.id for one in edited.upstream(node.id)} for node in edited}
    return {
        (upper.id, node.id)
        for node in pipeline
        for upper in pipeline.upstream(node.id)
        if node.id in above.get(upper.id, ())
    }


def _branch_conflict(pipeline: Pipeline, edits: Iterable[Edit]) -> str:
    """Returns a reason if an operator would move up to where another branch begins, which would then read it, too."""
    for edit in edits:
        if isinstance(edit, Move):
            path = {edit.node, *(one.id for one in pipeline.upstream(edit.node))}
            if edit.after in path and any(one.id not in path for one in pipeline.consumers(edit.after)):
                moved, anchor = pipeline[edit.node].title, pipeline[edit.after].title
                return f"the {moved} would move into every branch that reads {anchor}"
        pipeline = edit.apply(pipeline)
    return ""


def _replaced_twice(chosen: tuple[Rewrite, ...]) -> str:
    """Returns a reason if two rewrites replace the function of one operator; fused functions may be replaced ones."""
    functions = (edit for one in chosen for edit in one.edits if isinstance(edit, ReplaceFunction))
    twice = _repeated(edit.node for edit in functions if edit.form is not FunctionVariant.FUSED)
    return "" if twice is None else f"the function of {twice} is replaced twice"


def _source_replaced(chosen: tuple[Rewrite, ...], edited: Pipeline) -> str:
    """Returns a reason if one rewrite changes or inserts an operator that another removes with the source of rows."""
    for rewrite in chosen:
        others = (edit for other in chosen if other is not rewrite for edit in other.edits)
        numbered = {edit.node for edit in others if isinstance(edit, ReplaceSource)}
        for edit in rewrite.edits if numbered else ():
            changed = edit.id if isinstance(edit, Insert) else edit.node if isinstance(edit, SetArgument) else None
            if changed is not None and (changed not in edited or changed in numbered):
                return f"{changed} is removed together with the operators that built the rows"
    return ""


def _row_index_conflict(edited: Pipeline) -> str:
    """Returns a reason if an operator that needs rows would receive row indices."""
    for node in edited:
        accepts = not node.inputs or node.op in ROW_INDEX_OPERATORS or node.op == "batch"
        if node.id in edited.row_index_operators and not accepts:
            return f"{node.title} would receive row indices instead of rows"
    return ""


def _cache_conflict(
    context: RuleContext, chosen: tuple[Rewrite, ...], edited: Pipeline, consents: frozenset[Consent]
) -> str:
    """Returns a reason if a new or an existing cache would no longer hold what repeats in every epoch.

    What a new cache replaces is still there for it: it keeps what that one kept, such as the order of a shuffle.
    """
    after = replace(context, pipeline=edited, python_repeats=Consent.PYTHON_CACHE in consents)
    edits = (edit for rewrite in chosen for edit in rewrite.edits)
    kept = [one for one in edits if not (isinstance(one, Remove) and _is_cache(context.pipeline, one.node))]
    beside = apply_edits(context.pipeline, kept)
    for node in edited:
        if node.op != "cache":
            continue
        if node.id in context.pipeline:
            found = constancy_after(after, node.inputs[0])
            found_before = constancy_after(context, context.pipeline[node.id].inputs[0])
            worse = found.constancy > found_before.constancy
        else:
            found = constancy_after(replace(after, pipeline=beside), beside[node.id].inputs[0])
            settled = Consent.STATISTICAL in consents and is_order_settled(after, node.inputs[0])
            reordered = settled or Consent.REORDER in consents
            worse = found.constancy > (Constancy.SAME_ELEMENTS if reordered else Constancy.SAME)
        if worse:
            return f"the cache would then be downstream of {edited[found.node].title}: {found.why}"
        if node.id in context.pipeline:
            continue
        if found.constancy is Constancy.SAME_ELEMENTS:
            for reader, why in losing_variation(after, node):
                return f"the cache would fix the order in front of {reader.title}: {why}"
        if any(other.op == "cache" and other.id not in context.pipeline for other in edited.upstream(node.id)):
            return "two caches on one path would hold the same data twice"
        partly = next((reader for reader in edited.downstream(node.id) if stops_early(after, node, reader)), None)
        if partly is not None:
            return f"the cache would then be upstream of {partly.title}, which may not read it to the end"
    return ""


def _is_cache(pipeline: Pipeline, name: str) -> bool:
    return name in pipeline and pipeline[name].op == "cache"


def _interleave_conflict(context: RuleContext, edited: Pipeline) -> str:
    for node in edited:
        calls = node.argument("num_parallel_calls")
        if node.op != "interleave" or not isinstance(calls, int):
            continue
        if node.id in context.pipeline and node.arguments == context.pipeline[node.id].arguments:
            continue  # the script's own settings are not checked
        length = effective_cycle_length(node, context)
        if calls > length:
            return f"{calls} parallel calls exceed the cycle length of {length}"
    return ""
