"""The places where a cache may stand, priced: bytes held, time saved, epochs until it has paid; and which are worth it.

A place is worth proposing where no other saves at least as much time and holds at most as much (the Pareto frontier).
Where a cost was not measured, the later place is taken to save more: it spares whatever the earlier one does.
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
"""A second place is worth a trial of its own where it holds at most this share of what the first holds."""


@dataclass(frozen=True)
class Place:
    """A place behind `node` where a cache may stand, and its price; an epoch is one pass over the data there."""

    node: Node
    constancy: Constancy
    elements: int  # per epoch, at most
    size_bytes: float  # of all of them
    work: float | None = None  # CPU seconds per element of the output that a cache here spares later epochs
    waiting: float = 0.0  # seconds on no processor, per element of the output, spared too
    outputs: float | None = None  # elements of the output per epoch
    epochs: float | None = None  # the script trains for; None: not known
    below: ShuffleBelow | None = None  # the shuffle above that then moves behind the cache

    @property
    def safety(self) -> Safety:
        """The class of a cache here: the order of a shuffle above is frozen, if that does not move behind it."""
        if self.below is not None:
            return self.below.safety
        return Safety.EXACT if self.constancy is Constancy.SAME else Safety.REORDERS

    @property
    def spared(self) -> float | None:
        """Seconds per element of the output, work and waiting: what places of one pipeline are compared by."""
        return None if self.work is None else self.work + self.waiting

    @property
    def seconds(self) -> float | None:
        """Seconds of work and waiting that an epoch takes up to here: what each later one is spared."""
        return None if self.spared is None or self.outputs is None else self.spared * self.outputs

    @property
    def never_pays(self) -> bool:
        """Whether the script is known to read its data once: nothing is read a second time."""
        return self.epochs is not None and self.epochs <= 1


def price(
    context: RuleContext, node: Node, constancy: Constancy, *, elements: int, element_bytes: float
) -> Place:
    """The place behind `node`, with what the profile says of the operators that would then rest in later epochs."""
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
    """`node` and what stands above it, up to the script's own caches: above those nothing runs in later epochs."""
    found: list[Node] = []
    wanted = {node.id}
    for above in (node, *reversed(context.pipeline.upstream(node.id))):
        if above.id in wanted:
            found.append(above)
            wanted.update(() if above.op == "cache" else above.inputs)
    return found


def _epochs(context: RuleContext, node: Node, outputs: float | None) -> float | None:
    """How often the script reads the data at this place from start to end."""
    if context.epochs is None:
        return None
    if context.steps_per_epoch is not None:
        return context.epochs * context.steps_per_epoch / outputs if outputs else None
    counts = [below.argument("count") for below in context.pipeline.downstream(node.id) if below.op == "repeat"]
    rounds = [count for count in counts if isinstance(count, int) and count != INFINITE]
    return float(context.epochs * math.prod(rounds)) if len(rounds) == len(counts) else None


def frontier(places: Sequence[Place]) -> list[Place]:
    """Those that no other beats in both time saved and bytes held, what saves most first.

    Of places alike in both the last stays: it leaves least to run.
    """
    gains = _gains(places)
    order = sorted(range(len(places)), key=lambda index: (-gains[index], places[index].size_bytes, -index))
    kept: list[Place] = []
    for index in order:
        if not kept or places[index].size_bytes < kept[-1].size_bytes:
            kept.append(places[index])
    return kept


def worth_trying(places: Sequence[Place], *, most: int) -> list[Place]:
    """At most `most` of the frontier: what saves most, then by time saved per byte what holds much less."""
    kept = frontier(places)
    gains = dict(zip((place.node.id for place in places), _gains(places), strict=True))
    by_byte = sorted(kept[1:], key=lambda place: -gains[place.node.id] / max(place.size_bytes, 1.0))
    chosen = kept[:1]
    for place in by_byte:
        if len(chosen) < most and all(_far_apart(place, other) for other in chosen):
            chosen.append(place)
    return chosen


def saves_more(one: Place, than: Place) -> bool:
    """Whether `one`, which stands later, saves more than `than`; where the costs are not known, yes."""
    return one.spared is None or than.spared is None or one.spared > than.spared


def _gains(places: Sequence[Place]) -> list[float]:
    """What each saves, comparable among them: seconds where all are known, else how late they stand."""
    spared = [place.spared for place in places]
    known = [one for one in spared if one is not None]
    return known if len(known) == len(spared) else [float(1 + index) for index in range(len(places))]


def _far_apart(one: Place, other: Place) -> bool:
    sizes = sorted((one.size_bytes, other.size_bytes))
    return sizes[0] <= MUCH_LESS * sizes[1]


def room_bytes(context: RuleContext) -> float:
    """What the memory limit leaves for a cache beside what the pipeline as written was measured to hold."""
    peak = context.profile.peak_rss_mib if context.profile is not None else None
    return context.memory_limit_bytes - (peak or 0.0) * 2**20


def epochs_to_pay(once_seconds: float, *, each_seconds: float, saved_seconds: float) -> int | None:
    """The first epoch at whose end less time was spent than without; None where that never comes.

    Args:
        once_seconds: spent beyond `each_seconds` per epoch, whatever the number of epochs.
        each_seconds: spent in every epoch with it.
        saved_seconds: spent in every epoch without it.
    """
    if saved_seconds <= each_seconds:
        return None
    return math.floor(once_seconds / (saved_seconds - each_seconds)) + 1
