"""`shuffle-small`: shuffle records instead of images, before the maps that make elements larger."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Edit, Move, Rewrite, Safety, SetArgument, Silence
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import POSITIONAL, described, picks_by_place
from pipetune.rules.moving import Obstacle, Step, place_group, shuffle_move_class, steps_up
from pipetune.rules.pricing import as_size, bytes_per_element, element_count, held_by_shuffle

NAME = "shuffle-small"

_WORTH_MORE = 2.0  # times as many elements: a smaller increase of the buffer is not worth offering


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op == "shuffle" and len(node.inputs) == 1:
            yield from _move_up(node, context)


def _move_up(shuffle: Node, context: RuleContext) -> Iterator[Rewrite | Silence]:
    """Moves the shuffle to where elements are smallest; of several such places, to the nearest."""
    here = bytes_per_element(context, shuffle.inputs[0])
    best: Step | None = None
    smallest = here
    unknown = False
    for step in steps_up(context, shuffle):
        if isinstance(step, Obstacle):
            if best is None:
                yield Silence(NAME, shuffle.id, f"The shuffle stays behind {described(step.node)}: {step.why}.")
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
        yield Silence(NAME, shuffle.id, "It is not known whether the maps above the shuffle make elements larger.")


def _shuffle_first(
    shuffle: Node, context: RuleContext, step: Step, *, before: float, after: float
) -> Iterator[Rewrite]:
    """Yields the move, and the move with a larger buffer that fits in the memory of the old one."""
    held, elements = held_by_shuffle(context, shuffle), element_count(context, shuffle.inputs[0])
    safety, notes = shuffle_move_class(shuffle, context, step)
    names = ", ".join(node.title for node in reversed(step.maps))
    move = Move(shuffle.id, step.anchor)

    def rewrite(size: int, safety: Safety, edits: tuple[Edit, ...], window: str) -> Rewrite:
        return Rewrite(
            rule=NAME,
            node=shuffle.id,
            safety=safety,
            edits=edits,
            summary=(
                f"Shuffle before {names}: the buffer holds {as_size(after)} per element instead of "
                f"{as_size(before)} ({as_size(size * after)} instead of {as_size(held * before)})."
            ),
            group=place_group(shuffle),
            notes=(*notes, window),
            predicted_bytes=size * after - held * before,
            equal_is_enough=size > held,
        )

    yield rewrite(held, safety, (move,), f"The window of randomness stays {_window(held, elements)}.")
    fits = int(held * before // after) if after > 0 else 0
    larger = min(fits, elements) if elements is not None and elements > 0 else fits
    if larger >= _WORTH_MORE * held > 0 and picks_by_place(shuffle, context, among=POSITIONAL) is None:
        yield rewrite(
            larger,
            max(safety, Safety.REORDERS),
            (move, SetArgument(shuffle.id, "buffer_size", larger)),
            f"The window of randomness grows from {held:,} elements to {_window(larger, elements)}, in no more memory.",
        )


def _window(size: int, elements: int | None) -> str:
    if elements is None or elements <= 0:
        return f"{size:,} elements"
    return f"all {elements:,} elements" if size >= elements else f"{size:,} of {elements:,} elements"


RULE = Rule(
    name=NAME,
    summary="Shuffles before the maps that make elements larger, so that the buffer holds the small ones.",
    legality=(
        "A shuffle commutes with a map that depends on its element alone: never with one that keeps state or runs "
        "Python, nor where ignore_errors may drop what the map refuses, and with nothing else but a prefetch and "
        "options: not with a filter, take, skip, shard, batch, cache, interleave or flat_map. Only where the sizes of "
        "elements are known. The window of randomness, in elements, stays what it was; a larger one that fits the "
        "same memory is offered beside it, where no take, skip, shard, zip, window or enumerate below would give other "
        "elements."
    ),
    safety=(
        "EXACT past stateless maps, STATISTICAL past random ones (the draws meet other elements) and where an unseeded "
        "shuffle might get another seed. With a larger buffer REORDERS: it is another order."
    ),
    propose=propose,
)
