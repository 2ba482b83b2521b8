"""What Plumber would do with a pipeline, re-implemented from its paper.

Kuchnik et al., MLSys 2022, section 4, and `plumber_analysis`: the rate per core of every operator, cores divided so
that the slowest rate is highest, a prefetch at the end for what must be in flight, a cache as near the end as memory
allows. Two faults that later work found are put right: the bandwidth of storage stays in the sum, and a parallel
operator never gets fewer than two calls. Its cache stands only where every epoch is the same, order included (of a
shuffle its own code leaves that open): otherwise it would be measured on other data.
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
"""Of the memory a cache may take (`FRACTION_CACHEABLE_MEMORY`)."""


@dataclass(frozen=True)
class Allocation:
    """Cores by operator; the rate is in elements of the output per second."""

    rate: float
    cores: Mapping[str, float]  # of every operator with a cost; they add up to at most all of them
    calls: Mapping[str, int]  # of those that take parallel calls

    @property
    def in_flight(self) -> float:
        """Elements of the output under way at this rate: rate times latency (Little's law)."""
        return sum(self.cores.values())


def allocate(context: RuleContext, *, resting: frozenset[str] = frozenset()) -> Allocation:
    """Maximises the rate of the slowest operator over the cores: every operator gets just what the rate needs.

    An operator that runs one call at a time takes one core at most. Storage bounds the rate where its speed is known.

    Args:
        resting: operators above a cache, which do nothing once it is filled.
    """
    costs = {
        node.id: cost
        for node in context.pipeline
        if node.id not in resting and (cost := seconds_per_output(context, node.id))
    }
    bounds = [context.cores / sum(costs.values())] if costs else []
    bounds += [1 / cost for name, cost in costs.items() if not accepts_parallel_calls(context.pipeline[name])]
    if not resting:
        bounds += _storage(context)
    rate = min(bounds, default=0.0)
    cores = {name: rate * cost for name, cost in costs.items()}
    calls = {
        node.id: max(FEWEST_CALLS, _whole(cores.get(node.id, 0.0)))
        for node in context.pipeline
        if accepts_parallel_calls(node)
    }
    return Allocation(rate, cores, calls)


def cache_place(context: RuleContext) -> Node | None:
    """The operator nearest the end behind which all elements of an epoch are the same and fit."""
    found = None
    room = CACHEABLE_SHARE * context.memory_limit_bytes
    for node in context.pipeline:
        size = cached_bytes(context, node.id)
        if size is None or size > room or not _saves_work(context, node):
            continue
        if constancy_after(context, node.id).constancy is Constancy.SAME:
            found = node
    return found


def cached_bytes(context: RuleContext, node_id: str) -> float | None:
    """Bytes of all elements of an epoch behind an operator; None where that is not known, or has no end."""
    elements, size = element_count(context, node_id), bytes_per_element(context, node_id)
    return None if elements is None or elements == INFINITE or size is None else elements * size


def plumber_edits(context: RuleContext, *, cached: bool = True) -> tuple[Edit, ...]:
    """Calls, prefetch, and with `cached` the cache."""
    place = cache_place(context) if cached else None
    resting: frozenset[str] = frozenset()
    if place is not None:
        resting = frozenset((place.id, *(node.id for node in context.pipeline.upstream(place.id))))
    allocation = allocate(context, resting=resting)
    ahead = max(FEWEST_AHEAD, _whole(allocation.in_flight))
    edits = parallelism_edits(context, lambda node: allocation.calls[node.id], prefetch=ahead)
    if place is None:
        return edits
    # Last, so that it stands above a prefetch put behind the same operator.
    return (*edits, Insert(place.id, "cache", f"cache@{place.id}", {"filename": ""}))


def _whole(number: float) -> int:
    """The next whole number; a rounding error above one is none."""
    return math.ceil(number - 1e-9)


def _saves_work(context: RuleContext, node: Node) -> bool:
    """Whether something above a cache here computes or reads, and the script has none of its own below or above."""
    around = (*context.pipeline.upstream(node.id), node, *context.pipeline.downstream(node.id))
    if any(other.op in ("cache", "snapshot") for other in around):
        return False
    works = (*context.pipeline.upstream(node.id), node)
    return any(operator_facts(work.op).takes_function or operator_facts(work.op).reads_files for work in works)


def _storage(context: RuleContext) -> list[float]:
    files = context.profile.files if context.profile is not None else None
    if files is None or not files.storage_bytes_per_second or not files.bytes_per_element:
        return []
    return [files.storage_bytes_per_second / files.bytes_per_element]
