"""What each rival makes of a pipeline, and whether its cache counts.

Plans are replayed by the same runner as pipetune's own. The expert's pipeline is a dataset of its own, written by hand
in the `expert.py` beside a `train.py`. A cache counts where what it holds would still fit at the published size of the
data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipetune.bench.rivals.plumber import cached_bytes, plumber_edits
from pipetune.core.benchmarks import EXPERT, MAX_CACHED_BYTES, PIPETUNE, CacheUse, Workload
from pipetune.core.edits import Edit, Insert, Plan, Remove, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline, Value
from pipetune.rewrites.baselines import baseline_plan
from pipetune.rewrites.rule import RuleContext

UNCACHED = " without its cache"
"""Behind the name of a contender: the same plan, its cache taken out."""


@dataclass(frozen=True)
class Contenders:
    """Plans by contender: one for each rival, and one more for each whose cache counts."""

    plans: Mapping[str, Plan]
    caches: Mapping[str, CacheUse] = field(default_factory=dict)  # by rival

    def without_cache(self, rival: str) -> str:
        """The contender that stands for a rival where no caches are compared."""
        return rival + UNCACHED if rival + UNCACHED in self.plans else rival


def contenders(
    context: RuleContext,
    baselines: Mapping[str, Plan],
    ours: Plan,
    *,
    workload: Workload,
    bare: Plan | None = None,
) -> Contenders:
    """All of them, the rivals in the order of benchmarks.json, pipetune last.

    Args:
        baselines: "off", "defaults" and "autotune".
        ours: the plan of `pipetune analyze`, without edits where it found none.
        bare: what it finds where it leaves caches out; None: `ours` with its caches taken out.
    """
    pipeline = context.pipeline
    rivals = {
        **baselines,
        "stage_based": stage_based_plan(baselines["autotune"], pipeline),
        "plumber": _plan("plumber", pipeline, plumber_edits(context)),
        PIPETUNE: Plan(PIPETUNE, ours.rewrites),
    }
    plans: dict[str, Plan] = {}
    caches: dict[str, CacheUse] = {}
    for name, plan in rivals.items():
        use = cache_use(plan, context, workload)
        if use is None:
            plans[name] = plan
            continue
        caches[name] = use
        without = _uncached(plan, context, bare)
        plans |= {name: plan, name + UNCACHED: without} if use.counts else {name: without}
    return Contenders(plans, caches)


def _uncached(plan: Plan, context: RuleContext, bare: Plan | None) -> Plan:
    """What takes the place of a plan with a cache where it must not have one: chosen anew, as far as that is known."""
    if plan.name != PIPETUNE:
        return _plan(plan.name, context.pipeline, plumber_edits(context, cached=False))
    return without_caches(plan) if bare is None else Plan(PIPETUNE, bare.rewrites)


def stage_based_plan(autotune: Plan, pipeline: Pipeline) -> Plan:
    """AUTOTUNE everywhere, its numbers found by the stage-based algorithm."""
    edits = (*autotune.edits, SetOption("autotune.autotune_algorithm", "STAGE_BASED"))
    return _plan("stage_based", pipeline, edits)


def words_of(plan: Plan, pipeline: Pipeline) -> str:
    """What a plan sets, short: "map num_parallel_calls=2, prefetch(buffer_size=4)"; the rules where it has any."""
    if plan.name == PIPETUNE:
        return ", ".join(dict.fromkeys(rewrite.rule for rewrite in plan.rewrites))
    if plan.name == EXPERT:
        return "expert.py without its cache" if plan.edits else "expert.py"
    return ", ".join(filter(None, (_words(edit, pipeline) for edit in plan.edits)))


def _plan(name: str, pipeline: Pipeline, edits: tuple[Edit, ...]) -> Plan:
    return baseline_plan(name, pipeline, edits, f"What {name} sets.")


def _words(edit: Edit, pipeline: Pipeline) -> str:
    match edit:
        case SetArgument(node=node, name=name, value=value):
            title = pipeline[node].title if node in pipeline else node
            return f"{title} {name}={_value(value)}"
        case Insert(op=op, arguments=arguments):
            given = ", ".join(f"{name}={_value(value)}" for name, value in arguments.items() if value != "")
            return f"{op}({given})"
        case SetOption(name=name, value=value):
            return f"options.{name}={_value(value)}"
        case Remove(node=node):
            return f"without {node.partition('@')[0]}"
    return type(edit).__name__


def _value(value: Value) -> str:
    return "AUTOTUNE" if value == AUTOTUNE and value is not True else str(value)


# -- the expert


def _caches_of(pipeline: Pipeline) -> list[Node]:
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
    if removals := tuple(Remove(node.id) for node in _caches_of(expert)):
        bare = Plan(EXPERT, (_no_cache(removals),))
        use = caches[EXPERT] = _cache_use(expert, workload, source_bytes)
        plans = {EXPERT: plans[EXPERT], EXPERT + UNCACHED: bare} if use.counts else {EXPERT: bare}
    ours = {name: plan for name, plan in found.plans.items() if name.startswith(PIPETUNE)}
    others = {name: plan for name, plan in found.plans.items() if name not in ours}
    return Contenders({**others, **plans, **ours}, caches)


def _cache_use(expert: Pipeline, workload: Workload, source_bytes: float | None) -> CacheUse:
    sizes = [
        node.element_bytes * node.cardinality if node.element_bytes is not None and node.cardinality >= 0 else None
        for node in _caches_of(expert)
    ]
    return _use_of(_total(sizes), source_bytes, workload)


# -- caches: what they hold, and whether they count

_HOLDING = frozenset({"cache", "snapshot"})


def added_caches(plan: Plan) -> tuple[Insert, ...]:
    """The operators a plan adds that keep elements of a whole epoch."""
    return tuple(edit for edit in plan.edits if isinstance(edit, Insert) and edit.op in _HOLDING)


def without_caches(plan: Plan) -> Plan:
    """The plan with every other edit of it, its caches taken out again; itself where it adds none."""
    removals = tuple(Remove(cache.id) for cache in added_caches(plan))
    if not removals:
        return plan
    return Plan(plan.name, (*plan.rewrites, _no_cache(removals)))


def _no_cache(removals: tuple[Remove, ...]) -> Rewrite:
    return Rewrite("no-cache", removals[0].node, Safety.EXACT, removals, "Leave the cache out.")


def cache_use(plan: Plan, context: RuleContext, workload: Workload) -> CacheUse | None:
    """What the caches of a plan hold, here and at the published size; None where it adds none."""
    if not added_caches(plan):
        return None
    return _use_of(_held_bytes(plan, context), source_bytes(context), workload)


def _use_of(held: float | None, source: float | None, workload: Workload) -> CacheUse:
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
    return _total(sizes) if sizes else None


def _held_bytes(plan: Plan, context: RuleContext) -> float | None:
    """Bytes in the plan's caches: by the rule that proposed them, else by the operator they stand behind."""
    predicted = sum(rewrite.predicted_bytes for rewrite in plan.rewrites if added_caches(Plan("", (rewrite,))))
    if predicted:
        return predicted
    sizes = [
        cached_bytes(context, cache.after) if cache.after in context.pipeline else None for cache in added_caches(plan)
    ]
    return _total(sizes)


def _total(sizes: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known."""
    total = 0.0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
