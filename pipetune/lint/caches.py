"""Checks for caches that freeze what should change or are never complete, and for buffers that hold too much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipetune.core.element_counts import element_bytes
from pipetune.core.operators import operator_facts, reshuffles_each_epoch
from pipetune.core.pipeline import AUTOTUNE, INFINITE, UNKNOWN, Node, SourceLocation
from pipetune.core.profile import Finding, Profile, finding_at
from pipetune.lint.dataset_use import (
    DatasetUse,
    batch_size,
    is_repeat,
    nodes_with_op,
    one_to_one,
)


def find_frozen_randomness(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on random draws and orders that a cache of training data repeats in every epoch."""
    if use.is_evaluation:
        return  # the same draws each time make two evaluations comparable
    reported: set[str] = set()
    for cache in nodes_with_op(use, "cache"):
        above = [node for node in use.pipeline.upstream(cache.id) if node.id not in reported]
        reported.update(node.id for node in above)
        if any(node.function is not None and node.function.random for node in above):
            file = cache.argument("filename")
            yield finding_at(
                "cached-augmentation",
                cache,
                "cache() follows a random function: every epoch repeats the random draws of the first"
                + (", and so does every later run that finds the file." if file else "."),
                "Put the cache before the random function.",
            )
        yield from _frozen_order(use, cache, above)


def _frozen_order(use: DatasetUse, cache: Node, above: Sequence[Node]) -> Iterator[Finding]:
    """Reports a frozen order, unless single elements are reshuffled downstream: their order then still changes."""
    shuffle = next(filter(reshuffles_each_epoch, above), None)
    if shuffle is None:
        return
    batched = any(operator_facts(node.op).makes_batches for node in use.nodes_between(shuffle.id, cache.id))
    reshuffled = any(reshuffles_each_epoch(node) for node in use.pipeline.downstream(cache.id))
    if reshuffled and not batched:
        return
    what = "the same batches" if batched else "the order of the first"
    message = f"cache() follows a shuffle: every epoch has {what}{', in another order' if reshuffled else ''}."
    hint = f"Move shuffle(){' and batch()' if batched else ''} behind cache()."
    if shuffle.made_by_list_files:
        hint = "Pass shuffle=False to list_files, which shuffles by default, and call shuffle() after cache()."
    if (made := shuffle.location) is not None and made.library == "keras":  # nothing fits in between there
        hint = f"Pass batch_size=None to {made.method}, which shuffles and batches, and call .shuffle() and .batch() "
        hint += "after cache()."
    yield finding_at("frozen-order", cache, message, hint)


def find_endless_caches(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on in-memory caches of infinite data."""
    for cache in nodes_with_op(use, "cache"):
        if cache.cardinality == INFINITE and not cache.argument("filename"):
            repeat = next((node for node in use.pipeline.upstream(cache.id) if is_repeat(node)), None)
            message = "cache() stores infinite data: it is never read back, and memory grows with every element."
            hint = "Put cache() before repeat()." if repeat is not None else "Remove cache(), or put take() before it."
            yield finding_at("endless-cache", cache, message, hint)


def find_incomplete_caches(use: DatasetUse, others: Sequence[DatasetUse]) -> Iterator[Finding]:
    """Yields findings on caches whose consumer stops before the end: what they hold is then discarded each time."""
    if use.role == "preview":
        return  # a preview does not prevent the cache from being filled later
    for cache in nodes_with_op(use, "cache"):
        if cache.cardinality == INFINITE or any(_reads_to_end(other, cache, owner=use) for other in others):
            continue
        cut = _ending_operator(use, cache)
        if cut is not None:
            where = f"{cut.op} ends it after {cut.cardinality:,} elements"
        elif _stops_early(use, cache):
            where = f"{_requested_steps(use):,} of {use.pipeline.output.cardinality:,} batches"
        else:
            continue
        message = f"The consumer stops before the cache is complete ({where}): the cached data is discarded each time."
        yield finding_at("partial-cache", cache, message, "Put take() before cache(), or read the whole dataset once.")


def _reads_to_end(other: DatasetUse, cache: Node, *, owner: DatasetUse) -> bool:
    """Whether another dataset of the script reads the same cache to its end."""
    same = owner.dataset_ids.get(cache.id)
    node = next((node for node in nodes_with_op(other, "cache") if other.dataset_ids.get(node.id, -1) == same), None)
    if node is None or other.role == "preview":
        return False
    return _ending_operator(other, node) is None and not _stops_early(other, node)


_AUTOTUNED = 16  # elements, by judgement: what a buffer of AUTOTUNE may hold


def _read_ahead(use: DatasetUse, cache: Node) -> dict[str, int]:
    """Returns, for each operator downstream of a cache, how many of its elements wait in buffers when one leaves it."""
    ahead = {cache.id: 0}
    for node in use.pipeline.downstream(cache.id):
        waiting, taken = max(ahead.get(name, 0) for name in node.inputs), _elements_taken(node)
        buffer = node.argument("buffer_size" if node.op in ("shuffle", "prefetch") else "num_parallel_calls")
        held = _AUTOTUNED if buffer == AUTOTUNE else buffer if isinstance(buffer, int) else 0
        ahead[node.id] = held + (-(-waiting // taken) if taken is not None else 0)
    return ahead


def _elements_taken(node: Node) -> int | None:
    """Returns how many elements an operator takes for one that it outputs; None if that differs."""
    return batch_size(node) or (1 if is_repeat(node) or one_to_one([node]) else None)


def _ending_operator(use: DatasetUse, cache: Node) -> Node | None:
    """Returns the downstream operator that ends epochs before the cache is read whole; None if none certainly does."""
    whole, repeated, ahead = {cache.id: cache.cardinality}, {cache.id: False}, _read_ahead(use, cache)
    for node in use.pipeline.downstream(cache.id):
        (above, *more) = [name for name in node.inputs if name in whole]
        passes, again = whole[above], repeated[above]
        if node.op in ("take", "zip", "take_while") and 0 <= node.cardinality < passes - ahead[above]:
            kept = any(below.op == "cache" for below in use.pipeline.downstream(node.id))
            return None if kept else node  # another cache serves the later epochs
        if more:
            return None  # the cache has two consumers
        again, taken = again or is_repeat(node), _elements_taken(node)
        if not again:
            passes = node.cardinality
        elif taken is None:
            passes = UNKNOWN
        elif passes >= 0:
            passes = -(-passes // taken)
        whole[node.id], repeated[node.id] = passes, again
    return None


def _stops_early(use: DatasetUse, cache: Node) -> bool:
    """Whether the requested steps end before the data does, even over all epochs together."""
    has = use.pipeline.output.cardinality
    if use.steps is None or has < 0 or any(map(is_repeat, use.pipeline.downstream(cache.id))):
        return False
    return _requested_steps(use) + _read_ahead(use, cache).get(use.pipeline.output.id, 0) < has


def _requested_steps(use: DatasetUse) -> int:
    """Returns the requested steps of all epochs that continue with one iterator."""
    return (use.steps or 0) * (1 if use.is_evaluation else use.epochs or 1)


_MIN_BATCHES = 8  # batches: fewer may be intended


def find_prefetch_of_batch_size(uses: Sequence[DatasetUse]) -> Iterator[Finding]:
    """Yields a finding on each `batch(64).prefetch(64)`: prefetch counts its input elements, which are batches.

    A call that makes several of the datasets has one finding, on the first of them.
    """
    known: set[SourceLocation | None] = set()
    for use, prefetch in ((one, node) for one in uses for node in nodes_with_op(one, "prefetch")):
        held, size = prefetch.argument("buffer_size"), _batch_size_above(use, prefetch)
        if size is None or held != size or size < _MIN_BATCHES or (prefetch.location and prefetch.location in known):
            continue
        known.add(prefetch.location)
        each = element_bytes(use.pipeline, use.profile, prefetch.id)
        holds = f", {held * each / 2**20:,.0f} MiB" if each is not None and held * each >= 2**20 else ""
        yield finding_at(
            "prefetch-batch-size",
            prefetch,
            f"prefetch({held}) follows batch({size}) and counts batches, not examples: it fills up with "
            f"{held:,} batches ({held * size:,} examples{holds}).",
            "Use prefetch(tf.data.AUTOTUNE), or a buffer of two or three batches.",
        )


_LARGE_SHUFFLE_BYTES = 512 * 2**20  # by judgement: what smaller buffers hold is rarely worth another order of operators
_SMALLER_INPUT = 4  # times: how much less a shuffle must hold if it stands before a map


def find_large_shuffles(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on shuffle buffers that hold large elements which a map has made of far smaller ones."""
    for shuffle in nodes_with_op(use, "shuffle"):
        size, each = shuffle.argument("buffer_size"), element_bytes(use.pipeline, use.profile, shuffle.id)
        if use.profile is None or not isinstance(size, int) or each is None:
            continue
        there = use.pipeline[shuffle.inputs[0]].cardinality  # -1: endless, -2: unknown
        count = min(size, there) if there >= 0 else size
        if count * each < _LARGE_SHUFFLE_BYTES:
            continue
        smaller = _smallest_input_of_map(use, shuffle, use.profile)
        if smaller is None or smaller * _SMALLER_INPUT > each:
            continue
        yield finding_at(
            "large-shuffle",
            shuffle,
            f"The shuffle holds {count:,} elements of {each / 1024:,.0f} KiB: {count * each / 2**20:,.0f} MiB, all "
            "computed before the first batch.",
            "Shuffle before the map that makes the elements large (file names, records or encoded images), or use a "
            "smaller buffer.",
        )


def _smallest_input_of_map(use: DatasetUse, node: Node, profile: Profile) -> float | None:
    """Returns the bytes of the smallest element that reaches `node` one to one through maps; None if unknown."""
    smallest = None
    while len(node.inputs) == 1:
        node = use.pipeline[node.inputs[0]]
        if node.op == "map" and node.inputs:
            before = element_bytes(use.pipeline, profile, node.inputs[0])
            smallest = min(filter(None, (smallest, before)), default=None)
        elif node.op not in ("repeat", "prefetch", "shuffle"):
            break
    return smallest


def _batch_size_above(use: DatasetUse, node: Node) -> int | None:
    """Returns the size of the batches that `node` receives, if they reach it one to one."""
    while len(node.inputs) == 1:
        node = use.pipeline[node.inputs[0]]
        if (size := batch_size(node)) is not None:
            return size
        if not one_to_one([node]) and node.op != "repeat":
            return None
    return None
