"""The plan that Plumber would choose for a pipeline, re-implemented from its paper.

Kuchnik et al., MLSys 2022, section 4, and its code in `plumber_analysis`: measure the rate per core of every operator;
divide the cores so that the lowest rate is as high as possible; add a prefetch at the end for the elements in flight;
and insert a cache as near to the end as memory allows. Two faults that later work found are corrected here: storage
bandwidth limits the rate, and a parallel operator gets at least two calls. A cache is inserted only where every epoch
is the same, including its order (the original code leaves this open for a shuffle); otherwise Plumber would be measured
on different data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipetune.core.edits import Edit, Insert
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import INFINITE, Node
from pipetune.rewrites.baselines import accepts_parallel_calls, parallelism_edits
from pipetune.rewrites.epoch_constancy import Constancy, constancy_after
from pipetune.rewrites.pricing import bytes_per_element, element_count, seconds_per_output
from pipetune.rewrites.rule import RuleContext

FEWEST_CALLS = 2
FEWEST_AHEAD = 2
CACHEABLE_SHARE = 0.9
"""Share of the memory limit that a cache may use (`FRACTION_CACHEABLE_MEMORY` in the original code)."""


@dataclass(frozen=True)
class Allocation:
    """How cores are divided over operators."""

    rate: float  # elements of the output per second
    cores: Mapping[str, float]  # by operator with a known cost; their sum is at most the number of cores
    calls: Mapping[str, int]  # parallel calls, by operator that can have them

    @property
    def in_flight(self) -> float:
        """Elements of the output in flight at this rate: rate times latency (Little's law)."""
        return sum(self.cores.values())


def allocate(context: RuleContext, *, idle: frozenset[str] = frozenset()) -> Allocation:
    """Divides the cores so that the rate of the slowest operator is as high as possible.

    An operator that runs one call at a time uses at most one core. Storage limits the rate if its speed is known.

    Args:
        context: the measured costs.
        idle: operators upstream of a cache, which do nothing once it is filled.
    """
    costs = {
        node.id: cost
        for node in context.pipeline
        if node.id not in idle and (cost := seconds_per_output(context, node.id))
    }
    bounds = [context.cores / sum(costs.values())] if costs else []
    bounds += [1 / cost for name, cost in costs.items() if not accepts_parallel_calls(context.pipeline[name])]
    if not idle:
        bounds += _storage_bound(context)
    rate = min(bounds, default=0.0)
    cores = {name: rate * cost for name, cost in costs.items()}
    calls = {
        node.id: max(FEWEST_CALLS, _round_up(cores.get(node.id, 0.0)))
        for node in context.pipeline
        if accepts_parallel_calls(node)
    }
    return Allocation(rate, cores, calls)


def cache_place(context: RuleContext) -> Node | None:
    """Returns the last operator after which a cache fits in memory, saves work and leaves every epoch the same."""
    place = None
    available = CACHEABLE_SHARE * context.memory_limit_bytes
    for node in context.pipeline:
        size = cached_bytes(context, node.id)
        if size is None or size > available or not _saves_work(context, node):
            continue
        if constancy_after(context, node.id).constancy is Constancy.SAME:
            place = node
    return place


def cached_bytes(context: RuleContext, node_id: str) -> float | None:
    """Returns the size of an epoch after an operator in bytes; None if it is unknown or infinite."""
    elements, size = element_count(context, node_id), bytes_per_element(context, node_id)
    return None if elements is None or elements == INFINITE or size is None else elements * size


def plumber_edits(context: RuleContext, *, cached: bool = True) -> tuple[Edit, ...]:
    """Returns the edits for parallel calls and prefetch, and unless `cached` is false for a cache."""
    place = cache_place(context) if cached else None
    idle: frozenset[str] = frozenset()
    if place is not None:
        idle = frozenset((place.id, *(node.id for node in context.pipeline.upstream(place.id))))
    allocation = allocate(context, idle=idle)
    ahead = max(FEWEST_AHEAD, _round_up(allocation.in_flight))
    edits = parallelism_edits(context, lambda node: allocation.calls[node.id], prefetch=ahead)
    if place is None:
        return edits
    # The last edit, so that the cache precedes a prefetch after the same operator.
    return (*edits, Insert(place.id, "cache", f"cache@{place.id}", {"filename": ""}))


def _round_up(number: float) -> int:
    """Rounds up, but ignores rounding errors."""
    return math.ceil(number - 1e-9)


def _saves_work(context: RuleContext, node: Node) -> bool:
    """Whether a cache after this operator saves computing or reading, and the script has no cache of its own."""
    saved = (*context.pipeline.upstream(node.id), node)
    if any(other.op in ("cache", "snapshot") for other in (*saved, *context.pipeline.downstream(node.id))):
        return False
    return any(operator_facts(other.op).takes_function or operator_facts(other.op).reads_files for other in saved)


def _storage_bound(context: RuleContext) -> list[float]:
    """Returns the elements per second that storage can deliver; empty if unknown."""
    files = context.profile.files if context.profile is not None else None
    if files is None or not files.storage_bytes_per_second or not files.bytes_per_element:
        return []
    return [files.storage_bytes_per_second / files.bytes_per_element]
