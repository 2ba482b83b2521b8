"""`cache`: keep the elements of the first epoch if every later epoch would compute the same ones."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Consent, Insert, Rewrite, Safety, Silence
from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import INFINITE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.cache_costs import paid_in_a_file, paid_in_memory, saved_instead
from pipetune.rules.cache_places import Place, price, room_bytes, saves_more, worth_trying
from pipetune.rules.epoch_constancy import READS_PARTLY, Constancy, constancy_after, frozen_with_order
from pipetune.rules.legality import described
from pipetune.rules.pricing import as_size, bytes_per_element, element_count

NAME = "cache"

_OPAQUE_READERS = frozenset({"opaque", "scan"})

_MOST = {Safety.EXACT: 3, Safety.STATISTICAL: 2, Safety.REORDERS: 2}
"""Maximum number of in-memory places proposed per safety class: each costs the search a whole epoch to fill. A place of
a weaker class must save more than the best place of the stricter classes."""


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    output = context.pipeline.output
    if context.partial_read:
        yield Silence(
            NAME, output.id, "No cache: a consumer stops before the data ends, so it would never be complete."
        )
        return
    places: list[Place] = []
    stopped = ""
    for node in context.pipeline:
        if not _worth_keeping(context, node):
            continue
        answer = place_behind(context, node)
        if isinstance(answer, Place):
            places.append(answer)
        elif answer.why != stopped:  # report the deciding operator once, not again for each one downstream
            stopped = answer.why
            yield answer
    if any(place.never_pays for place in places):
        yield _read_once(context, output)
        places = [place for place in places if not place.never_pays]
    best: Place | None = None
    for safety, most in _MOST.items():
        here = [one for one in places if one.safety is safety and (best is None or saves_more(one, best))]
        yield from _proposals(context, here, most=most)
        best = next(iter(worth_trying(_fitting(context, here), most=1)), best)


def best_place(context: RuleContext) -> Place | None:
    """Returns the place where storing elements saves most, whatever their size; None if none repeats or has a price.

    Places upstream of every shuffle are preferred: the order then still differs between epochs.
    """
    answers = [place_behind(context, node) for node in context.pipeline if _worth_keeping(context, node)]
    places = [one for one in answers if isinstance(one, Place)]
    in_order = [one for one in places if one.constancy is Constancy.SAME]
    return next(iter(worth_trying(in_order or places, most=1)), None)


def _worth_keeping(context: RuleContext, node: Node) -> bool:
    """Whether a cache directly after `node` saves work that no cache upstream saves, or holds less than all those."""
    here = facts(node.op)
    fewer = here.count is Count.FEWER and not here.batches
    if _only_passes(node) and not here.batches and not fewer:
        return False
    from_files = here.reads_files or (here.source and not _in_memory(node))
    works = (*context.pipeline.upstream(node.id), node)
    if all(_in_memory(work) or _only_passes(work) for work in works):
        return False  # arrays in memory are a cache already
    return here.takes_function or here.batches or from_files or fewer


def _only_passes(node: Node) -> bool:
    here = facts(node.op)
    return (here.same_elements or here.batches) and not here.takes_function


def _in_memory(node: Node) -> bool:
    return facts(node.op).source and not facts(node.op).reads_files and not facts(node.op).python


def place_behind(context: RuleContext, node: Node) -> Place | Silence:
    """Returns the priced place directly after `node`, or why no cache is allowed there."""
    found = constancy_after(context, node.id)
    if found.constancy is Constancy.DIFFERENT:
        return Silence(
            NAME, found.node, f"No cache behind {described(context.pipeline[found.node])}: {found.why}."
        )
    below = context.pipeline.downstream(node.id)
    for reader in below:
        if reader.op in READS_PARTLY or reader.op in _OPAQUE_READERS or facts(reader.op) is facts("opaque"):
            why = f"{described(reader)} may stop reading before the end, so the cache would never be complete"
            return Silence(NAME, reader.id, f"No cache above it: {why}.")
    cached = next((reader for reader in below if reader.op in ("cache", "snapshot")), None)
    if cached is not None:
        return Silence(
            NAME, cached.id, "The script stores elements here already; a cache above saves nothing."
        )
    elements, size = element_count(context, node.id), bytes_per_element(context, node.id)
    if elements == INFINITE:
        return Silence(NAME, node.id, "No cache: the data has no end.")
    if elements is None or size is None:
        unknown = "how many elements there are" if elements is None else "how large an element is"
        return Silence(
            NAME, node.id, f"No cache behind {described(node)}: it is not known {unknown}, so no price."
        )
    place = price(context, node, found.constancy, elements=elements, element_bytes=size)
    if place.constancy is Constancy.SAME_ELEMENTS and place.below is None:
        for reader in below:
            if why := frozen_with_order(reader):
                return Silence(NAME, reader.id, f"No cache above {described(reader)}: {why}.")
    return place


def _read_once(context: RuleContext, output: Node) -> Silence:
    asked = f"{context.epochs} epoch" + ("s" if context.epochs != 1 else "")
    if context.steps_per_epoch is not None:
        asked += f" of {context.steps_per_epoch:,} steps"
    why = f"the script trains for {asked} and reads its data no more than once; a cache serves later epochs"
    return Silence(NAME, output.id, f"No cache: {why}. What Dataset.save stores would serve later runs.")


def _fitting(context: RuleContext, places: list[Place]) -> list[Place]:
    return [place for place in places if place.size_bytes <= room_bytes(context)]


def _proposals(context: RuleContext, places: list[Place], *, most: int) -> Iterator[Rewrite | Silence]:
    """Yields the fitting places worth a trial, and alternatives in files if the best place exceeds the memory limit."""
    for best in worth_trying(places, most=1):
        if best.size_bytes > room_bytes(context):
            yield saved_instead(context, best, rule=NAME)
            yield _rewrite(context, best, to_file=True)
    for place in worth_trying(_fitting(context, places), most=most):
        yield _rewrite(context, place, to_file=False)


def _rewrite(context: RuleContext, place: Place, *, to_file: bool) -> Rewrite:
    node, below = place.node, place.below
    filename = f"pipetune-cache-{context.identity}-rank{context.rank}" if to_file else ""
    where = "in a file" if to_file else "in memory"
    paid = paid_in_a_file(context, place) if to_file else paid_in_memory(place)
    notes = [*([paid] if paid else []), *_sharing(context, node)]
    if below is not None:
        notes += below.notes
    elif place.safety is Safety.REORDERS:
        notes.append("Every epoch then has the order of the first: the shuffle above is frozen.")
    if to_file:
        notes.append(
            f"The file {filename} outlives the run. It serves old data after a function or a file changed, "
            "and fails for a second writer: delete it whenever the pipeline changes."
        )
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=place.safety,
        edits=(*([below.move] if below else []), Insert(node.id, "cache", f"cache@{node.id}", {"filename": filename})),
        summary=(
            f"Keep what {node.title} puts out {where} ({place.elements:,} elements, "
            f"{as_size(place.size_bytes)}), so that only the first epoch computes it"
            + (", and shuffle what it holds." if below else ".")
        ),
        needs=frozenset({Consent.FILE_CACHE}) if to_file else frozenset(),
        group=NAME,  # two caches on one path hold the same data twice
        notes=tuple(notes),
        predicted_bytes=0.0 if to_file else place.size_bytes,
    )


def _sharing(context: RuleContext, node: Node) -> list[str]:
    """Returns the notes for the user if other pipelines or branches read the same operators."""
    notes = []
    if context.pipeline.shared_with:
        others = ", ".join(context.pipeline.shared_with)
        notes.append(f"This pipeline shares operators with {others}: a cache above the branch serves both.")
    if node.shared > 1:
        notes.append(
            f"The call stands in code that makes {node.shared} datasets: in source, each gets a cache."
        )
    below = (node, *context.pipeline.downstream(node.id))
    if any(len(context.pipeline.consumers(other.id)) > 1 for other in below):
        notes.append("Two branches read behind this cache: both are served from it.")
    return notes


RULE = Rule(
    name=NAME,
    summary="Keeps the elements of the first epoch where that saves most time, or most for the bytes it holds.",
    legality=(
        "Only where every operator above gives the same elements in every epoch: never behind a random op, a "
        "Python function or generator, a function that reads a variable or a table that can change, a side "
        "effect, `deterministic=False`, a repeat, a step nobody knows, or one that picks by position (take, skip, "
        "shard, enumerate, a dropped last batch) behind a shuffle. Not where a consumer reads the data partly, nor "
        "above take, take_while, zip or a choice between datasets, nor where the script is known to train for one "
        "epoch. Only with a known price (elements times bytes) below the memory limit. Of the places left, those are "
        "tried that no other beats in both time saved and bytes held, three at most. Where the best does not fit, "
        "the size and the cost of a saved dataset are named instead and a file cache is offered, which needs "
        "--allow file-cache and carries the pipeline's fingerprint and the worker's rank in its name. Where others "
        "share the branch, the rewrite says so."
    ),
    safety=(
        "EXACT where order repeats too, also behind maps that only a shuffle stands above: it then moves behind the "
        "cache, and its order stays another one in every epoch. REORDERS behind any other `shuffle`, or `list_files` "
        "(which shuffles by default): the order of the first epoch is then the order of all."
    ),
    propose=propose,
)
