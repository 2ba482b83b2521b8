"""The plan of each rival on a pipeline, and whether its caches count.

Plans are replayed by the runner that also replays pipetune's. The expert's pipeline is a different dataset, written by
hand in the `expert.py` next to a `train.py`. A cache counts if it would still fit in memory at the published size of
the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.rivals.plumber import cached_bytes, plumber_edits
from benchmarks.rivals.results import EXPERT, MAX_CACHED_BYTES, PIPETUNE, CacheUse
from benchmarks.rivals.workloads import Workload
from pipetune.core.edits import Edit, Insert, Plan, Remove, Rewrite, Safety, SetArgument, SetOption, inserted_caches
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline, Value
from pipetune.rewrites.baselines import baseline_plan
from pipetune.rewrites.rule import RuleContext

UNCACHED = " without its cache"
"""Suffix of a contender's name: the plan of the rival without its cache."""


@dataclass(frozen=True)
class Contenders:
    """Plans by contender: one for each rival, and a second one for each rival whose cache counts."""

    plans: Mapping[str, Plan]
    caches: Mapping[str, CacheUse] = field(default_factory=dict)  # by rival

    def without_cache(self, rival: str) -> str:
        """Returns the contender that represents a rival in the comparison without caches."""
        return rival + UNCACHED if rival + UNCACHED in self.plans else rival


def choose_contenders(
    context: RuleContext,
    baselines: Mapping[str, Plan],
    pipetune_plan: Plan,
    *,
    workload: Workload,
    uncached_plan: Plan | None = None,
) -> Contenders:
    """Returns all contenders except the expert, in the order of benchmarks.json with pipetune last.

    Args:
        context: the measured facts about the pipeline.
        baselines: the plans "off", "defaults" and "autotune".
        pipetune_plan: the plan of `pipetune analyze`; has no edits if it did not find one.
        workload: has the published size of the data.
        uncached_plan: the plan of `pipetune analyze` without caches; None: `pipetune_plan` with its caches removed.
    """
    pipeline = context.pipeline
    rivals = {
        **baselines,
        "stage_based": stage_based_plan(baselines["autotune"], pipeline),
        "plumber": _plan("plumber", pipeline, plumber_edits(context)),
        PIPETUNE: Plan(PIPETUNE, pipetune_plan.rewrites),
    }
    plans: dict[str, Plan] = {}
    caches: dict[str, CacheUse] = {}
    for name, plan in rivals.items():
        use = cache_use(plan, context, workload)
        if use is None:
            plans[name] = plan
            continue
        caches[name] = use
        uncached = _uncached_plan(plan, context, uncached_plan)
        plans |= {name: plan, name + UNCACHED: uncached} if use.counts else {name: uncached}
    return Contenders(plans, caches)


def _uncached_plan(plan: Plan, context: RuleContext, uncached_plan: Plan | None) -> Plan:
    """Returns the plan of a rival without caches: chosen again for that case, if that is possible."""
    if plan.name != PIPETUNE:
        return _plan(plan.name, context.pipeline, plumber_edits(context, cached=False))
    return remove_inserted_caches(plan) if uncached_plan is None else Plan(PIPETUNE, uncached_plan.rewrites)


def stage_based_plan(autotune: Plan, pipeline: Pipeline) -> Plan:
    """Returns the plan with AUTOTUNE everywhere, whose values are chosen by TensorFlow's stage-based algorithm."""
    edits = (*autotune.edits, SetOption("autotune.autotune_algorithm", "STAGE_BASED"))
    return _plan("stage_based", pipeline, edits)


def describe_plan(plan: Plan, pipeline: Pipeline) -> str:
    """Returns what a plan sets ("map num_parallel_calls=2, prefetch(buffer_size=4)"); of pipetune's, the rules."""
    if plan.name == PIPETUNE:
        return ", ".join(dict.fromkeys(rewrite.rule for rewrite in plan.rewrites))
    if plan.name == EXPERT:
        return "expert.py without its cache" if plan.edits else "expert.py"
    return ", ".join(filter(None, (_describe_edit(edit, pipeline) for edit in plan.edits)))


def _plan(name: str, pipeline: Pipeline, edits: tuple[Edit, ...]) -> Plan:
    return baseline_plan(name, pipeline, edits, f"What {name} sets.")


def _describe_edit(edit: Edit, pipeline: Pipeline) -> str:
    match edit:
        case SetArgument(node=node, name=name, value=value):
            title = pipeline[node].title if node in pipeline else node
            return f"{title} {name}={_format_value(value)}"
        case Insert(op=op, arguments=arguments):
            given = ", ".join(f"{name}={_format_value(value)}" for name, value in arguments.items() if value != "")
            return f"{op}({given})"
        case SetOption(name=name, value=value):
            return f"options.{name}={_format_value(value)}"
        case Remove(node=node):
            return f"without {node.partition('@')[0]}"
    return type(edit).__name__


def _format_value(value: Value) -> str:
    return "AUTOTUNE" if value == AUTOTUNE and value is not True else str(value)


# -- the expert


def add_expert(
    contenders: Contenders, expert: Pipeline, *, workload: Workload, source_bytes: float | None
) -> Contenders:
    """Returns the contenders with the expert before pipetune, also without its cache if it has one that counts.

    Args:
        contenders: all others.
        expert: the expert's pipeline. The expert's plans apply to it, and change nothing but the cache.
        workload: has the published size of the data.
        source_bytes: bytes that the pipeline reads; None if unknown.
    """
    plans, caches = {EXPERT: Plan(EXPERT)}, dict(contenders.caches)
    if removals := tuple(Remove(node.id) for node in _cache_nodes(expert)):
        uncached = Plan(EXPERT, (_cache_removal(removals),))
        use = caches[EXPERT] = _expert_cache_use(expert, workload, source_bytes)
        plans = {EXPERT: plans[EXPERT], EXPERT + UNCACHED: uncached} if use.counts else {EXPERT: uncached}
    pipetune = {name: plan for name, plan in contenders.plans.items() if name.startswith(PIPETUNE)}
    others = {name: plan for name, plan in contenders.plans.items() if name not in pipetune}
    return Contenders({**others, **plans, **pipetune}, caches)


def _cache_nodes(pipeline: Pipeline) -> list[Node]:
    return [node for node in pipeline if node.op == "cache"]


def _expert_cache_use(expert: Pipeline, workload: Workload, source_bytes: float | None) -> CacheUse:
    sizes = [
        node.element_bytes * node.cardinality if node.element_bytes is not None and node.cardinality >= 0 else None
        for node in _cache_nodes(expert)
    ]
    return _cache_use(_total(sizes), source_bytes, workload)


# -- caches: how much they hold, and whether they count


def remove_inserted_caches(plan: Plan) -> Plan:
    """Returns the plan without the caches that it inserts, but with all of its other edits."""
    removals = tuple(Remove(cache.id) for cache in inserted_caches(plan.edits))
    if not removals:
        return plan
    return Plan(plan.name, (*plan.rewrites, _cache_removal(removals)))


def _cache_removal(removals: tuple[Remove, ...]) -> Rewrite:
    return Rewrite("no-cache", removals[0].node, Safety.EXACT, removals, "Leave the cache out.")


def cache_use(plan: Plan, context: RuleContext, workload: Workload) -> CacheUse | None:
    """Returns how much the caches of a plan hold, here and at the published size; None if it inserts none."""
    if not inserted_caches(plan.edits):
        return None
    return _cache_use(_inserted_bytes(plan, context), source_bytes(context), workload)


def _cache_use(held: float | None, source: float | None, workload: Workload) -> CacheUse:
    """Returns how much caches hold, and whether they would fit at the published size.

    The size there is assumed to be the published bytes times the ratio of `held` to `source`. A workload without a
    published size represents only itself.

    Args:
        held: bytes in the caches; None if unknown.
        source: bytes that the pipeline reads; None if unknown.
        workload: has the published size.
    """
    ratio = held / source if held is not None and source else None
    published = workload.published_bytes
    if published is None:
        estimate = held
        data = "here"
    else:
        estimate = None if ratio is None else published * ratio
        data = f"of the published {_format_bytes(published)}"
    if estimate is None:
        return CacheUse(held or 0.0, ratio, published, False, "It is not known what it would hold.")
    counts = estimate <= MAX_CACHED_BYTES
    verb = "fits" if counts else "does not fit"
    why = f"It would hold {_format_bytes(estimate)} {data}: that {verb} in {_format_bytes(MAX_CACHED_BYTES)}."
    return CacheUse(held or 0.0, ratio, published, counts, why)


def _format_bytes(size: float) -> str:
    """Returns a number of bytes in decimal units, like published sizes: "148 GB"."""
    unit, scale = next(((name, one) for name, one in (("GB", 1e9), ("MB", 1e6)) if size >= one), ("kB", 1e3))
    return f"{size / scale:,.3g} {unit}"


def source_bytes(context: RuleContext) -> float | None:
    """Returns the bytes that the pipeline reads: the size of its files, or else of its sources; None if unknown."""
    files = context.profile.files if context.profile is not None else None
    if files is not None and files.bytes_total:
        return float(files.bytes_total)
    sizes = [cached_bytes(context, node.id) for node in context.pipeline if operator_facts(node.op).source]
    return _total(sizes) if sizes else None


def _inserted_bytes(plan: Plan, context: RuleContext) -> float | None:
    """Returns the bytes in a plan's caches: as predicted by their rules, or else by the operators before them."""
    predicted = sum(rewrite.predicted_bytes for rewrite in plan.rewrites if inserted_caches(rewrite.edits))
    if predicted:
        return predicted
    sizes = [
        cached_bytes(context, cache.after) if cache.after in context.pipeline else None
        for cache in inserted_caches(plan.edits)
    ]
    return _total(sizes)


def _total(sizes: Iterable[float | None]) -> float | None:
    """Returns the sum; None if one of the sizes is unknown."""
    known = list(sizes)
    return None if None in known else float(sum(size for size in known if size is not None))
