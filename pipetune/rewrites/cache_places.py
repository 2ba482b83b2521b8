"""Where a `cache()` may be inserted and what it saves there: positions, their costs, and a shuffle moved after it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from pipetune.core.edits import Move, NoProposal, Safety, apply_edits
from pipetune.core.operators import CountEffect, operator_facts
from pipetune.core.pipeline import INFINITE, UNKNOWN, Node, Pipeline
from pipetune.rewrites.epoch_constancy import (
    Constancy,
    constancy_after,
    ends_early,
    is_order_settled,
    losing_variation,
    reshuffles_each_epoch,
    stops_early,
)
from pipetune.rewrites.pricing import (
    blocked_seconds_per_output,
    bytes_per_element,
    element_count,
    format_bytes,
    format_seconds,
    seconds_per_output,
    shuffle_buffer_elements,
)
from pipetune.rewrites.reorder import Obstacle, shuffle_move_class, upstream_moves
from pipetune.rewrites.rule import RuleContext, describe_operator, errors_are_ignored, upstream_chain

CACHE = "cache"
"""Name of the rule that inserts it."""

MIN_EPOCHS = 3
"""Minimum number of epochs, if known, to propose it: in the first one the buffer fills with finished elements before
training gets any, so that the two do not overlap there; a second epoch at best compensates for that."""


@dataclass(frozen=True)
class MovedOperators:
    """Operators that move from upstream of a place to directly after it, in their order."""

    moves: tuple[Move, ...]
    safety: Safety
    notes: tuple[str, ...] = ()

    def applied(self, context: RuleContext) -> RuleContext:
        """Returns the context with them moved; what is then upstream of a repeat has the elements of one pass."""
        before, after = context.pipeline, apply_edits(context.pipeline, self.moves)
        anchor, moved = self.moves[0].after, {move.node for move in self.moves}
        repeat = next((node for node in before if node.op == "repeat" and node.id in moved), None)
        if repeat is None:
            return replace(context, pipeline=after)
        elements = element_count(context, repeat.inputs[0])
        count = UNKNOWN if elements is None else elements
        repeated = {node.id for node in before.downstream(repeat.id)}
        once = repeated & {anchor, *(node.id for node in after.upstream(anchor))}
        nodes = tuple(replace(node, cardinality=count) if node.id in once else node for node in after)
        profile = context.profile
        if profile is not None and profile.cardinality is not None:
            counted = {name: number for name, number in profile.cardinality.items() if name not in once}
            profile = replace(profile, cardinality=counted)
        return replace(context, pipeline=replace(after, nodes=nodes), profile=profile)


def move_after(context: RuleContext, anchor: Node) -> MovedOperators | None:
    """Returns the shuffles and repeats upstream of `anchor` to move after it, so that more of it repeats every epoch.

    `anchor` must be a map, and only maps that a shuffle may pass, and operators that pass elements through in order,
    may be in between. None if none can move, nothing has to, or the elements still differ from epoch to epoch.
    """
    if len(context.pipeline.consumers(anchor.id)) > 1:
        return None
    before = context
    above = [node for node in upstream_chain(context.pipeline, anchor) if node.op in _MOVABLE]
    varying = [place for place, node in enumerate(above) if node.op == "repeat" or reshuffles_each_epoch(node)]
    moves, safety, notes = list[Move](), Safety.EXACT, list[str]()
    # Those downstream of the last one that varies keep their places behind it.
    for node in above[: varying[-1] + 1] if varying else []:
        move = Move(node.id, anchor.id)
        after = replace(context, pipeline=apply_edits(context.pipeline, [move]))
        # Moving it down past the maps is as safe as moving it back up from its new place.
        back = next(
            (step for step in upstream_moves(after, after.pipeline[node.id])
             if isinstance(step, Obstacle) or step.anchor == node.inputs[0]),
            None,
        )  # fmt: skip
        if back is None or isinstance(back, Obstacle):
            break
        # Nothing can be inserted within a call that makes others, too; `list_files` can be told not to shuffle.
        within = node.location is not None and node.location.method not in ("", node.op)
        if within and not node.made_by_list_files:
            break
        if node.made_by_list_files and is_order_settled(before, anchor.id):
            break  # a later shuffle draws the order anew: the cache alone will do
        if node.op == "shuffle":
            own, remarks = shuffle_move_class(node, context, back)
            safety = max(safety, own)
            notes += [
                "The shuffle is then after the cache: the same seed gives the same order, and the order still differs "
                "in every epoch.",
                "In the first epoch, the buffer of the shuffle fills with "
                f"{shuffle_buffer_elements(context, node):,} finished elements before training receives the first; "
                "these are the same elements that the cache holds, and take no additional memory.",
                *remarks,
            ]
        moves.append(move)
        context = after
    if not moves or constancy_after(context, anchor.id).constancy is Constancy.DIFFERENT:
        return None
    return MovedOperators(tuple(moves), safety, tuple(dict.fromkeys(notes)))


_MOVABLE = frozenset({"repeat", "shuffle"})


MAX_SIZE_RATIO = 0.5
"""Two places each get a trial only if the smaller one holds at most this share of what the larger one holds."""


@dataclass(frozen=True)
class CachePosition:
    """A place directly after `node` for a cache, and its price; an epoch is one pass over the data there."""

    node: Node
    constancy: Constancy
    elements: int  # per epoch, at most
    size_bytes: float  # of all of them
    cpu_seconds_per_output: float | None = None  # per output element, saved in later epochs
    blocked_seconds_per_output: float = 0.0  # blocked seconds (off the CPU) per output element, saved as well
    outputs_per_epoch: float | None = None  # output elements per epoch
    epochs: float | None = None  # how often the script reads the data here; None: not known
    moved: MovedOperators | None = None  # the operators upstream that then move after the cache; None: none do
    order_settled: bool = False  # the order there is of no account: a shuffle of all elements downstream draws it anew

    def behind(self, context: RuleContext) -> RuleContext:
        """Returns the context with the operators that move behind the cache in their new places."""
        return self.moved.applied(context) if self.moved is not None else context

    @property
    def safety(self) -> Safety:
        """Safety class of a cache here: it freezes the order of an upstream shuffle that does not move after it."""
        frozen = Safety.STATISTICAL if self.order_settled else Safety.REORDERS
        own = Safety.EXACT if self.constancy is Constancy.SAME else frozen
        return max(own, self.moved.safety) if self.moved is not None else own

    @property
    def saved_seconds_per_output(self) -> float | None:
        """CPU and blocked seconds saved per output element; used to compare places of one pipeline."""
        cpu = self.cpu_seconds_per_output
        return cpu + self.blocked_seconds_per_output if cpu is not None else None

    @property
    def saved_seconds_per_epoch(self) -> float | None:
        """CPU and blocked seconds of one epoch up to here, which every later epoch saves."""
        saved, outputs = self.saved_seconds_per_output, self.outputs_per_epoch
        return saved * outputs if saved is not None and outputs is not None else None

    @property
    def never_pays(self) -> bool:
        """Whether the script is known to read its data only once, so that the cache is never used."""
        return self.epochs is not None and self.epochs <= 1


def price_position(
    context: RuleContext, node: Node, constancy: Constancy, *, elements: int, element_bytes: float
) -> CachePosition:
    """Returns the place after `node`, priced from the profile of the operators that later epochs then skip.

    Args:
        context: provides the profile.
        node: the operator that the cache follows.
        constancy: of the elements there.
        elements: per epoch, at most.
        element_bytes: bytes of one element there.
    """
    resting = _skipped_operators(context, node)
    shares = _shares_read(context.pipeline, node, resting)
    costs = [(seconds_per_output(context, work.id), shares[work.id]) for work in resting]
    known = [cost * share for cost, share in costs if cost is not None]
    measured = context.measured(node.id)
    visits = measured.visits if measured is not None else None
    outputs = elements / visits if visits else None
    return CachePosition(
        node,
        constancy,
        elements,
        elements * element_bytes,
        cpu_seconds_per_output=sum(known) if known else None,
        blocked_seconds_per_output=sum(blocked_seconds_per_output(context, one.id) * shares[one.id] for one in resting),
        outputs_per_epoch=outputs,
        epochs=epochs_read(context, node, outputs),
        order_settled=is_order_settled(context, node.id),
    )


@dataclass(frozen=True)
class VariationBehind:
    """What still varies from epoch to epoch behind a cache after a place, whose order it freezes."""

    ordering: Node  # draws the order that is frozen
    shuffles: tuple[Node, ...]  # downstream of the cache
    batch: Node | None  # makes batches in the frozen order: the same ones in every epoch

    @property
    def is_of_elements(self) -> bool:
        return bool(self.shuffles) and self.batch is None


def variation_behind(context: RuleContext, place: CachePosition) -> VariationBehind:
    """Returns what varies behind a cache at a place."""
    behind = place.behind(context)
    ordering = behind.pipeline[constancy_after(behind, place.node.id).node]
    shuffles = tuple(filter(reshuffles_each_epoch, behind.pipeline.downstream(place.node.id)))
    frozen = takewhile(lambda one: one not in shuffles, behind.pipeline.downstream(ordering.id))
    batch = next((one for one in frozen if operator_facts(one.op).batches), None)
    return VariationBehind(ordering, shuffles, batch)


def _skipped_operators(context: RuleContext, node: Node) -> list[Node]:
    """Returns `node` and its upstream operators, up to the script's own caches: later epochs skip the rest anyway."""
    found: list[Node] = []
    needed = {node.id}
    for above in (node, *reversed(context.pipeline.upstream(node.id))):
        if above.id in needed:
            found.append(above)
            needed.update(() if above.op == "cache" else above.inputs)
    return found


def _shares_read(pipeline: Pipeline, node: Node, operators: Sequence[Node]) -> dict[str, float]:
    """Returns the share of the elements of each operator that is read for `node`: less than 1 where branches share it.

    Each consumer iterates over an operator that several share for itself.
    """
    everywhere, here = _readers(pipeline, pipeline.output), _readers(pipeline, node)
    times = everywhere[node.id]
    return {one.id: times * here[one.id] / everywhere[one.id] if times else 1.0 for one in operators}


def _readers(pipeline: Pipeline, end: Node) -> Counter[str]:
    """Returns how many times the operators upstream of `end` are iterated over for one iteration over it."""
    found = Counter({end.id: 1})
    for one in (end, *reversed(pipeline.upstream(end.id))):
        for name in one.inputs:
            found[name] += found[one.id]
    return found


def branch_of(pipeline: Pipeline, node_id: str) -> str:
    """Returns the operator by which the next join downstream reads `node_id` and not its other inputs; "" if none."""
    reached = {node_id}
    for below in pipeline.downstream(node_id):
        read = [name for name in below.inputs if name in reached]
        if len(read) == 1 and len(below.inputs) > 1:
            return read[0]
        reached.add(below.id)
    return ""


def cache_group(pipeline: Pipeline, node_id: str) -> str:
    """Returns the group of a rewrite that caches after an operator: one cache for each branch, and one behind them."""
    branch = branch_of(pipeline, node_id)
    return f"cache@{branch}" if branch else "cache"


def epochs_read(context: RuleContext, node: Node, outputs: float | None) -> float | None:
    """Returns how often the script reads the data at this place from start to end; None if not known."""
    if context.epochs is None:
        return None
    if context.steps_per_epoch is not None:
        return context.epochs * context.steps_per_epoch / outputs if outputs else None
    counts = [below.argument("count") for below in context.pipeline.downstream(node.id) if below.op == "repeat"]
    rounds = [count for count in counts if isinstance(count, int) and count != INFINITE]
    return float(context.epochs * math.prod(rounds)) if len(rounds) == len(counts) else None


def is_worth_caching(context: RuleContext, node: Node) -> bool:
    """Whether a cache directly after `node` saves work that no cache upstream saves, or holds less than all those."""
    here = operator_facts(node.op)
    fewer = here.count is CountEffect.FEWER and not here.batches
    joins = sum(does_work(context, name) for name in node.inputs) > 1  # where each input would need a cache of its own
    source = here.reads_files or (here.source and here.python)  # arrays in memory are a cache already
    return does_work(context, node.id) and (here.takes_function or here.batches or source or fewer or joins)


def does_work(context: RuleContext, name: str) -> bool:
    """Whether an operator, or one upstream of it, does work that a cache after it would save."""
    above = (*context.pipeline.upstream(name), context.pipeline[name])
    return not all(is_in_memory(one) or does_no_work(one) for one in above)


def does_no_work(node: Node) -> bool:
    """Whether an operator only passes elements on or puts them together, without a function of the script's."""
    here = operator_facts(node.op)
    return (here.same_elements or here.batches or node.op == "zip") and not here.takes_function


def is_in_memory(node: Node) -> bool:
    """Whether an operator yields what the script holds in memory anyway."""
    known = operator_facts(node.op)
    return known.source and not known.reads_files and not known.python


def position_after(context: RuleContext, node: Node) -> CachePosition | NoProposal:
    """Returns the priced place directly after `node`, or why no cache is allowed there."""
    if node.id in context.rebuilt_operators:
        why = "the loop that reads the data builds this part in each iteration, and each time the cache would be empty"
        first = next(one.id for one in context.pipeline if one.id in context.rebuilt_operators)
        return NoProposal(CACHE, first, f"No cache: {why}.")
    found = constancy_after(context, node.id)
    moved = move_after(context, node) if found.constancy is not Constancy.SAME else None
    if moved is not None:
        behind = moved.applied(context)
        place = _position_as_it_is(behind, behind.pipeline[node.id])
        if isinstance(place, CachePosition) and (place.epochs is None or place.epochs >= MIN_EPOCHS):
            return replace(place, moved=moved)
        if isinstance(place, NoProposal) and found.constancy is Constancy.DIFFERENT:
            return place
    return _position_as_it_is(context, node)


def _position_as_it_is(context: RuleContext, node: Node) -> CachePosition | NoProposal:
    """Returns the priced place directly after `node` while no operator moves, or why no cache is allowed there."""
    found = constancy_after(context, node.id)
    if found.constancy is Constancy.DIFFERENT:
        varying = describe_operator(context.pipeline[found.node])
        return NoProposal(CACHE, found.node, f"No cache after {varying}: {found.why}.")
    place = _priced_position(context, node, found.constancy)
    if isinstance(place, CachePosition) and place.constancy is Constancy.SAME_ELEMENTS:
        for reader, why in losing_variation(context, node):
            return NoProposal(CACHE, reader.id, f"No cache before {describe_operator(reader)}: {why}.")
    return place


def _priced_position(context: RuleContext, node: Node, constancy: Constancy) -> CachePosition | NoProposal:
    """Returns the price of a cache after `node`, whose elements are that constant, or why it would not be complete."""
    below = context.pipeline.downstream(node.id)
    for reader in below:
        if stops_early(context, node, reader):
            why = f"{describe_operator(reader)} may stop reading before the end, so the cache would never be complete"
            return NoProposal(CACHE, reader.id, f"No cache upstream of it: {why}.")
    if (together := _loses_others_with_an_error(context, node)) is not None:
        why = f"an element that fails takes others along in {describe_operator(together)}, until it is cached"
        return NoProposal(CACHE, together.id, f"No cache upstream of it: {why}.")
    if ends_early(context, node):
        why = "the loop that reads the data may leave it before its end, so the cache would never be complete"
        return NoProposal(CACHE, context.pipeline.output.id, f"No cache: {why}.")
    cached = next((reader for reader in below if reader.op in ("cache", "snapshot")), None)
    if cached is not None:
        why = "The script already stores elements here; a cache upstream would save nothing."
        return NoProposal(CACHE, cached.id, why)
    elements, size = element_count(context, node.id), bytes_per_element(context, node.id)
    if elements == INFINITE:
        return NoProposal(CACHE, node.id, "No cache: the data is infinite.")
    if elements is None or size is None:
        unknown = "the number of elements" if elements is None else "the size of an element"
        why = f"{unknown} is unknown, so the cost cannot be estimated"
        return NoProposal(CACHE, node.id, f"No cache after {describe_operator(node)}: {why}.")
    return price_position(context, node, constancy, elements=elements, element_bytes=size)


_ALONE = frozenset({"cache", "filter", "map", "prefetch", "repeat", "shuffle", "with_options"})
"""Operators in which an element that fails costs no other element its place."""


def _loses_others_with_an_error(context: RuleContext, node: Node) -> Node | None:
    """Returns an operator, between `node` and an `ignore_errors`, that drops other elements with one that fails.

    An error is not cached: from the second epoch on these elements would be there.
    """
    below = (other for other in context.pipeline.downstream(node.id) if errors_are_ignored(other, context))
    return next((other for other in below if other.op not in (*_ALONE, "ignore_errors")), None)


def best_position(context: RuleContext) -> CachePosition | None:
    """Returns the place where storing elements saves most, whatever their size; None if none repeats or has a price.

    Places upstream of every shuffle are preferred: the order then still differs between epochs.
    """
    answers = [position_after(context, node) for node in context.pipeline if is_worth_caching(context, node)]
    places = [one for one in answers if isinstance(one, CachePosition)]
    in_order = [one for one in places if one.constancy is Constancy.SAME]
    return next(iter(select_for_trial(in_order or places, most=1)), None)


def pareto_frontier(places: Sequence[CachePosition]) -> list[CachePosition]:
    """Returns the places that no other beats in both time saved and bytes held, largest saving first.

    Of places equal in both, the last is kept: it leaves the least to compute.
    """
    gains = _gains(places)
    order = sorted(range(len(places)), key=lambda index: (-gains[index], places[index].size_bytes, -index))
    kept: list[CachePosition] = []
    for index in order:
        if not kept or places[index].size_bytes < kept[-1].size_bytes:
            kept.append(places[index])
    return kept


def select_for_trial(places: Sequence[CachePosition], *, most: int) -> list[CachePosition]:
    """Returns up to `most` of the frontier: the largest saving, then by saving per byte places of other sizes."""
    kept = pareto_frontier(places)
    gains = dict(zip((place.node.id for place in places), _gains(places), strict=True))
    by_byte = sorted(kept[1:], key=lambda place: -gains[place.node.id] / max(place.size_bytes, 1.0))
    chosen = kept[:1]
    for place in by_byte:
        sizes = [sorted((place.size_bytes, other.size_bytes)) for other in chosen]
        if len(chosen) < most and all(smaller <= MAX_SIZE_RATIO * larger for smaller, larger in sizes):
            chosen.append(place)
    return chosen


def saves_more(one: CachePosition, other: CachePosition) -> bool:
    """Whether `one`, which is further downstream, saves more than `other`; True if the costs are not known."""
    here, there = one.saved_seconds_per_output, other.saved_seconds_per_output
    return here is None or there is None or here > there


def _gains(places: Sequence[CachePosition]) -> list[float]:
    """Returns comparable savings: seconds if all are known, else the rank of each place along the pipeline."""
    spared = [place.saved_seconds_per_output for place in places]
    known = [one for one in spared if one is not None]
    return known if len(known) == len(spared) else [float(1 + index) for index in range(len(places))]


def available_cache_bytes(context: RuleContext) -> float:
    """Returns the bytes left for a cache: the memory limit less the measured peak RSS of the original pipeline."""
    peak = context.profile.peak_rss_mib if context.profile is not None else None
    return context.memory_limit_bytes - (peak or 0.0) * 2**20


STORAGE_GUARANTEES = (
    "Dataset.save writes one shard, so that Dataset.load keeps the order. Nothing checks that a saved dataset "
    "still matches the code: save it again whenever the data or a function changes. Dataset.snapshot writes "
    "during the first epoch. It starts over when the graph upstream changes, occasionally when nothing has "
    "changed, and never when files or Python code change; it keeps the order only if the reading machine has "
    "at least as many processors as the writing one, and elements above 256 KiB need compression=None."
)
"""What the two ways to store a dataset guarantee; `tests/facts/test_stored_datasets.py` verifies each sentence."""


def describe_memory_saving(place: CachePosition) -> str:
    """Returns what a cache in memory saves, in words; "" if the costs were not measured."""
    saved = place.saved_seconds_per_epoch
    if not saved or place.size_bytes <= 0:
        return ""
    per_size = f"{format_seconds(saved / place.size_bytes * 2**20)} per MiB of memory"
    text = f"From the second epoch on, it saves {_format_epoch_time(place)} per epoch, which is {per_size}"
    if place.epochs is not None:
        total, count = format_seconds(saved * (place.epochs - 1)), f"{round(place.epochs, 1):,g}"
        text += f", or {total} over the {count} epochs of the script"
    return f"{text}. The first epoch takes as long as before."


def describe_file_saving(context: RuleContext, place: CachePosition) -> str:
    """Returns what a file cache, written in the first epoch, saves later, in words; "" if not measured."""
    saved = place.saved_seconds_per_epoch
    if not saved:
        return ""
    begins = f"The first epoch also writes {format_bytes(place.size_bytes)}, which each later epoch reads"
    break_even = _describe_break_even(context, place, saved, before_training=False)
    return f"{begins} instead of spending {_format_epoch_time(place)}. {break_even}"


def suggest_saved_dataset(context: RuleContext, place: CachePosition) -> NoProposal:
    """Returns a suggestion to save the dataset at a place that does not fit in memory: size, cost, when it pays off."""
    size = format_bytes(place.size_bytes)
    cost, remarks = _saving_costs(context, place)
    limit = f"the limit of {format_bytes(context.memory_limit_bytes)}"
    if available_cache_bytes(context) < context.memory_limit_bytes:
        limit = f"what the pipeline leaves of {limit}"
    why = (
        f"A memory cache after {describe_operator(place.node)} would take {size}, more than {limit}. Instead, "
        f"save the dataset up to this point once with Dataset.save ({size} on disk{cost}) and start from "
        f"Dataset.load.{remarks} {STORAGE_GUARANTEES}"
    )
    return NoProposal(CACHE, place.node.id, why)


def describe_saved_dataset(context: RuleContext, place: CachePosition) -> str:
    """Returns a description of a dataset saved once for all workers and runs: size, cost, when it pays off.

    `STORAGE_GUARANTEES` states what storing guarantees.
    """
    cost, remarks = _saving_costs(context, place)
    return (
        f"Everything up to {describe_operator(place.node)} repeats in every epoch: save it once with "
        f"Dataset.save ({format_bytes(place.size_bytes)} on storage that every host can reach{cost}) and start "
        f"from Dataset.load, or let Dataset.snapshot write it during the first epoch.{remarks}"
    )


def _saving_costs(context: RuleContext, place: CachePosition) -> tuple[str, str]:
    """Returns, in words, the time to compute what is saved, and when it pays off and which order it then has."""
    saved, cost, remarks = place.saved_seconds_per_epoch, "", ""
    if saved:
        cost = f", {_format_epoch_time(place)} to compute once"
        remarks = f" {_describe_break_even(context, place, saved, before_training=True)}"
    if place.constancy is Constancy.SAME_ELEMENTS:
        remarks += " All epochs then have the order in which it was saved."
    return cost, remarks


def storage_rate(context: RuleContext) -> float | None:
    """Returns the bytes per second at which the script's own files were read; None if not measured."""
    return (context.files.storage_bytes_per_second if context.files is not None else None) or None


def epochs_to_break_even(context: RuleContext, place: CachePosition, *, before_training: bool) -> int | None:
    """Returns the first epoch at whose end less time was spent in total than without storing.

    None if there is none, or a figure was not measured. The write rate of the disk is not measured: it is assumed to
    equal the read rate.

    Args:
        context: provides the measured read rate.
        place: where the elements are stored.
        before_training: whether the elements are computed and written before the first epoch, which already reads
            them; otherwise the first epoch computes and writes them.
    """
    rate, saved = storage_rate(context), place.saved_seconds_per_epoch
    if rate is None or saved is None:
        return None
    reading = place.size_bytes / rate
    if saved <= reading:
        return None
    once = saved + reading if before_training else saved
    return math.floor(once / (saved - reading)) + 1


def _describe_break_even(context: RuleContext, place: CachePosition, saved: float, *, before_training: bool) -> str:
    """Describes when reading from disk pays off; see `epochs_to_break_even`."""
    rate = storage_rate(context)
    if rate is None:
        return f"This pays off if more than {format_bytes(place.size_bytes / saved)} per second can be read."
    paid = epochs_to_break_even(context, place, before_training=before_training)
    reading = f"reading takes at least {format_seconds(place.size_bytes / rate)}"
    known = f"At {format_bytes(rate)} per second, the rate at which the script's files were read, {reading}"
    if paid is None:
        return f"{known}, so it never pays off."
    return f"{known}; if writing is equally fast, it pays off after {paid} epochs."


def _format_epoch_time(place: CachePosition) -> str:
    """Formats the time of one epoch up to the place: "12 s of CPU time and 3.1 s of waiting"."""
    outputs = place.outputs_per_epoch or 0.0
    text = f"{format_seconds((place.cpu_seconds_per_output or 0.0) * outputs)} of CPU time"
    waiting = place.blocked_seconds_per_output * outputs
    noticeable = waiting > 0.01 * (place.saved_seconds_per_epoch or 0.0)
    return f"{text} and {format_seconds(waiting)} of waiting" if noticeable else text
