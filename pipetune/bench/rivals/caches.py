"""What a plan's cache holds, and whether it counts: at the published size of the data it must still fit."""

from __future__ import annotations

from pipetune.bench.rivals.plumber import cached_bytes
from pipetune.core.benchmarks import MAX_CACHED_BYTES, CacheUse, Workload
from pipetune.core.edits import Insert, Plan, Remove, Rewrite, Safety
from pipetune.core.operators import operator_facts
from pipetune.rewrites.rule import RuleContext

_HOLDING = frozenset({"cache", "snapshot"})


def added_caches(plan: Plan) -> tuple[Insert, ...]:
    """The operators a plan adds that keep elements of a whole epoch."""
    return tuple(edit for edit in plan.edits if isinstance(edit, Insert) and edit.op in _HOLDING)


def without_caches(plan: Plan) -> Plan:
    """The plan with every other edit of it, its caches taken out again; itself where it adds none."""
    removals = tuple(Remove(cache.id) for cache in added_caches(plan))
    if not removals:
        return plan
    rewrite = Rewrite("no-cache", removals[0].node, Safety.EXACT, removals, "Leave the cache out.")
    return Plan(plan.name, (*plan.rewrites, rewrite))


def cache_use(plan: Plan, context: RuleContext, workload: Workload) -> CacheUse | None:
    """What the caches of a plan hold, here and at the published size; None where it adds none."""
    if not added_caches(plan):
        return None
    return use_of(_held_bytes(plan, context), source_bytes(context), workload)


def use_of(held: float | None, source: float | None, workload: Workload) -> CacheUse:
    """What caches that hold so many bytes would hold at the published size.

    The published bytes times the ratio of what is held to the bytes of the source must fit into `MAX_CACHED_BYTES`. A
    workload that stands for nothing published is taken as it is.

    Args:
        held: bytes in the caches; None if unknown.
        source: bytes that the pipeline reads; None if unknown.
        workload: has the published size.
    """
    ratio = held / source if held is not None and source else None
    published = workload.published_bytes
    if published is None:
        would = held
        of = "here"
    else:
        would = None if ratio is None else published * ratio
        of = f"of the published {_decimal(published)}"
    if would is None:
        return CacheUse(held or 0.0, ratio, published, False, "It is not known what it would hold.")
    counts = would <= MAX_CACHED_BYTES
    verb = "fits" if counts else "does not fit"
    why = f"It would hold {_decimal(would)} {of}: that {verb} in {_decimal(MAX_CACHED_BYTES)}."
    return CacheUse(held or 0.0, ratio, published, counts, why)


def _decimal(size: float) -> str:
    """A number of bytes as published sizes are given: "148 GB"."""
    unit, scale = next(((name, one) for name, one in (("GB", 1e9), ("MB", 1e6)) if size >= one), ("kB", 1e3))
    return f"{size / scale:,.3g} {unit}"


def source_bytes(context: RuleContext) -> float | None:
    """Bytes of the data that the pipeline reads: of its files, else of what its sources hold; None if not known."""
    files = context.profile.files if context.profile is not None else None
    if files is not None and files.bytes_total:
        return float(files.bytes_total)
    sizes = [cached_bytes(context, node.id) for node in context.pipeline if operator_facts(node.op).source]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _held_bytes(plan: Plan, context: RuleContext) -> float | None:
    """Bytes in the plan's caches: by the rule that proposed them, else by the operator they stand behind."""
    predicted = sum(rewrite.predicted_bytes for rewrite in plan.rewrites if added_caches(Plan("", (rewrite,))))
    if predicted:
        return predicted
    sizes = [
        cached_bytes(context, cache.after) if cache.after in context.pipeline else None for cache in added_caches(plan)
    ]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
