"""`map-and-batch-fusion`: let TensorFlow write map results straight into the batch, or batch in parallel."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Edit, Move, NoProposal, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rewrites.pricing import ASSUMED_AUTOTUNE_ELEMENTS, buffer_bytes, bytes_per_element, format_bytes
from pipetune.rewrites.reorder import UpstreamMove, drop_notes, move_group, shuffle_move_class, upstream_moves
from pipetune.rewrites.rule import (
    DROPS_BY_POSITION,
    PASS_THROUGH_OPERATORS,
    Rule,
    RuleContext,
    at_each,
    describe_operator,
    is_order_required,
    is_stateless,
    keeps_order,
    overtaking_safety,
)

NAME = "map-and-batch-fusion"

_OPTION = "experimental_optimization.map_and_batch_fusion"
_DEFAULT_OPTIMIZATIONS_OPTION = "experimental_optimization.apply_default_optimizations"

_UNFUSABLE_BATCHES = frozenset({"padded_batch", "ragged_batch"})


def is_fused(batch: Node, context: RuleContext) -> bool:
    """Whether TensorFlow fuses `batch` with a map.

    The runtime fuses any map directly upstream of a serial `batch`, whatever its function and its other consumers
    (seen in the runtime's model, TensorFlow 2.21). A function with state then runs one call at a time, unless the map
    sets the number of calls.
    """
    above = context.pipeline[batch.inputs[0]]
    if above.op != "map":
        return False
    if context.observed_kernels.get(batch.id) == "MapAndBatch":
        return True
    prevented = batch.argument("num_parallel_calls") is not None or above.argument("use_unbounded_threadpool") is True
    return not prevented and not _option_against_fusion(context)


def _option_against_fusion(context: RuleContext) -> str:
    """Returns the option by which the script switches the fusion off; "" if it does not."""
    options = context.pipeline.options
    switched_off = (name for name in (_OPTION, _DEFAULT_OPTIMIZATIONS_OPTION) if options.get(name) is False)
    return "" if options.get(_OPTION) is True else next(switched_off, "")


@at_each("batch", *_UNFUSABLE_BATCHES)
def propose(batch: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields how TensorFlow could fuse a batch with a map or fill it in parallel, or why it cannot."""
    above = context.pipeline[batch.inputs[0]]
    if batch.op in _UNFUSABLE_BATCHES:
        if above.op == "map":
            yield NoProposal(NAME, batch.id, f"TensorFlow fuses only plain batch; {batch.op} has no fused variant.")
        return
    if is_fused(batch, context):
        why = "TensorFlow already fuses this batch with the map before it."
        if above.argument("num_parallel_calls") is None and not is_stateless(above):
            why += " The map then runs one call at a time, because its function is not stateless: see parallel-map."
        yield NoProposal(NAME, batch.id, why)
        return
    passes = above.op in PASS_THROUGH_OPERATORS and len(above.inputs) == 1
    readers = context.pipeline.consumers(above.id)
    if passes and len(readers) == 1 and context.pipeline[above.inputs[0]].op == "map":
        yield from _move_blocker(batch, above, context)
    elif above.op != "map":
        yield NoProposal(NAME, batch.id, f"Not fused: {describe_operator(above)} is upstream of it, not a map.")
    elif batch.argument("num_parallel_calls") is not None:
        summary = "Make the batch serial, so that TensorFlow fuses it with the map before it."
        yield _fuse(batch, SetArgument(batch.id, "num_parallel_calls", None), summary)
    elif above.argument("use_unbounded_threadpool") is True:
        yield NoProposal(NAME, batch.id, "Not fused: the map runs in an unbounded thread pool.")
    else:
        note = f"The script switches it off through {_option_against_fusion(context)}."
        yield _fuse(batch, SetOption(_OPTION, True), "Switch the fusion of map and batch on.", note)
    yield from _parallel_batch(batch, context)


def _move_blocker(batch: Node, between: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Proposes to move the operator between the map and the batch upstream of the map."""
    first = next(upstream_moves(context, between), None)
    if not isinstance(first, UpstreamMove):
        obstacle = first.why if first is not None else "the map has another consumer"
        why = f"Not fused: {describe_operator(between)} between the map and the batch has to stay: {obstacle}."
        yield NoProposal(NAME, batch.id, why)
        return
    safety, notes = _move_class(between, context, first)
    memory = _added_bytes(between, first, context)
    if memory < 0:
        notes = (*notes, f"The buffer of {between.title} then takes {format_bytes(-memory)} less memory.")
    yield Rewrite(
        rule=NAME,
        node=batch.id,
        safety=safety,
        edits=(Move(between.id, first.anchor),),
        summary=f"Move {between.title} before the map, so that TensorFlow fuses the map with the batch.",
        group=move_group(between),
        notes=notes,
        predicted_bytes=memory,
    )


def _move_class(between: Node, context: RuleContext, step: UpstreamMove) -> tuple[Safety, tuple[str, ...]]:
    if between.op == "shuffle":
        return shuffle_move_class(between, context, step)
    if between.op == "repeat" and not all(is_stateless(node) for node in step.maps):
        return max(step.safety, Safety.STATISTICAL), ("The random draws of the map then continue from epoch to epoch.",)
    return step.safety, drop_notes(step) if between.op in DROPS_BY_POSITION else ()


def _added_bytes(between: Node, step: UpstreamMove, context: RuleContext) -> float:
    size, places = between.argument("buffer_size"), (step.anchor, between.inputs[0])
    if not isinstance(size, int) or any(bytes_per_element(context, place) is None for place in places):
        return 0.0
    after, before = (buffer_bytes(context, place, size) for place in places)
    return after - before


def _fuse(batch: Node, edit: Edit, summary: str, *notes: str) -> Rewrite:
    return Rewrite(NAME, batch.id, Safety.EXACT, (edit,), summary, group=f"{NAME}@{batch.id}", notes=notes)


def _parallel_batch(batch: Node, context: RuleContext) -> Iterator[Rewrite]:
    """Proposes to fill several batches in parallel, which a fused map would do already."""
    in_order = keeps_order(batch, context)
    for number in dict.fromkeys((AUTOTUNE, 2)):
        if number == batch.argument("num_parallel_calls"):
            continue
        held = min(context.cores, ASSUMED_AUTOTUNE_ELEMENTS) if number == AUTOTUNE else number
        many = "as many batches as AUTOTUNE finds useful" if number == AUTOTUNE else f"{number} batches"
        yield Rewrite(
            rule=NAME,
            node=batch.id,
            safety=overtaking_safety(batch, order_required=in_order),
            edits=(SetArgument(batch.id, "num_parallel_calls", number),),
            summary=f"Build {many} in parallel.",
            group=f"{NAME}@{batch.id}",
            reproducible=in_order and is_order_required(context),
            predicted_bytes=buffer_bytes(context, batch.id, held),
        )


RULE = Rule(
    name=NAME,
    summary="Checks whether TensorFlow fuses map and batch, removes obstacles, and batches in parallel.",
    legality=(
        "TensorFlow fuses a map directly before a plain serial batch, whatever its function; then nothing is proposed. "
        "It does not fuse them if an operator is in between, if the batch is parallel, padded or ragged, if the map "
        "uses an unbounded thread pool, or if an option switches fusion off. A shuffle, prefetch, take, skip, shard or "
        "repeat in between is moved before the map if the map depends on its element alone; only shuffle, prefetch and "
        "repeat may move past a random map. Filters, caches and operators that count elements stay. Parallel batching "
        "is proposed if no map is fused, but not behind one that reads what training may change: it would read ahead. "
        "Never if an ignore_errors downstream would then drop other elements: an error in a fused batch takes the "
        "whole batch along."
    ),
    safety=(
        "EXACT if the map is stateless, and for a parallel batch in order; STATISTICAL if a shuffle or repeat "
        "moves past a random map, and for full parallel batches out of order (`deterministic=False`); REORDERS "
        "if one of these batches may be short, or if a repeat moves past a map that need not keep the order. A "
        "parallel batch is STATISTICAL and needs --allow python-parallel where Python code in front of it would then "
        "run while other Python code does."
    ),
    propose=propose,
)
