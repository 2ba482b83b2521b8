"""The baselines that every gain is measured against. They are not rules: TensorFlow provides them without pipetune."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pipetune.core.edits import Consent, Edit, Insert, Plan, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline
from pipetune.rewrites.parallel_reads import effective_block_length, effective_cycle_length
from pipetune.rewrites.rule import (
    RuleContext,
    describe_external_dependency,
    describe_state,
    last_active_operator,
    requests_parallelism,
)
from pipetune.rewrites.threads import core_limits


def off_plan(pipeline: Pipeline) -> Plan:
    """Returns the original graph with all of TensorFlow's graph optimizations off.

    AUTOTUNE stays on: without it, the runtime keeps no performance model of the run.
    """
    edits = (
        SetOption("experimental_optimization.apply_default_optimizations", False),
        SetOption("experimental_optimization.inject_prefetch", False),
    )
    summary = "Switch off TensorFlow's own graph optimizations."
    return baseline_plan("off", pipeline, edits, summary, safety=Safety.EXACT)


def autotune_plan(context: RuleContext, *, allow: Collection[Consent] = ()) -> Plan:
    """Returns AUTOTUNE everywhere and a final prefetch, as the performance guide advises; cycle lengths are kept.

    If TensorFlow detects more cores than are available, AUTOTUNE is limited to those: the baseline at its best. What
    must be called as the script calls it stays as it is; Python code runs in parallel only if `allow` has that consent.
    """
    python = Consent.PYTHON_PARALLEL in allow

    def stays(node: Node) -> bool:
        depends = describe_state(node) if python else describe_external_dependency(node)
        return bool(depends) and not requests_parallelism(node)

    stay = frozenset(node.id for node in context.pipeline if stays(node))
    edits = (*parallelism_edits(context, lambda _: AUTOTUNE, prefetch=AUTOTUNE, stay=stay), *core_limits(context))
    return baseline_plan("autotune", context.pipeline, edits, "Set AUTOTUNE everywhere.")


def parallelism_edits(
    context: RuleContext, parallel_calls: Callable[[Node], int], *, prefetch: int, stay: Collection[str] = ()
) -> tuple[Edit, ...]:
    """Returns edits that set the parallel calls of every map and interleave, and a prefetch at the end.

    Batches are left alone: a parallel batch is not fused with the map upstream. A synchronous map accepts no parallel
    calls. The order of an interleave is kept: its effective cycle length is set explicitly, and limits the calls,
    because the runtime refuses more.

    Args:
        context: provides the pipeline and the default cycle length.
        parallel_calls: returns the parallel calls for an operator; AUTOTUNE is allowed.
        prefetch: buffer size of the prefetch, in elements; AUTOTUNE is allowed.
        stay: ids of operators that keep the parallel calls they have.
    """
    edits: list[Edit] = []
    for node in context.pipeline:
        if node.id in stay or not accepts_parallel_calls(node):
            continue
        number = parallel_calls(node)
        if node.op == "interleave":
            length = effective_cycle_length(node, context)
            edits.extend(_set(node, "cycle_length", length))
            edits.extend(_set(node, "block_length", effective_block_length(node)))
            number = min(number, length)
        edits.extend(_set(node, "num_parallel_calls", number))
    last, output = last_active_operator(context.pipeline), context.pipeline.output
    if last.op == "prefetch":
        edits.extend(_set(last, "buffer_size", prefetch))
    else:
        edits.append(Insert(output.id, "prefetch", f"prefetch@{output.id}", {"buffer_size": prefetch}))
    return tuple(edits)


def accepts_parallel_calls(node: Node) -> bool:
    """Whether a baseline can set `num_parallel_calls` of `node`."""
    return node.op in ("map", "interleave") and node.argument("synchronous") is not True


def baseline_plan(
    name: str, pipeline: Pipeline, edits: tuple[Edit, ...], summary: str, *, safety: Safety = Safety.STATISTICAL
) -> Plan:
    """Returns a plan with these edits; without edits it is the original pipeline.

    Baselines are measured, never recommended. Their class is the worst that parallel calls of a random map can have.

    Args:
        name: of the plan.
        pipeline: the original pipeline.
        edits: the edits of its only rewrite.
        summary: what the plan does, one sentence.
        safety: the class of a plan without parallel calls.
    """
    rewrite = Rewrite(f"baseline-{name}", pipeline.output.id, safety, edits, summary)
    return Plan(name, (rewrite,) if edits else ())


def _set(node: Node, name: str, value: int) -> list[Edit]:
    return [] if node.argument(name) == value else [SetArgument(node.id, name, value)]
