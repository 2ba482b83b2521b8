"""A shuffle put below the maps that follow it, so that a cache above it freezes no order: `cache` and `split-map` ask.

A shuffle draws places, not values: above a map that depends on its element alone, and below it, the same elements
come in the same order for the same seed. Above, a cache behind the map would keep the order of the first epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Move, Safety
from pipetune.core.pipeline import Node
from pipetune.rules.base import RuleContext
from pipetune.rules.epoch_constancy import Constancy, constancy_after
from pipetune.rules.moving import Obstacle, shuffle_move_class, steps_up, way_up
from pipetune.rules.pricing import held_by_shuffle

FEWEST_EPOCHS = 3
"""Known epochs below which it is not proposed: in the first one the buffer fills with finished elements before training
gets any, so that the two no longer overlap there; the second pays for that at most."""


@dataclass(frozen=True)
class ShuffleBelow:
    """A shuffle that can stand directly behind a place instead of above it."""

    move: Move
    safety: Safety
    notes: tuple[str, ...]


def shuffle_below(context: RuleContext, place: Node) -> ShuffleBelow | None:
    """The shuffle above `place` that moves behind it, where all above is then the same in every epoch; else None.

    `place` must be a map, and nothing but maps that a shuffle may pass, and what hands elements on in order, may stand
    between.
    """
    if len(context.pipeline.consumers(place.id)) > 1:
        return None
    shuffle = next((above for above in way_up(context.pipeline, place) if above.op == "shuffle"), None)
    if shuffle is None or _part_of_another_call(shuffle):
        return None
    move = Move(shuffle.id, place.id)
    after = replace(context, pipeline=apply_edits(context.pipeline, [move]))
    if constancy_after(after, place.id).constancy is not Constancy.SAME:
        return None
    # Down past the maps it is what up past them would be, from the place it then has.
    moved = after.pipeline[shuffle.id]
    for step in steps_up(after, moved):
        if isinstance(step, Obstacle):
            return None
        if step.anchor == shuffle.inputs[0]:
            safety, notes = shuffle_move_class(shuffle, context, step)
            return ShuffleBelow(move, safety, (*_notes(context, shuffle), *notes))
    return None


def _part_of_another_call(shuffle: Node) -> bool:
    """Whether a call such as `list_files` shuffles by itself: nothing can be put between the two."""
    return shuffle.location is not None and shuffle.location.method not in ("", "shuffle")


def _notes(context: RuleContext, shuffle: Node) -> tuple[str, ...]:
    return (
        "The shuffle then stands behind the cache: the same order for the same seed, another one in every epoch.",
        f"In the first epoch its buffer fills with {held_by_shuffle(context, shuffle):,} finished elements before "
        "training gets one; they are the very elements that the cache holds, and take no memory of their own.",
    )
