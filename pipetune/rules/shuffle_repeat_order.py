"""`shuffle-repeat-order`: swap shuffle and repeat, which affects epoch boundaries and buffers."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Move, Rewrite, Safety, Silence
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import POSITIONAL, described, keeps_state, picks_by_place, runs_python, stateless
from pipetune.rules.moving import place_group
from pipetune.rules.pricing import element_count

NAME = "shuffle-repeat-order"

_REPEAT_PASSES = frozenset({"map", "filter", "prefetch", "with_options", "batch", "padded_batch"})
"""Operators that output the same elements per epoch even if their input is one stream instead of separate epochs."""


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op == "repeat" and len(node.inputs) == 1:
            picker = picks_by_place(node, context, among=POSITIONAL)
            for found in _orders(node, context):
                if picker is None or isinstance(found, Silence) or found.safety < Safety.REORDERS:
                    yield found
                else:
                    why = f"Shuffle and repeat stay as they are: {described(picker)} would give other elements."
                    yield Silence(NAME, node.id, why)


def _orders(repeat: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    """Yields the opposite of the current order of shuffle and repeat."""
    shuffle, between = _shuffle_above(repeat, context)
    if shuffle is not None:
        dropping = next((node for node in between if _drops_a_rest(node, context)), None)
        if dropping is not None:
            why = (
                f"Repeat stays below {described(dropping)}, which drops the incomplete batch of each epoch: "
                "above it, those elements would be used."
            )
            yield Silence(NAME, repeat.id, why)
            return
        if between:
            yield _repeat_behind_shuffle(repeat, shuffle, between)
        yield _repeat_first(repeat, shuffle)
        return
    shuffle, passed = _shuffle_below(repeat, context)
    if shuffle is not None:
        yield _shuffle_before_repeat(repeat, shuffle, passed)


def _shuffle_above(repeat: Node, context: RuleContext) -> tuple[Node | None, list[Node]]:
    """Returns the nearest shuffle upstream of `repeat` and the operators in between, if `repeat` may pass them all."""
    between: list[Node] = []
    current = repeat
    while len(current.inputs) == 1:
        above = context.pipeline[current.inputs[0]]
        if len(context.pipeline.consumers(above.id)) != 1:
            break
        if above.op == "shuffle":
            return (None, []) if _made_by_list_files(above) else (above, between)
        if not _repeat_may_pass(above):
            break
        between.append(above)
        current = above
    return None, []


def _shuffle_below(repeat: Node, context: RuleContext) -> tuple[Node | None, list[Node]]:
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
    return node.op in _REPEAT_PASSES and not keeps_state(node) and not runs_python(node)


def _made_by_list_files(node: Node) -> bool:
    """Whether the shuffle is part of a `list_files` call: nothing can be inserted between the two."""
    return node.location is not None and node.location.method == "list_files"


def _batches(node: Node) -> bool:
    return node.op in ("batch", "padded_batch")


def _drops_a_rest(node: Node, context: RuleContext) -> bool:
    if not (_batches(node) and node.argument("drop_remainder")):
        return False
    elements = element_count(context, node.inputs[0])
    size = node.argument("batch_size")
    return not (isinstance(size, int) and size > 0 and elements and elements > 0 and elements % size == 0)


def _repeat_behind_shuffle(repeat: Node, shuffle: Node, between: list[Node]) -> Rewrite:
    batches = any(_batches(node) for node in between)
    same_stream = not batches and all(stateless(node) for node in between)
    notes = ["TensorFlow fuses the two: the shuffle buffer stays filled across the end of an epoch."]
    if batches:
        notes.append(
            "Each element still comes once per epoch, but a batch may hold the end of one and the next's "
            "start."
        )
    return Rewrite(
        rule=NAME,
        node=repeat.id,
        safety=Safety.EXACT if same_stream else Safety.REORDERS,
        edits=(Move(repeat.id, shuffle.id),),
        summary="Repeat directly behind the shuffle: the pipeline does not start anew with each epoch.",
        group=place_group(repeat),
        epochs_kept=not batches,
        notes=tuple(notes),
    )


def _repeat_first(repeat: Node, shuffle: Node) -> Rewrite:
    return Rewrite(
        rule=NAME,
        node=repeat.id,
        safety=Safety.REORDERS,
        edits=(Move(repeat.id, shuffle.inputs[0]),),
        summary="Repeat before the shuffle: no wait for a full buffer at the start of each epoch.",
        group=place_group(repeat),
        epochs_kept=False,
        notes=(
            "Epochs blur: an element may come twice before another came once.",
            "The buffer holds as many elements as before, now from two epochs.",
        ),
    )


def _shuffle_before_repeat(repeat: Node, shuffle: Node, passed: list[Node]) -> Rewrite:
    notes = [
        "Epochs come apart: every element once before any comes again. The buffer is filled once per epoch."
    ]
    if shuffle.argument("reshuffle_each_iteration") is False:
        notes.append("With reshuffle_each_iteration=False every epoch then has the same order.")
    if passed:
        notes.append("Also behind " + ", ".join(node.title for node in passed) + ".")
    return Rewrite(
        rule=NAME,
        node=repeat.id,
        safety=Safety.REORDERS,
        edits=(Move(repeat.id, shuffle.id),),
        summary="Shuffle before the repeat: every element comes once per epoch.",
        group=place_group(repeat),
        notes=tuple(notes),
    )


RULE = Rule(
    name=NAME,
    summary="Tries shuffle and repeat in the other order.",
    legality=(
        "Repeat changes places with shuffle only past map, filter, prefetch and batches that drop nothing, never past "
        "cache, take, skip, enumerate or another operator that counts elements; and never above a take, skip, shard, "
        "zip, window or enumerate, which would give other elements, unless the order stays what it was."
    ),
    safety=(
        "Repeat right behind the shuffle is EXACT where only stateless maps and filters stood between. Every other "
        "change of their order is REORDERS; with repeat first, epochs blur."
    ),
    propose=propose,
)
