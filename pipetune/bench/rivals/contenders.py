"""What each rival makes of a pipeline: plans, replayed by the same runner as pipetune's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipetune.bench.rivals.caches import cache_use, without_caches
from pipetune.bench.rivals.plumber import plumber_edits
from pipetune.core.benchmarks import EXPERT, PIPETUNE, CacheUse, Workload
from pipetune.core.edits import Edit, Insert, Plan, Remove, SetArgument, SetOption
from pipetune.core.pipeline import AUTOTUNE, Pipeline, Value
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
