"""The expert's pipeline as a rival: a dataset of its own, written by hand in the `expert.py` beside a `train.py`."""

from __future__ import annotations

from pipetune.bench.rivals.caches import use_of
from pipetune.bench.rivals.contenders import UNCACHED, Contenders
from pipetune.core.benchmarks import EXPERT, PIPETUNE, CacheUse, Workload
from pipetune.core.edits import Plan, Remove, Rewrite, Safety
from pipetune.core.pipeline import Node, Pipeline
from pipetune.measure.runner import fill_caches
from pipetune.stages.study import Study


def caches_of(pipeline: Pipeline) -> list[Node]:
    """Returns the operators of a pipeline that keep elements of a whole epoch in memory."""
    return [node for node in pipeline if node.op == "cache"]


def with_expert(found: Contenders, expert: Pipeline, *, workload: Workload, source_bytes: float | None) -> Contenders:
    """Returns the contenders with the expert in front of pipetune; without its cache, too, if it has one that counts.

    Args:
        found: the other contenders.
        expert: the expert's pipeline; its plans are applied to it, and change nothing but the cache.
        workload: says how large the published data is.
        source_bytes: what the pipeline reads; None if unknown.
    """
    plans, caches = {EXPERT: Plan(EXPERT)}, dict(found.caches)
    if removals := tuple(Remove(node.id) for node in caches_of(expert)):
        rewrite = Rewrite("no-cache", removals[0].node, Safety.EXACT, removals, "Leave the cache out.")
        bare = Plan(EXPERT, (rewrite,))
        use = caches[EXPERT] = _cache_use(expert, workload, source_bytes)
        plans = {EXPERT: plans[EXPERT], EXPERT + UNCACHED: bare} if use.counts else {EXPERT: bare}
    ours = {name: plan for name, plan in found.plans.items() if name.startswith(PIPETUNE)}
    others = {name: plan for name, plan in found.plans.items() if name not in ours}
    return Contenders({**others, **plans, **ours}, caches)


def _cache_use(expert: Pipeline, workload: Workload, source_bytes: float | None) -> CacheUse:
    sizes = [
        node.element_bytes * node.cardinality if node.element_bytes is not None and node.cardinality >= 0 else None
        for node in caches_of(expert)
    ]
    known = [size for size in sizes if size is not None]
    return use_of(sum(known) if len(known) == len(sizes) else None, source_bytes, workload)


def fill_own_caches(study: Study) -> None:
    """Fills the caches that the expert's script has, as those of plans are filled before their first window.

    Raises:
        RunFailed: the dataset raised, or took too long.
    """
    source = study.subject.source
    fill_caches(source.datasets[node.id] for node in caches_of(source.pipeline))
