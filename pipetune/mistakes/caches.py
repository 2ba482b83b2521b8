"""Checks for caches that freeze what should change from epoch to epoch, or that are never complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import INFINITE, UNKNOWN, Node
from pipetune.core.profile import Finding
from pipetune.mistakes.use import BATCHING, Use, batch_size, nodes_of, repeats, said, shuffles_anew


def frozen(use: Use) -> Iterator[Finding]:
    """Reports random draws and orders that a cache of training data repeats in every epoch."""
    if use.evaluates:
        return  # the same draws each time make two evaluations comparable
    told: set[str] = set()
    for cache in nodes_of(use, "cache"):
        above = [node for node in use.pipeline.upstream(cache.id) if node.id not in told]
        told.update(node.id for node in above)
        yield from _frozen_draws(cache, above)
        yield from _frozen_order(use, cache, above)


def _frozen_draws(cache: Node, above: Sequence[Node]) -> Iterator[Finding]:
    if any(node.function is not None and node.function.random for node in above):
        file = cache.argument("filename")
        yield said(
            "cached-augmentation",
            cache,
            "cache() stands behind a random function: every epoch repeats the draws of the first"
            + (", and so does every later run that finds the file." if file else "."),
            "Put the cache before the random function.",
        )


def _frozen_order(use: Use, cache: Node, above: Sequence[Node]) -> Iterator[Finding]:
    """Reports a frozen order, unless single elements are reshuffled downstream: their order then still changes."""
    shuffle = next(filter(shuffles_anew, above), None)
    if shuffle is None:
        return
    batched = any(node.op in BATCHING for node in use.between(shuffle.id, cache.id))
    anew = any(shuffles_anew(node) for node in use.pipeline.downstream(cache.id))
    if anew and not batched:
        return
    what = "the same batches" if batched else "the order of the first"
    yield said(
        "frozen-order",
        cache,
        f"cache() stands behind a shuffle: every epoch has {what}{', in another order' if anew else ''}.",
        "Put the cache before the shuffle (list_files shuffles too, unless told shuffle=False).",
    )


def endless(use: Use) -> Iterator[Finding]:
    """Reports in-memory caches of infinite data."""
    for cache in nodes_of(use, "cache"):
        if cache.cardinality == INFINITE and not cache.argument("filename"):
            repeat = next((node for node in use.pipeline.upstream(cache.id) if repeats(node)), None)
            yield said(
                "endless-cache",
                cache,
                "cache() keeps data that never ends: it is never read back, and memory grows with every element.",
                "Put cache() before repeat()." if repeat is not None else "Leave cache() out, or put take() before it.",
            )


def never_full(use: Use, others: Sequence[Use]) -> Iterator[Finding]:
    """Reports caches whose consumer stops before the end: what they hold is then discarded each time."""
    if use.role == "preview":
        return  # a preview does not prevent the cache from being filled later
    for cache in nodes_of(use, "cache"):
        if cache.cardinality == INFINITE or any(_fills(other, cache, of=use) for other in others):
            continue
        cut = _cut(use, cache)
        if cut is not None:
            yield said(
                "partial-cache",
                cache,
                f"The consumer stops before the cache is full ({cut.op} ends it after {cut.cardinality:,}): "
                "what was cached is thrown away each time.",
                "Put take() before cache(), or read the whole dataset once.",
            )
        elif _stops_early(use, cache):
            asked, has = use.steps or 0, use.pipeline.output.cardinality
            yield said(
                "partial-cache",
                cache,
                f"The consumer stops before the cache is full ({asked:,} of {has:,} batches): "
                "what was cached is thrown away each time.",
                "Put take() before cache(), or read the whole dataset once.",
            )


def _fills(other: Use, cache: Node, *, of: Use) -> bool:
    """Whether another dataset of the script reads the same cache to its end."""
    same = of.objects.get(cache.id)
    node = next((node for node in nodes_of(other, "cache") if other.objects.get(node.id, -1) == same), None)
    if node is None or other.role == "preview":
        return False
    return _cut(other, node) is None and not _stops_early(other, node)


def _cut(use: Use, cache: Node) -> Node | None:
    """Returns the downstream operator that ends epochs before the cache is read whole; None if none certainly does."""
    whole, repeated = {cache.id: cache.cardinality}, {cache.id: False}
    for node in use.pipeline.downstream(cache.id):
        (above, *more) = [name for name in node.inputs if name in whole]
        passes, again = whole[above], repeated[above]
        if node.op in ("take", "zip", "take_while") and 0 <= node.cardinality < passes:
            kept = any(below.op == "cache" for below in use.pipeline.downstream(node.id))
            return None if kept else node  # another cache serves the later epochs
        if more:
            return None  # the cache has two consumers
        again = again or repeats(node)
        size = batch_size(node)
        if not again:
            passes = node.cardinality
        elif size is not None and passes >= 0:
            passes = -(-passes // size)
        elif not repeats(node) and facts(node.op).count is not Count.ONE_TO_ONE:
            passes = UNKNOWN
        whole[node.id], repeated[node.id] = passes, again
    return None


def _stops_early(use: Use, cache: Node) -> bool:
    """Whether the requested steps end before the data does, even over all epochs together."""
    has = use.pipeline.output.cardinality
    if use.steps is None or has < 0 or any(map(repeats, use.pipeline.downstream(cache.id))):
        return False
    return use.steps * (1 if use.evaluates else use.epochs or 1) < has
