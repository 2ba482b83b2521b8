"""The caches of a pipeline: what runs in the first epoch only, and how long it takes until they are full."""

from __future__ import annotations

from pipetune.core.pipeline import Pipeline
from pipetune.core.time_plan import CACHE_SECONDS

_REPEATABLE = frozenset(
    {"batch", "cache", "copy_to_device", "enumerate", "map", "padded_batch", "prefetch", "prefetch_to_device", "repeat",
     "shard", "shuffle", "skip", "take", "unbatch", "with_options", "zip"}
)  # fmt: skip
"""Operators that take from endless data what they take from as many elements. `unique` and `filter` may find no other
element in it, `concatenate` never comes to its second dataset, and `assert_cardinality` raises."""


def upstream_of_cache(pipeline: Pipeline) -> frozenset[str]:
    """Returns the operators that run in the first epoch only: every path to the output passes through a cache."""
    needed = {pipeline.output.id}
    for node in reversed(pipeline.nodes):
        if node.id in needed and node.op != "cache":
            needed |= set(node.inputs)
    return frozenset(node.id for node in pipeline if node.id not in needed)


def added_caches(edited: Pipeline, original: Pipeline) -> tuple[str, ...]:
    """Returns the ids of the caches that edits have added."""
    return tuple(node.id for node in edited if node.op == "cache" and node.id not in original)


def may_hold_part(pipeline: Pipeline, cache: str) -> bool:
    """Whether a part of the elements, repeated endlessly, may stand for all of them in a cache, given its id."""
    below = pipeline.downstream(cache)
    return not pipeline[cache].argument("filename") and all(node.op in _REPEATABLE for node in below)


def seconds_to_fill(edited: Pipeline, original: Pipeline, epoch_seconds: float | None) -> float | None:
    """Returns how long the caches that edits have added take to be filled for measuring; None if that is unknown.

    Args:
        edited: the edited pipeline.
        original: the pipeline before.
        epoch_seconds: what a pass over all elements takes; None if that is unknown.
    """
    added = added_caches(edited, original)
    if not added:
        return 0.0
    if all(may_hold_part(edited, cache) for cache in added):
        return CACHE_SECONDS if epoch_seconds is None else min(epoch_seconds, CACHE_SECONDS)
    return epoch_seconds
