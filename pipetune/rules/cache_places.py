"""The places where a cache is allowed, with their price (bytes, seconds saved, epochs), and the choice among them.

A place is worth proposing if no other saves at least as much time and holds at most as much (the Pareto frontier).
If a cost was not measured, the place further downstream is assumed to save more: it saves all that the other does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.core.edits import Safety
from pipetune.core.pipeline import INFINITE, Node
from pipetune.rules.base import RuleContext
from pipetune.rules.epoch_constancy import Constancy
from pipetune.rules.pricing import seconds_per_output, waiting_per_output
from pipetune.rules.shuffle_below import FEWEST_EPOCHS, ShuffleBelow, shuffle_below

MUCH_LESS = 0.5
"""Two places each get a trial only if the smaller one holds at most this share of what the larger one holds."""


@dataclass(frozen=True)
class Place:
    """A place directly after `node` for a cache, and its price; an epoch is one pass over the data there."""

    node: Node
    constancy: Constancy
    elements: int  # per epoch, at most
    size_bytes: float  # of all of them
    work: float | None = None  # CPU seconds per output element that a cache here saves in later epochs
    waiting: float = 0.0  # blocked seconds (off the CPU) per output element, saved as well
    outputs: float | None = None  # output elements per epoch
    epochs: float | None = None  # how often the script reads the data here; None: not known
    below: ShuffleBelow | None = None  # the upstream shuffle that then moves after the cache; None: none does

    @property
    def safety(self) -> Safety:
        """Safety class of a cache here: it freezes the order of an upstream shuffle that does not move after it."""
        if self.below is not None:
            return self.below.safety
        return Safety.EXACT if self.constancy is Constancy.SAME else Safety.REORDERS

    @property
    def spared(self) -> float | None:
        """CPU and blocked seconds saved per output element; used to compare places of one pipeline."""
        return None if self.work is None else self.work + self.waiting

    @property
    def seconds(self) -> float | None:
        """CPU and blocked seconds of one epoch up to here, which every later epoch saves."""
        return None if self.spared is None or self.outputs is None else self.spared * self.outputs

    @property
    def never_pays(self) -> bool:
        """Whether the script is known to read its data only once, so that the cache is never used."""
        return self.epochs is not None and self.epochs <= 1


def price(
    context: RuleContext, node: Node, constancy: Constancy, *, elements: int, element_bytes: float
) -> Place:
    """Returns the place after `node`, priced from the profile of the operators that later epochs then skip.

    Args:
        context: provides the profile.
        node: the operator that the cache follows.
        constancy: of the elements there.
        elements: per epoch, at most.
        element_bytes: bytes of one element there.
    """
    resting = _resting(context, node)
    costs = [seconds_per_output(context, work.id) for work in resting]
    known = [cost for cost in costs if cost is not None]
    measured = context.profile.operator(node.id) if context.profile else None
    visits = measured.visits if measured is not None else None
    outputs = elements / visits if visits else None
    epochs = _epochs(context, node, outputs)
    lasts = epochs is None or epochs >= FEWEST_EPOCHS
    below = shuffle_below(context, node) if lasts and constancy is Constancy.SAME_ELEMENTS else None
    return Place(
        node,
        constancy,
        elements,
        elements * element_bytes,
        work=sum(known) if known else None,
        waiting=sum(waiting_per_output(context, work.id) for work in resting),
        outputs=outputs,
        epochs=epochs,
        below=below,
    )


def _resting(context: RuleContext, node: Node) -> list[Node]:
    """Returns `node` and its upstream operators, up to the script's own caches: later epochs skip the rest anyway."""
    found: list[Node] = []
    wanted = {node.id}
    for above in (node, *reversed(context.pipeline.upstream(node.id))):
        if above.id in wanted:
            found.append(above)
            wanted.update(() if above.op == "cache" else above.inputs)
    return found


def _epochs(context: RuleContext, node: Node, outputs: float | None) -> float | None:
    """Returns how often the script reads the data at this place from start to end; None if not known."""
    if context.epochs is None:
        return None
    if context.steps_per_epoch is not None:
        return context.epochs * context.steps_per_epoch / outputs if outputs else None
    counts = [below.argument("count") for below in context.pipeline.downstream(node.id) if below.op == "repeat"]
    rounds = [count for count in counts if isinstance(count, int) and count != INFINITE]
    return float(context.epochs * math.prod(rounds)) if len(rounds) == len(counts) else None


def frontier(places: Sequence[Place]) -> list[Place]:
    """Returns the places that no other beats in both time saved and bytes held, largest saving first.

    Of places equal in both, the last is kept: it leaves the least to compute.
    """
    gains = _gains(places)
    order = sorted(range(len(places)), key=lambda index: (-gains[index], places[index].size_bytes, -index))
    kept: list[Place] = []
    for index in order:
        if not kept or places[index].size_bytes < kept[-1].size_bytes:
            kept.append(places[index])
    return kept


def worth_trying(places: Sequence[Place], *, most: int) -> list[Place]:
    """Returns up to `most` of the frontier: the largest saving, then by saving per byte places of other sizes."""
    kept = frontier(places)
    gains = dict(zip((place.node.id for place in places), _gains(places), strict=True))
    by_byte = sorted(kept[1:], key=lambda place: -gains[place.node.id] / max(place.size_bytes, 1.0))
    chosen = kept[:1]
    for place in by_byte:
        if len(chosen) < most and all(_far_apart(place, other) for other in chosen):
            chosen.append(place)
    return chosen


def saves_more(one: Place, than: Place) -> bool:
    """Whether `one`, which is further downstream, saves more than `than`; True if the costs are not known."""
    return one.spared is None or than.spared is None or one.spared > than.spared


def _gains(places: Sequence[Place]) -> list[float]:
    """Returns comparable savings: seconds if all are known, else the rank of each place along the pipeline."""
    spared = [place.spared for place in places]
    known = [one for one in spared if one is not None]
    return known if len(known) == len(spared) else [float(1 + index) for index in range(len(places))]


def _far_apart(one: Place, other: Place) -> bool:
    sizes = sorted((one.size_bytes, other.size_bytes))
    return sizes[0] <= MUCH_LESS * sizes[1]


def room_bytes(context: RuleContext) -> float:
    """Returns the bytes left for a cache: the memory limit less the measured peak RSS of the original pipeline."""
    peak = context.profile.peak_rss_mib if context.profile is not None else None
    return context.memory_limit_bytes - (peak or 0.0) * 2**20


def epochs_to_pay(once_seconds: float, *, each_seconds: float, saved_seconds: float) -> int | None:
    """Returns the first epoch at whose end less time was spent in total than without storing; None if never.

    Args:
        once_seconds: one-time cost in addition to `each_seconds`.
        each_seconds: time per epoch with stored elements.
        saved_seconds: time per epoch without them.
    """
    if saved_seconds <= each_seconds:
        return None
    return math.floor(once_seconds / (saved_seconds - each_seconds)) + 1
