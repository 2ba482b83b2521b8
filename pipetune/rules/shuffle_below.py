"""Moves a shuffle after a new cache, so that the cache does not freeze the order; used by `cache` and `split-map`.

A shuffle permutes positions, not values: before and after a map that depends on its element alone, the same seed gives
the same elements in the same order. Before the map, a cache after the map would keep the order of the first epoch.
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
"""Minimum number of epochs, if known, to propose it: in the first one the buffer fills with finished elements before
training gets any, so that the two do not overlap there; a second epoch at best compensates for that."""


@dataclass(frozen=True)
class ShuffleBelow:
    """A shuffle that can be moved from upstream of a place to directly after it."""

    move: Move
    safety: Safety
    notes: tuple[str, ...]


def shuffle_below(context: RuleContext, place: Node) -> ShuffleBelow | None:
    """Returns the shuffle upstream of `place` to move after it, if all upstream then repeats in every epoch; else None.

    `place` must be a map, and only maps that a shuffle may pass, and operators that pass elements through in order,
    may be in between.
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
    # Moving it down past the maps is as safe as moving it back up from its new place.
    moved = after.pipeline[shuffle.id]
    for step in steps_up(after, moved):
        if isinstance(step, Obstacle):
            return None
        if step.anchor == shuffle.inputs[0]:
            safety, notes = shuffle_move_class(shuffle, context, step)
            return ShuffleBelow(move, safety, (*_notes(context, shuffle), *notes))
    return None


def _part_of_another_call(shuffle: Node) -> bool:
    """Whether the shuffle is part of a call such as `list_files`: nothing can be inserted between the two."""
    return shuffle.location is not None and shuffle.location.method not in ("", "shuffle")


def _notes(context: RuleContext, shuffle: Node) -> tuple[str, ...]:
    return (
        "The shuffle then stands behind the cache: the same order for the same seed, another one in every epoch.",
        f"In the first epoch its buffer fills with {held_by_shuffle(context, shuffle):,} finished elements before "
        "training gets one; they are the very elements that the cache holds, and take no memory of their own.",
    )
