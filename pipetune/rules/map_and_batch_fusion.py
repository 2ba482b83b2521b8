"""`map-and-batch-fusion`: let TensorFlow write map results straight into the batch, or batch in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipetune.core.edits import Move, Rewrite, Safety, SetArgument, SetOption, Silence
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import class_of_overtaking, described, deterministic, order_asked_for, stateless
from pipetune.rules.moving import Step, place_group, shuffle_move_class, steps_up
from pipetune.rules.pricing import ASSUMED_AUTOTUNE_ELEMENTS, as_size, buffer_bytes, bytes_per_element

NAME = "map-and-batch-fusion"

_OPTION = "experimental_optimization.map_and_batch_fusion"
_DEFAULTS = "experimental_optimization.apply_default_optimizations"

_COMMUTES = frozenset({"shuffle", "prefetch", "take", "skip", "shard", "repeat"})
"""Operators that never modify an element, so that a map may be on either side of them."""

_UNFUSABLE_BATCHES = frozenset({"padded_batch", "ragged_batch"})


@dataclass(frozen=True)
class Verdict:
    """Whether TensorFlow fuses a batch with a map, and why not."""

    fuses: bool
    why: str = ""
    map: Node | None = None
    between: Node | None = None  # the only operator in the way, if moving it suffices
    option: str = ""  # the option that switches the fusion off


def verdict(batch: Node, context: RuleContext) -> Verdict:
    """Returns whether TensorFlow fuses `batch` with a map.

    The runtime fuses any map directly upstream of a serial `batch`, whatever its function and its other consumers
    (seen in the runtime's model, TensorFlow 2.21). A function with state then runs one call at a time, unless the map
    sets the number of calls.
    """
    above = context.pipeline[batch.inputs[0]] if len(batch.inputs) == 1 else None
    if above is None:
        return Verdict(False, "nothing stands above it")
    if above.op != "map":
        found = _map_above(above, context)
        if found is None:
            return Verdict(False, f"{described(above)} stands above it, not a map")
        return Verdict(
            False, f"{described(above)} stands between the map and the batch", map=found, between=above
        )
    if context.fused.get(batch.id) == "MapAndBatch":
        return Verdict(True, map=above)
    if batch.argument("num_parallel_calls") is not None:
        return Verdict(False, "a parallel batch is never fused", map=above)
    if above.argument("use_unbounded_threadpool") is True:
        return Verdict(False, "the map runs in an unbounded thread pool", map=above)
    for option in (_OPTION, _DEFAULTS):
        if _option(context, option) is False and _option(context, _OPTION) is not True:
            return Verdict(False, f"the script switches it off ({option})", map=above, option=option)
    return Verdict(True, map=above)


def _map_above(node: Node, context: RuleContext) -> Node | None:
    if node.op not in _COMMUTES or len(node.inputs) != 1 or len(context.pipeline.consumers(node.id)) != 1:
        return None
    above = context.pipeline[node.inputs[0]]
    return above if above.op == "map" else None


def _option(context: RuleContext, name: str) -> object:
    return context.pipeline.options.get(name)


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op in _UNFUSABLE_BATCHES and context.pipeline[node.inputs[0]].op == "map":
            yield Silence(NAME, node.id, f"TensorFlow fuses only plain batch; {node.op} has no fused form.")
        if node.op == "batch":
            yield from _at(node, context)


def _at(batch: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    found = verdict(batch, context)
    if found.fuses and found.map is not None:
        yield Silence(NAME, batch.id, _already(found.map))
        return
    if found.between is not None:
        yield from _clear_the_way(batch, found.between, context)
    elif found.map is not None and batch.argument("num_parallel_calls") is not None:
        yield _serial_again(batch)
    elif found.option:
        yield _switch_on(batch, found.option)
    else:
        yield Silence(NAME, batch.id, f"Not fused: {found.why}.")
    yield from _parallel_batch(batch, context)


def _already(above: Node) -> str:
    text = "TensorFlow already fuses this batch with the map above it."
    if above.argument("num_parallel_calls") is None and not stateless(above):
        text += " The map runs one call at a time there, for its function is not stateless: see parallel-map."
    return text


def _clear_the_way(batch: Node, between: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    """Proposes to move the operator between the map and the batch upstream of the map."""
    first = next(steps_up(context, between), None)
    if not isinstance(first, Step):
        obstacle = first.why if first is not None else "the map has another reader"
        why = f"Not fused: {described(between)} between the map and the batch has to stay: {obstacle}."
        yield Silence(NAME, batch.id, why)
        return
    safety, notes = _class_of(between, context, first)
    memory = _memory(between, first, context)
    if memory < 0:
        notes = (*notes, f"The buffer of {between.title} then holds {as_size(-memory)} less.")
    yield Rewrite(
        rule=NAME,
        node=batch.id,
        safety=safety,
        edits=(Move(between.id, first.anchor),),
        summary=f"Move {between.title} above the map, so that TensorFlow fuses the map with the batch.",
        group=place_group(between),
        notes=notes,
        predicted_bytes=memory,
    )


def _class_of(between: Node, context: RuleContext, step: Step) -> tuple[Safety, tuple[str, ...]]:
    if between.op == "shuffle":
        return shuffle_move_class(between, context, step)
    if between.op == "repeat" and not all(stateless(node) for node in step.maps):
        return max(step.safety, Safety.STATISTICAL), ("The map's draws go on from epoch to epoch.",)
    return step.safety, ()


def _memory(between: Node, step: Step, context: RuleContext) -> float:
    size = between.argument("buffer_size")
    if not isinstance(size, int):
        return 0.0
    if (
        bytes_per_element(context, step.anchor) is None
        or bytes_per_element(context, between.inputs[0]) is None
    ):
        return 0.0
    return buffer_bytes(context, step.anchor, size) - buffer_bytes(context, between.inputs[0], size)


def _serial_again(batch: Node) -> Rewrite:
    return Rewrite(
        rule=NAME,
        node=batch.id,
        safety=Safety.EXACT,
        edits=(SetArgument(batch.id, "num_parallel_calls", None),),
        summary="Make the batch serial again, so that TensorFlow fuses it with the map above it.",
        group=f"{NAME}@{batch.id}",
    )


def _switch_on(batch: Node, option: str) -> Rewrite:
    return Rewrite(
        rule=NAME,
        node=batch.id,
        safety=Safety.EXACT,
        edits=(SetOption(_OPTION, True),),
        summary="Switch the fusion of map and batch on.",
        group=f"{NAME}@{batch.id}",
        notes=(f"The script switches it off through {option}.",),
    )


def _parallel_batch(batch: Node, context: RuleContext) -> Iterator[Rewrite]:
    """Proposes to fill several batches in parallel, which a fused map would do already."""
    in_order = deterministic(batch, context)
    for number in dict.fromkeys((AUTOTUNE, 2)):
        if number == batch.argument("num_parallel_calls"):
            continue
        held = min(context.cores, ASSUMED_AUTOTUNE_ELEMENTS) if number == AUTOTUNE else number
        many = "as many batches as AUTOTUNE finds useful" if number == AUTOTUNE else f"{number} batches"
        yield Rewrite(
            rule=NAME,
            node=batch.id,
            safety=class_of_overtaking(batch, in_order=in_order),
            edits=(SetArgument(batch.id, "num_parallel_calls", number),),
            summary=f"Put together {many} at a time.",
            group=f"{NAME}@{batch.id}",
            reproducible=in_order and order_asked_for(context),
            predicted_bytes=buffer_bytes(context, batch.id, held),
        )


RULE = Rule(
    name=NAME,
    summary="Reads whether TensorFlow fuses map and batch, clears what is in the way, batches in parallel.",
    legality=(
        "TensorFlow fuses a map directly above a plain serial batch, whatever its function; then nothing is "
        "proposed. It does not where something stands between them, where the batch is parallel, padded or "
        "ragged, where the map uses an unbounded thread pool, or where an option switches it off. A shuffle, "
        "prefetch, take, skip, shard or repeat in between moves above the map if the map depends on its "
        "element alone; past a random map only shuffle, prefetch and repeat do. Filters, caches and "
        "operators that count stay. Parallel batching is proposed where no map is fused."
    ),
    safety=(
        "EXACT where the map is stateless and for a parallel batch in order; STATISTICAL where a shuffle or "
        "repeat passes a random map, and for a parallel batch of whole batches out of order (`deterministic=False`); "
        "REORDERS where one of those may be short."
    ),
    propose=propose,
)
