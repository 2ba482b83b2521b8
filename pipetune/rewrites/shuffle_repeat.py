"""`shuffle-repeat-order`, `shuffle-small`, `merge-repeats` and `drop-no-op`: where to shuffle and repeat, how often,
and which operators change nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipetune.core.edits import Edit, Move, NoProposal, Remove, Rewrite, Safety, SetArgument
from pipetune.core.operators import runs_pass
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node
from pipetune.rewrites.epoch_constancy import reshuffles_each_epoch
from pipetune.rewrites.prefetch import read_ahead_obstacle
from pipetune.rewrites.pricing import (
    buffer_bytes,
    bytes_per_element,
    element_count,
    format_bytes,
    shuffle_buffer_elements,
)
from pipetune.rewrites.reorder import (
    Obstacle,
    UpstreamMove,
    move_group,
    run_down_to,
    shuffle_move_class,
    upstream_moves,
)
from pipetune.rewrites.rule import (
    POSITIONAL,
    Rule,
    RuleContext,
    at_each,
    describe_operator,
    describe_state,
    is_stateless,
    keeps_order,
    positional_operator_after,
    runs_ahead,
    runs_python,
    upstream_chain,
)

SHUFFLE_REPEAT_ORDER = "shuffle-repeat-order"

_REPEAT_MAY_PASS = frozenset({"map", "filter", "prefetch", "with_options", "batch", "padded_batch"})
"""Operators that output the same elements per epoch even if their input is one stream instead of separate epochs."""


@at_each("repeat")
def propose_shuffle_repeat_order(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the other order of a repeat and a shuffle next to it, or why the order is kept."""
    picker = positional_operator_after(node, context, operators=POSITIONAL)
    for found in _swap_proposals(node, context):
        if picker is None or isinstance(found, NoProposal) or found.safety < Safety.REORDERS:
            yield found
        else:
            why = f"{describe_operator(picker)} would otherwise select different elements"
            why = f"The order of shuffle and repeat is kept: {why}."
            yield NoProposal(SHUFFLE_REPEAT_ORDER, node.id, why)


def _swap_proposals(repeat: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the opposite of the current order of shuffle and repeat."""
    shuffle, between = _upstream_shuffle(repeat, context)
    if shuffle is not None:
        dropping = next((node for node in between if _drops_remainder(node, context)), None)
        if dropping is not None:
            why = (
                f"The repeat stays after {describe_operator(dropping)}, which drops the incomplete batch of "
                "each epoch: upstream of it, those elements would be used."
            )
            yield NoProposal(SHUFFLE_REPEAT_ORDER, repeat.id, why)
            return
        if between:
            yield _repeat_behind_shuffle(repeat, shuffle, between, context)
        yield _repeat_first(repeat, shuffle)
        return
    shuffle, passed = _downstream_shuffle(repeat, context)
    if shuffle is not None:
        yield _shuffle_before_repeat(repeat, shuffle, passed)


def _upstream_shuffle(repeat: Node, context: RuleContext) -> tuple[Node | None, list[Node]]:
    """Returns the nearest shuffle upstream of `repeat` and the operators in between, if `repeat` may pass them all."""
    between: list[Node] = []
    for above in upstream_chain(context.pipeline, repeat):
        if above.op == "shuffle" and not above.made_by_list_files:
            return above, between
        if not _repeat_may_pass(above):
            break
        between.append(above)
    return None, []


def _downstream_shuffle(repeat: Node, context: RuleContext) -> tuple[Node | None, list[Node]]:
    passed: list[Node] = []
    readers = context.pipeline.consumers(repeat.id)
    while len(readers) == 1 and len(readers[0].inputs) == 1:
        (reader,) = readers
        if reader.op == "shuffle":
            return reader, passed
        if not _repeat_may_pass(reader) or _batches(reader):
            break  # passing a batch would change which elements share one
        passed.append(reader)
        readers = context.pipeline.consumers(reader.id)
    return None, []


def _repeat_may_pass(node: Node) -> bool:
    return node.op in _REPEAT_MAY_PASS and not describe_state(node) and not runs_python(node)


def _batches(node: Node) -> bool:
    return node.op in ("batch", "padded_batch")


def _drops_remainder(node: Node, context: RuleContext) -> bool:
    if not (_batches(node) and node.argument("drop_remainder")):
        return False
    elements = element_count(context, node.inputs[0])
    size = node.argument("batch_size")
    return not (isinstance(size, int) and size > 0 and elements and elements > 0 and elements % size == 0)


def _repeat_behind_shuffle(repeat: Node, shuffle: Node, between: list[Node], context: RuleContext) -> Rewrite:
    batches = any(_batches(node) for node in between)
    overtakes = any(node.op == "map" and not keeps_order(node, context) for node in between)
    same_stream = not batches and not overtakes and all(is_stateless(node) for node in between)
    notes = ["TensorFlow fuses the two: the shuffle buffer stays filled across epoch boundaries."]
    if batches:
        both = "a batch may hold the end of one epoch and the start of the next"
        notes.append(f"Each element still occurs once per epoch, but {both}.")
    if overtakes:
        notes.append("Elements of one epoch may then overtake those of the epoch before.")
    summary = "Repeat directly after the shuffle, so that the pipeline does not restart in each epoch."
    safety = Safety.EXACT if same_stream else Safety.REORDERS
    return _moved(repeat, shuffle.id, safety, summary, *notes, epochs_kept=not (batches or overtakes))


def _repeat_first(repeat: Node, shuffle: Node) -> Rewrite:
    summary = "Repeat before the shuffle, so that there is no wait for a full buffer at the start of each epoch."
    notes = (
        "Epochs mix: an element may occur twice before another has occurred once.",
        "The buffer holds as many elements as before, now from two epochs.",
    )
    return _moved(repeat, shuffle.inputs[0], Safety.REORDERS, summary, *notes, epochs_kept=False)


def _shuffle_before_repeat(repeat: Node, shuffle: Node, passed: list[Node]) -> Rewrite:
    again = "every element occurs once before any occurs again"
    notes = [f"Epochs no longer mix: {again}. The buffer is refilled in each epoch."]
    if shuffle.argument("reshuffle_each_iteration") is False:
        notes.append("With reshuffle_each_iteration=False, all epochs then have the same order.")
    if passed:
        notes.append("The repeat then also follows " + ", ".join(node.title for node in passed) + ".")
    summary = "Shuffle before the repeat, so that every element occurs once per epoch."
    return _moved(repeat, shuffle.id, Safety.REORDERS, summary, *notes)


def _moved(repeat: Node, anchor: str, safety: Safety, summary: str, *notes: str, epochs_kept: bool = True) -> Rewrite:
    """Returns the rewrite that puts `repeat` directly after the operator `anchor`."""
    return Rewrite(
        rule=SHUFFLE_REPEAT_ORDER,
        node=repeat.id,
        safety=safety,
        edits=(Move(repeat.id, anchor),),
        summary=summary,
        group=move_group(repeat),
        epochs_kept=epochs_kept,
        notes=notes,
    )


SHUFFLE_REPEAT_ORDER_RULE = Rule(
    name=SHUFFLE_REPEAT_ORDER,
    summary="Tries the opposite order of shuffle and repeat.",
    legality=(
        "Repeat and shuffle are swapped only past map, filter, prefetch and batches that drop nothing, never past "
        "cache, take, skip, enumerate or another operator that counts elements; and never upstream of a take, skip, "
        "shard, zip, window or enumerate, which would select different elements, unless the order stays the same."
    ),
    safety=(
        "A repeat directly after the shuffle is EXACT if only stateless maps that keep the order and filters were in "
        "between. Every other change of their order is REORDERS; with the repeat first, epochs mix."
    ),
    propose=propose_shuffle_repeat_order,
)


SHUFFLE_SMALL = "shuffle-small"

_MIN_GROWTH = 2.0  # times as many elements: a smaller increase of the buffer is not worth offering


@at_each("shuffle")
def propose_shuffle_small(shuffle: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the move of a shuffle to where elements are smallest, the nearest such place, or why it stays."""
    here = bytes_per_element(context, shuffle.inputs[0])
    best: UpstreamMove | None = None
    smallest = here
    unknown = False
    for step in upstream_moves(context, shuffle):
        if isinstance(step, Obstacle):
            if best is None:
                why = f"The shuffle stays after {describe_operator(step.node)}: {step.why}."
                yield NoProposal(SHUFFLE_SMALL, shuffle.id, why)
            break
        if step.passed.op != "map":
            continue
        size = bytes_per_element(context, step.anchor)
        if size is None or smallest is None:
            unknown = True
        elif size < smallest:
            best, smallest = step, size
    if best is not None and here is not None and smallest is not None:
        yield from _shuffle_first(shuffle, context, best, before=here, after=smallest)
    elif unknown:
        why = "It is unknown whether the maps upstream of the shuffle make elements larger."
        yield NoProposal(SHUFFLE_SMALL, shuffle.id, why)


def _shuffle_first(
    shuffle: Node, context: RuleContext, step: UpstreamMove, *, before: float, after: float
) -> Iterator[Rewrite]:
    """Yields the move, and the move with a larger buffer that fits in the memory of the old one."""
    held, elements = shuffle_buffer_elements(context, shuffle), element_count(context, shuffle.inputs[0])
    safety, notes = shuffle_move_class(shuffle, context, step)
    names = ", ".join(node.title for node in reversed(step.maps))
    move = Move(shuffle.id, step.anchor)

    def rewrite(size: int, safety: Safety, edits: tuple[Edit, ...], window: str) -> Rewrite:
        return Rewrite(
            rule=SHUFFLE_SMALL,
            node=shuffle.id,
            safety=safety,
            edits=edits,
            summary=(
                f"Shuffle before {names}: the buffer takes {format_bytes(after)} per element instead of "
                f"{format_bytes(before)} ({format_bytes(size * after)} instead of {format_bytes(held * before)}"
                " in total)."
            ),
            group=move_group(shuffle),
            notes=(*notes, window),
            predicted_bytes=size * after - held * before,
        )

    yield rewrite(held, safety, (move,), f"The shuffle buffer still holds {_format_buffer(held, elements)}.")
    fits = int(held * before // after) if after > 0 else 0
    larger = min(fits, elements) if elements is not None and elements > 0 else fits
    if larger >= _MIN_GROWTH * held > 0 and positional_operator_after(shuffle, context, operators=POSITIONAL) is None:
        yield rewrite(
            larger,
            max(safety, Safety.REORDERS),
            (move, SetArgument(shuffle.id, "buffer_size", larger)),
            f"The shuffle buffer grows from {held:,} elements to {_format_buffer(larger, elements)}, without "
            "taking more memory.",
        )


def _format_buffer(size: int, elements: int | None) -> str:
    if elements is None or elements <= 0:
        return f"{size:,} elements"
    return f"all {elements:,} elements" if size >= elements else f"{size:,} of {elements:,} elements"


SHUFFLE_SMALL_RULE = Rule(
    name=SHUFFLE_SMALL,
    summary="Shuffles before the maps that make elements larger, so that the buffer holds small elements.",
    legality=(
        "A shuffle commutes with a map that depends on its element alone: never with one that keeps state or "
        "runs Python, and not if ignore_errors may drop elements on which the map fails. Apart from maps it "
        "moves only past prefetch and options: not past a filter, take, skip, shard, batch, cache, interleave "
        "or flat_map. Only if the sizes of the elements are known. The size of the shuffle buffer, in "
        "elements, stays the same; a larger one that fits in the same memory is offered as an alternative, "
        "unless a take, skip, shard, zip, window or enumerate downstream would select different elements."
    ),
    safety=(
        "EXACT past stateless maps; STATISTICAL past random ones (the draws meet different elements), and if an "
        "unseeded shuffle might get a different seed. REORDERS with a larger buffer, because the order changes."
    ),
    propose=propose_shuffle_small,
)


MERGE_REPEATS = "merge-repeats"


@at_each("repeat")
def propose_merge_repeats(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields one repeat in place of a run of consecutive repeats that ends with this one, or why they stay."""
    readers, run = context.pipeline.consumers(node.id), run_down_to(node, {"repeat"}, context)
    if len(run) == 1 or (len(readers) == 1 and readers[0].op == "repeat"):
        return
    known = [count for count in map(_count, run) if count is not None]
    reshuffle = upstream_reshuffle(run[0], context)
    kept_apart = f"{describe_operator(run[0])} and the next are not merged"
    why = ""
    if len(known) < len(run):
        why = f"{kept_apart}: it is unknown how often they repeat."
    elif 0 in known:
        why = "repeat(0) yields no elements: there is nothing to merge."
    elif reshuffle is not None:
        why = (
            f"{kept_apart}: the orders of {describe_operator(reshuffle)} upstream depend on how often its iteration is "
            "restarted, and would differ in later epochs."
        )
    if why:
        yield NoProposal(MERGE_REPEATS, node.id, why)
        return
    together = INFINITE if INFINITE in known else math.prod(known)
    kept = run[known.index(together)] if together in known else run[0]
    edits: list[Edit] = [Remove(one.id) for one in run if one is not kept]
    if _count(kept) != together:
        edits.append(SetArgument(kept.id, "count", together))
    often = "endlessly" if together == INFINITE else f"{together} times"
    yield Rewrite(
        rule=MERGE_REPEATS,
        node=node.id,
        safety=Safety.EXACT,
        edits=tuple(edits),
        summary=f"Repeat {often} in one operator instead of {len(run)}.",
        group=f"{MERGE_REPEATS}@{run[0].id}",
    )


def upstream_reshuffle(repeat: Node, context: RuleContext) -> Node | None:
    """Returns an operator upstream that reshuffles each epoch; its orders depend on the repeats downstream.

    Measured with TensorFlow 2.21: `shuffle(5, seed=3).repeat(2).repeat(3)`, iterated again, has other orders than
    `shuffle(5, seed=3).repeat(6)`.
    """
    return next((node for node in context.pipeline.upstream(repeat.id) if reshuffles_each_epoch(node)), None)


def _count(node: Node) -> int | None:
    """Returns how often a repeat outputs its input, `INFINITE` if endless; None if not known."""
    count = node.argument("count")
    return max(count, INFINITE) if isinstance(count, int) else None


MERGE_REPEATS_RULE = Rule(
    name=MERGE_REPEATS,
    summary="Merges consecutive repeats into one.",
    legality=(
        "Only repeats with nothing in between and no other consumer, whose counts are known and not 0. Finite "
        "counts are multiplied; one endless repeat makes the result endless. Never downstream of a shuffle "
        "that reshuffles each epoch: its later orders depend on how often its iteration is restarted."
    ),
    safety="EXACT: the same epochs, one after the other.",
    propose=propose_merge_repeats,
)


NAME = "drop-no-op"


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the removal of each operator that has no effect, and why others that seem to have none stay."""
    for node in context.pipeline:
        if len(node.inputs) != 1:
            continue
        if node.op == "shuffle" and node.argument("buffer_size") == 1:
            why = "the call draws a seed, and without it the following shuffles would get different seeds"
            yield NoProposal(NAME, node.id, f"{describe_operator(node)} stays: it does not shuffle, but {why}.")
        elif node.op == "prefetch":
            yield from _remove_redundant_prefetch(node, context)
        elif context.pipeline.has_no_effect(node):
            reshuffle = upstream_reshuffle(node, context) if node.op == "repeat" else None
            if reshuffle is not None:
                shuffle = describe_operator(reshuffle)
                why = f"the orders of {shuffle} upstream depend on how often its iteration is restarted"
                yield NoProposal(NAME, node.id, f"{describe_operator(node)} stays: {why}.")
            elif runs_pass(context.pipeline.options, "noop_elimination"):
                yield NoProposal(NAME, node.id, f"TensorFlow removes {describe_operator(node)} itself.")
            else:
                yield from _removal(node, context, summary=f"Remove {describe_operator(node)}, which has no effect.")


def _remove_redundant_prefetch(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    above = context.pipeline[node.inputs[0]]
    if above.op != "prefetch" or len(above.inputs) != 1 or len(context.pipeline.consumers(above.id)) != 1:
        return
    sizes = (one.argument("buffer_size") for one in (node, above))
    here, there = (size if isinstance(size, int) and size != AUTOTUNE else math.inf for size in sizes)
    smaller = node if here < there else above
    summary = f"Remove {describe_operator(smaller)}: it is next to another prefetch."
    yield from _removal(smaller, context, summary=summary)


def _removal(node: Node, context: RuleContext, *, summary: str) -> Iterator[Rewrite | NoProposal]:
    if runs_ahead(node) and (why := read_ahead_obstacle(context.pipeline.upstream(node.id))):
        yield NoProposal(NAME, node.id, f"{describe_operator(node)} stays: {why}.")
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
    summary="Removes operators without effect: identity maps, take(-1), skip(0), repeat(1), a second prefetch.",
    legality=(
        "A map is removed only if its traced function returns every component unchanged, with the same structure, "
        "types and static shapes, and neither validates values nor keeps state: a map that sets shapes, asserts or "
        "prints is not a no-op. Of two consecutive prefetches, the smaller one is removed. Never a shuffle, because "
        "its call draws a seed; never a repeat downstream of an operator that reshuffles each epoch; never a batch, "
        "which produces other elements; and never if an operator that reads ahead reads what training changes. Nothing "
        "is proposed if TensorFlow's own pass removes the operator."
    ),
    safety="EXACT: the same elements in the same order.",
    propose=propose,
)
