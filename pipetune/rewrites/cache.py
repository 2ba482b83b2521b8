"""`cache`: keep the elements of the first epoch if every later epoch would compute the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pipetune.core.edits import (
    Consent,
    Insert,
    NoProposal,
    Plan,
    Remove,
    Rewrite,
    Safety,
    SetArgument,
    inserted_caches,
)
from pipetune.core.measurement import percent
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import ConsumerProfile, Finding, OperatorProfile, Profile, Stage, finding_at
from pipetune.rewrites.cache_places import (
    CACHE,
    MIN_EPOCHS,
    CachePosition,
    available_cache_bytes,
    best_position,
    branch_of,
    cache_group,
    describe_file_saving,
    describe_memory_saving,
    does_no_work,
    does_work,
    epochs_read,
    is_in_memory,
    is_worth_caching,
    move_after,
    position_after,
    saves_more,
    select_for_trial,
    suggest_saved_dataset,
    variation_behind,
)
from pipetune.rewrites.epoch_constancy import (
    Constancy,
    constancy_after,
    own_constancy,
    shuffles_all,
)
from pipetune.rewrites.pricing import bytes_per_element, element_count, format_bytes, seconds_per_output
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    describe_operator,
    last_active_operator,
    runs_python,
)

NAME = CACHE

_MAX_PROPOSALS = {Safety.EXACT: 3, Safety.STATISTICAL: 2, Safety.REORDERS: 2}
"""Maximum number of in-memory places proposed per safety class: each costs the search a whole epoch to fill. A place of
a weaker class must save more than the best place of the stricter classes."""


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields proposals for caches in memory or in files, and why other places get none."""
    yield from _proposals_as_proven(context)
    if any(map(runs_python, context.pipeline)):
        found = list(_proposals_as_proven(replace(context, python_repeats=True)))
        approved = [one for one in found if isinstance(one, Rewrite) and Consent.PYTHON_CACHE in one.needs]
        yield from approved or (one for one in found if isinstance(one, NoProposal))
        for node in context.pipeline:
            if _varies(context, node):
                why = f"No cache after {describe_operator(node)}: it gave other elements when it was read again."
                yield NoProposal(NAME, node.id, why)


def _varies(context: RuleContext, node: Node) -> bool:
    """Whether the Python of an operator was seen to give other elements when it was read again."""
    measured = context.measured(node.id)
    return measured is not None and measured.varies


_PYTHON_NOTE = (
    "The cache keeps what Python functions and generators return in the first epoch. Approve it only if they return "
    "the same in every epoch: that pipetune compares some elements cannot prove it."
)


def _proposals_as_proven(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields proposals and why there are no others, for Python that repeats or not, as the context has it."""
    output = context.pipeline.output
    if context.partial_read:
        why = "a consumer stops before the end of the data, so the cache would never be complete"
        yield NoProposal(NAME, output.id, f"No cache: {why}.")
        return
    places: list[CachePosition] = []
    stopped: NoProposal | None = None
    for node in context.pipeline:
        if not is_worth_caching(context, node):
            continue
        if any(_varies(context, one) for one in (*context.pipeline.upstream(node.id), node)):
            continue
        answer = position_after(context, node)
        if isinstance(answer, CachePosition):
            places.append(answer)
        elif answer != stopped:  # report the deciding operator once, not again for each one downstream
            stopped = answer
            yield answer
    if any(place.never_pays for place in places):
        yield _no_proposal_for_single_read(context, output)
        places = [place for place in places if not place.never_pays]
    places = _without_frozen(context, _without_refilled(context, places))
    best: CachePosition | None = None
    for safety, most in _MAX_PROPOSALS.items():
        here = [one for one in places if one.safety is safety and (best is None or saves_more(one, best))]
        yield from _proposals(context, here, most=most)
        best = next(iter(select_for_trial(_fitting(context, here), most=1)), best)


_MIN_SAVED_SHARE = 0.2
"""Minimum saving of CPU time, as a share of all that the input needs, for which it is advised to change the loop. By
judgement: a change by hand has to be worth it."""


def suggest_building_once(context: RuleContext) -> Iterator[Finding]:
    """Yields what a cache would save if the loop that reads the dataset did not build it in each iteration."""
    rebuilt = context.rebuilt_operators
    place = best_position(replace(context, rebuilt_operators=frozenset())) if rebuilt else None
    if place is None or place.node.id not in rebuilt:
        return
    if place.size_bytes > available_cache_bytes(context) or place.safety > Safety.STATISTICAL:
        return
    passes = _passes_per_iteration(context, place)
    share = _share_of_input(context, (place.cpu_seconds_per_output or 0.0) * (1.0 if passes < 2 else 1 - 1 / passes))
    if share < _MIN_SAVED_SHARE:
        return
    needed = {place.node.id, *(one.id for one in context.pipeline.upstream(place.node.id))} & rebuilt
    after = describe_operator(place.node)
    if passes >= 2:
        yield finding_at(
            "cache-in-each-iteration",
            place.node,
            f"Every iteration of the loop that reads the dataset builds it again, and reads it {passes:.0f} times. "
            f"Cached after {after}, the input needs {percent(share)} less CPU time.",
            hint=f"Add .cache() there: {format_bytes(place.size_bytes)} of memory hold its elements.",
        )
        return
    if needed <= context.buildable_once:
        why = "builds it again, so a cache would always be empty. If its data is the same in each iteration: "
        why += f"built once, before the loop, and cached after {after}"
        what = "Build the dataset before the loop, add .cache() there"
    else:
        why = f"builds another one, so a cache would always be empty. If what {after} yields does not depend on the "
        why += "iteration: built once, before the loop, and cached there"
        what = f"Build the part up to {after} before the loop, with .cache() behind it, and only the rest in the loop"
    yield finding_at(
        "cache-if-built-once",
        place.node,
        f"Every iteration of the loop that reads the dataset {why}, the input needs {percent(share)} less CPU time "
        f"from the second iteration on.",
        hint=f"{what}, and analyze the script again: {format_bytes(place.size_bytes)} of memory hold its elements.",
    )


def _passes_per_iteration(context: RuleContext, place: CachePosition) -> float:
    """Returns how often an iteration of the loop reads what is cached, as in front of `repeat(4)`; 1 if not known."""
    outputs = context.elements_read or element_count(context, context.pipeline.output.id)
    if outputs is None or outputs == INFINITE or not place.outputs_per_epoch:
        return 1.0
    return outputs / place.outputs_per_epoch


def _share_of_input(context: RuleContext, seconds: float) -> float:
    """Returns what share of the CPU time of all operators some of it is; 0 if it was not measured."""
    total = sum(seconds_per_output(context, node.id) or 0.0 for node in context.pipeline)
    return seconds / total if total else 0.0


def suggest_caching_sources(context: RuleContext) -> Iterator[Finding]:
    """Yields what a cache in each of the repeated sources that elements are sampled from would save.

    Maps that follow the sampling would have to move into all of them, which no rewrite does.
    """
    pipeline = context.pipeline
    for choice in (node for node in pipeline if node.op == "choose"):
        passes = [_elements_of_a_pass(context, name) for name in choice.inputs[1:]]  # the first one selects
        maps, last = list[Node](), choice
        while len(readers := pipeline.consumers(last.id)) == 1 and readers[0].op in ("map", "prefetch"):
            (last,) = readers
            if own_constancy(last, context).constancy is not Constancy.SAME:
                break
            maps += [last] if last.op == "map" else []
        known = [count for count in passes if count is not None]
        size = bytes_per_element(context, maps[-1].id) if maps else None
        if size is None or len(known) < len(passes) or sum(known) * size > available_cache_bytes(context):
            continue
        share = _share_of_input(context, sum(seconds_per_output(context, node.id) or 0.0 for node in maps))
        if share >= _MIN_SAVED_SHARE:
            names = " and ".join(describe_operator(node) for node in maps)
            yield finding_at(
                "cache-before-sampling",
                maps[0],
                f"{describe_operator(choice)} takes elements from sources that repeat, and {names}, {percent(share)} "
                f"of the input's CPU time, runs again for each of them. In each source, before its repeat(), "
                f"{sum(known):,} calls would do.",
                hint=f"Call the function in each source and add .cache() there, in front of shuffle() and repeat(), "
                f"and analyze the script again: {format_bytes(sum(known) * size)} of memory hold the elements.",
            )


def suggest_larger_shuffle(context: RuleContext) -> Iterator[Finding]:
    """Yields what a cache would save if a shuffle held all elements, where it is refused as a batch drops some.

    With the order that `list_files` drew in the first epoch, for example, later epochs would drop nearly the same.
    """
    for node in context.pipeline if not context.partial_read else ():
        elements = element_count(context, node.id)
        if node.op != "shuffle" or elements is None or elements < 0 or shuffles_all(context, node):
            continue
        larger = SetArgument(node.id, "buffer_size", elements).apply(context.pipeline)
        place = best_position(replace(context, pipeline=larger))
        if place is None or place.never_pays or place.size_bytes > available_cache_bytes(context):
            continue
        now = position_after(context, context.pipeline[place.node.id])
        share = _share_of_input(context, place.cpu_seconds_per_output or 0.0)
        if not isinstance(now, NoProposal) or not context.pipeline[now.node].argument("drop_remainder"):
            continue
        if share >= _MIN_SAVED_SHARE:
            approval = " with --allow reorder" if place.safety is Safety.REORDERS else ""
            yield finding_at(
                "cache-needs-full-shuffle",
                node,
                f"{now.why} A cache after {describe_operator(place.node)} would save {percent(share)} of the "
                f"input's CPU time.",
                hint=f"With a buffer of all elements, shuffle({elements:_}), every epoch has an order of its own, and "
                f"the cache is allowed: change it, and analyze the script again{approval}. "
                f"{format_bytes(place.size_bytes)} of memory hold the elements for both.",
            )


def _elements_of_a_pass(context: RuleContext, name: str) -> int | None:
    """Returns the elements in front of the endless repeat of a source; None if it has none, or they are not known."""
    node = context.pipeline[name]
    while len(node.inputs) == 1:
        if node.op == "repeat" and node.argument("count") in (None, INFINITE):
            count = element_count(context, node.inputs[0])
            return count if count is not None and count >= 0 else None
        node = context.pipeline[node.inputs[0]]
    return None


def cache_whole_passes(
    context: RuleContext, *, elements: int, element_bytes: Callable[[Node], float], reorders: bool = False
) -> list[Rewrite]:
    """Returns a cache in memory as far downstream as every epoch keeps its elements and their order; best place first.

    The others stand behind operators that only pass elements on: source may have no form for the best, as inside of
    `image_dataset_from_directory`, which ends with a prefetch. Empty unless it fits and pays.

    Args:
        context: needs no profile.
        elements: of the output in an epoch.
        element_bytes: called with an operator; returns the bytes of one element of its output.
        reorders: whether the cache may freeze an order that differs from epoch to epoch.
    """
    pipeline = context.pipeline
    if context.partial_read:
        return []
    last = last_active_operator(pipeline)
    node, counts = _in_front_of_loop(context, last), {last.id: elements}
    while _adds_nothing(pipeline, node) or not _keeps_order(context, node, reorders=reorders):
        if len(node.inputs) != 1:
            return []
        node = pipeline[node.inputs[0]]
    stored = [above for above in pipeline if above.op in ("cache", "snapshot") and does_work(context, above.id)]
    saved = {one.id for above in stored for one in pipeline.upstream(above.id)}
    left = [one for one in (*pipeline.upstream(node.id), node) if one.id not in saved]
    if not is_worth_caching(context, node) or (stored and all(is_in_memory(one) or does_no_work(one) for one in left)):
        return []
    nodes = [node]
    while len(readers := pipeline.consumers(nodes[-1].id)) == 1 and _adds_nothing(pipeline, readers[0]):
        nodes += readers
    size, found = element_bytes(node), []
    for node in nodes:
        output = OperatorProfile(node.id, Stage.TRANSFORM, bytes_out=size)
        sizes = Profile((output,), ConsumerProfile("none"), cardinality=counts)
        place = position_after(replace(context, profile=sizes), node)
        if isinstance(place, NoProposal) or place.safety not in (Safety.EXACT, *[Safety.REORDERS] * reorders):
            continue
        pays = place.epochs is None or place.epochs >= MIN_EPOCHS
        if pays and place.size_bytes <= available_cache_bytes(context):
            found.append(_rewrite(context, place, to_file=False))
    return found


def _adds_nothing(pipeline: Pipeline, node: Node) -> bool:
    return node.op in ("prefetch", "with_options") or (len(node.inputs) == 1 and pipeline.has_no_effect(node))


def _in_front_of_loop(context: RuleContext, node: Node) -> Node:
    """Returns the operator in front of those that do no work and that a loop builds in each iteration, as `batch`.

    Returns `node` if the loop builds more than that.
    """
    outside = node
    while outside.id in context.built_in_loop and does_no_work(outside) and len(outside.inputs) == 1:
        if not operator_facts(outside.op).reads_all:
            break  # what is in front of it is not read to the end
        outside = context.pipeline[outside.inputs[0]]
    return node if outside.id in context.built_in_loop else outside


def _keeps_order(context: RuleContext, node: Node, *, reorders: bool) -> bool:
    """Whether the elements after an operator are the same, in the same order, in every epoch, or could be.

    If `reorders`, their order may differ.
    """
    if constancy_after(context, node.id).constancy <= (Constancy.SAME_ELEMENTS if reorders else Constancy.SAME):
        return True
    return node.op == "map" and move_after(context, node) is not None


def stores_no_more_work(pipeline: Pipeline, rewrite: Rewrite, plan: Plan) -> bool:
    """Whether the caches of a rewrite store no work that those of a plan do not store: at most batches, or an order."""
    own, stored = (_stored_operators(pipeline, rewrites) for rewrites in ((rewrite,), plan.rewrites))
    return bool(own and stored) and all(does_no_work(pipeline[name]) for name in own - stored)


def _stored_operators(pipeline: Pipeline, rewrites: Iterable[Rewrite]) -> set[str]:
    """Returns the operators of which the caches that rewrites insert store the work."""
    found = set[str]()
    for one in rewrites:
        for place in (cache.after if cache.after in pipeline else one.node for cache in inserted_caches(one.edits)):
            found |= {place, *(above.id for above in pipeline.upstream(place))}
    return found


def _without_refilled(context: RuleContext, places: list[CachePosition]) -> list[CachePosition]:
    """Returns the places without those that a loop builds in each iteration, if another one saves nearly as much.

    As in a search for the best batch size: a cache in front of `batch` is filled once for all of its models.
    """
    kept = [place for place in places if place.node.id not in context.built_in_loop]
    saved = [place.saved_seconds_per_output or 0.0 for place in places]
    most = max((place.saved_seconds_per_output or 0.0 for place in kept), default=0.0)
    return kept if most > 0 and most >= _NEARLY * max(saved) else places


_NEARLY = 0.7
"""By judgement: a cache that every iteration fills anew saves one epoch less in each; one order for all epochs costs
accuracy."""


def _without_frozen(context: RuleContext, places: list[CachePosition]) -> list[CachePosition]:
    """Returns the places without those that give all epochs one order, where one upstream needs the same approval.

    If that one saves nearly as much, and a shuffle follows it.
    """
    weakest = [place for place in places if place.safety is Safety.REORDERS]
    varying = [place for place in weakest if variation_behind(context, place).is_of_elements]
    shuffled = {place.node.id: place.saved_seconds_per_output or 0.0 for place in _fitting(context, varying)}
    dropped = set[str]()
    for place in (one for one in weakest if one not in varying):
        above = shuffled.keys() & {one.id for one in context.pipeline.upstream(place.node.id)}
        most = max((shuffled[name] for name in above), default=None)
        if most is not None and most >= _NEARLY * (place.saved_seconds_per_output or 0.0):
            dropped.add(place.node.id)
    return [place for place in places if place.node.id not in dropped]


def _no_proposal_for_single_read(context: RuleContext, output: Node) -> NoProposal:
    requested = f"{context.epochs} epoch" + ("s" if context.epochs != 1 else "")
    if context.steps_per_epoch is not None:
        requested += f" of {context.steps_per_epoch:,} steps"
    why = f"the script reads its data at most once, for {requested}; a cache pays off only in later epochs"
    return NoProposal(NAME, output.id, f"No cache: {why}. Data stored with Dataset.save would speed up later runs.")


def _fitting(context: RuleContext, places: list[CachePosition]) -> list[CachePosition]:
    return [place for place in places if place.size_bytes <= available_cache_bytes(context)]


def _proposals(context: RuleContext, places: list[CachePosition], *, most: int) -> Iterator[Rewrite | NoProposal]:
    """Yields the fitting places worth a trial, and alternatives in files if the best place exceeds the memory limit."""
    for best in select_for_trial(places, most=1):
        if best.size_bytes > available_cache_bytes(context):
            yield suggest_saved_dataset(context, best)
            if best.node.id not in context.built_in_loop:  # the next iteration would read what the first has written
                yield _rewrite(context, best, to_file=True)
    fitting = _fitting(context, places)
    chosen = select_for_trial(fitting, most=most)
    if chosen and _in_repeated_call(context.pipeline, chosen[0]):
        outside = [place for place in fitting if not _in_repeated_call(context.pipeline, place)]
        chosen += [place for place in select_for_trial(outside, most=1) if place not in chosen]
    for place in _with_other_branches(context, chosen, fitting):
        yield _rewrite(context, place, to_file=False)


def _in_repeated_call(pipeline: Pipeline, place: CachePosition) -> bool:
    """Whether the call that makes an operator makes others too, as in a loop: source can rarely tell them apart."""
    here = place.node.location
    return here is not None and sum(node.location == here for node in pipeline) > 1


def _with_other_branches(
    context: RuleContext, chosen: list[CachePosition], fitting: list[CachePosition]
) -> list[CachePosition]:
    """Returns the places chosen and, where one of them is in a branch, the best ones of some others beside it."""
    by_branch: dict[str, list[CachePosition]] = {}
    for place in fitting:
        by_branch.setdefault(branch_of(context.pipeline, place.node.id), []).append(place)
    taken = {branch_of(context.pipeline, place.node.id) for place in chosen}
    if taken == {""}:
        return chosen
    others = [here for branch, here in by_branch.items() if branch and branch not in taken]
    return [*chosen, *(place for here in others[:_MAX_BRANCHES] for place in select_for_trial(here, most=1))]


_MAX_BRANCHES = 3
"""Other branches that get a proposal of their own: each may have a cache, and costs the search a trial."""


def _rewrite(context: RuleContext, place: CachePosition, *, to_file: bool) -> Rewrite:
    node, moved = place.node, place.moved
    movable = [context.pipeline[one.node].op for one in reversed(moved.moves)] if moved is not None else []
    behind = place.behind(context)
    filename = f"pipetune-cache-{context.fingerprint or context.pipeline.fingerprint}" if to_file else ""
    where = "in a file" if to_file else "in memory"
    paid = describe_file_saving(context, place) if to_file else describe_memory_saving(place)
    notes = [*([paid] if paid else []), *_sharing_notes(context, node)]
    replaced = _caches_without_work(context, node)
    notes += [f"{describe_operator(one)} is removed: nothing reads it once the new one is filled." for one in replaced]
    if moved is not None:
        notes += moved.notes
    needs, approved = set[Consent](), list[str]()
    if place.constancy is Constancy.SAME_ELEMENTS:
        approved.append(_describe_frozen_order(context, place))
    if to_file:
        needs.add(Consent.FILE_CACHE)
        approved.append(
            f"The file {filename} remains after the run. It serves stale data once a function or a file has changed or "
            "the script is given other files, and two writers at once fail: delete it whenever these change."
        )
    if context.python_repeats and any(map(runs_python, (node, *context.pipeline.upstream(node.id)))):
        needs.add(Consent.PYTHON_CACHE)
        approved.append(_PYTHON_NOTE)
    if approved:
        notes.append(" ".join(approved))
    read = place.epochs
    if read is None and node.id in context.built_in_loop:  # empty again in the next iteration
        read = epochs_read(replace(behind, epochs=context.epochs_in_loop), node, place.outputs_per_epoch)
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=place.safety,
        edits=(
            *(moved.moves if moved else ()),
            *(Remove(one.id) for one in replaced),
            Insert(node.id, "cache", f"cache@{node.id}", {"filename": filename}),
        ),
        summary=(
            f"Cache the output of {node.title} {where} ({place.elements:,} elements, "
            f"{format_bytes(place.size_bytes)}), so that only the first epoch computes it"
            + (f", and {' and '.join(dict.fromkeys(movable))} the cached elements." if movable else ".")
        ),
        needs=frozenset(needs),
        group=cache_group(context.pipeline, node.id),
        notes=tuple(notes),
        predicted_bytes=0.0 if to_file else place.size_bytes,
        epochs_read=read,
    )


def _describe_frozen_order(context: RuleContext, place: CachePosition) -> str:
    """Returns what no longer differs from epoch to epoch behind a cache, in words, and what still does."""
    found = variation_behind(context, place)
    frozen = f"cache freezes the order of {describe_operator(found.ordering)}"
    if found.batch is not None:
        frozen += f", and {describe_operator(found.batch)} makes the same batches in every epoch"
    if not found.shuffles:
        return f"Every epoch then has the order of the first one: the {frozen}."
    behind = place.behind(context)
    whole = next((one for one in found.shuffles if place.order_settled or shuffles_all(behind, one)), None)
    shuffle = describe_operator(whole or found.shuffles[0])
    if found.batch is not None:
        return f"The {frozen}; {shuffle} still gives these another order."
    extent = "" if whole is not None else ", as far as its buffer reaches"
    return f"The {frozen}; {shuffle} still gives each epoch another one{extent}."


def _caches_without_work(context: RuleContext, node: Node) -> list[Node]:
    """Returns the caches in memory, as of file names, that are of no use once the elements after `node` are cached.

    Only those that save no work, and that nothing else reads. The new cache keeps the order that they kept.
    """
    found, pipeline = list[Node](), context.pipeline
    while len(node.inputs) == 1 and len(pipeline.consumers(node.inputs[0])) == 1:
        node = pipeline[node.inputs[0]]
        if node.op != "cache" or node.argument("filename") or does_work(context, node.id):
            continue
        if node.shared == 1 and node.location is not None and node.id not in context.read_by_others:
            found.append(node)
    return found


def _sharing_notes(context: RuleContext, node: Node) -> list[str]:
    """Returns the notes for the user if other datasets or branches read the same operators."""
    notes = []
    if node.shared > 1:
        creates = f"This call site creates {node.shared} datasets"
        notes.append(f"{creates}: if the source is changed, each of them gets a cache.")
    below = (node, *context.pipeline.downstream(node.id))
    if any(len(context.pipeline.consumers(other.id)) > 1 for other in below):
        notes.append("Two branches read from this cache: it serves both.")
    return notes


RULE = Rule(
    name=NAME,
    summary="Caches the elements of the first epoch where that saves the most time, or the most time per byte.",
    legality=(
        "Only if every upstream operator yields the same elements in every epoch: never after a random op, a function "
        "that reads a variable or a mutable table, a side effect, a repeat that cannot move after the cache, an "
        "unknown operator, or one that selects by position (take, skip, shard, enumerate, a dropped last batch) after "
        "a shuffle or `deterministic=False`. Not if a consumer reads the data only in part, as a loop that may `break` "
        "before one pass, not before take (unless it takes more than one pass), take_while or a choice between "
        "datasets that do not repeat endlessly (unless it ends with the last of them, or all of them read the same), "
        "not before a zip with data that may end first, not before a batch, or another operator that loses others with "
        "an element that fails, and an ignore_errors, not if the script is known to train for one epoch, not behind "
        "what the loop that reads the data builds again in each iteration, and not of a file that the script writes "
        "again while it trains. Only if the price (elements times bytes) is known and below the memory limit. Of the "
        "remaining places, up to three are tried that no other place beats in both time saved and memory used, and one "
        "in each of up to three other datasets that a zip joins. Where the call that makes the best place makes other "
        "operators, too, as in a loop over functions, so is the best place elsewhere. Places that a loop builds in "
        "each iteration give way to one in front of the loop that saves nearly as much, and those that give all epochs "
        "one order, or the same batches, to one in front of a shuffle of single elements. If the best place does not "
        "fit, the size and cost of a saved dataset are reported instead, and a file cache is offered, which requires "
        "--allow file-cache; its file name contains the fingerprint of the pipeline. A cache after Python functions or "
        "generators requires --allow python-cache: nobody can read from them that they return the same in every epoch; "
        "none is proposed after those that gave other elements when they were read again. A cache of file names, or of "
        "others that save no work, is removed where one behind it replaces it. If other pipelines share the branch, "
        "the rewrite says so."
    ),
    safety=(
        "EXACT if the order repeats as well, and also after maps with shuffles (that of `list_files`, too) and repeats "
        "upstream: they then move after the cache, and the order still differs in every epoch. STATISTICAL after a "
        "shuffle or `list_files` (which shuffles by default) if a shuffle of all elements follows, with only maps in "
        "between: it draws a new order in every epoch anyway; after `deterministic=False` any shuffle suffices, also "
        "behind a repeat or filter. REORDERS otherwise: all epochs then have the order of the first one."
    ),
    propose=propose,
)
