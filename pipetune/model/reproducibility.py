"""Whether a pipeline yields the same elements in the same order in each run."""

from __future__ import annotations

from pipetune.core.edits import Plan
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import Reproducibility


def order_of(pipeline: Pipeline, plan: Plan) -> Reproducibility:
    """Returns whether element order and random draws repeat from run to run, before and under the plan."""
    reasons = [reason for node in pipeline if (reason := _differs_between_runs(node))]
    before = not reasons
    why = reasons[0] if reasons else ""
    changing = next((rewrite for rewrite in plan.rewrites if not rewrite.reproducible), None)
    if before and changing is not None:
        why = f"{changing.rule} changes which random draw is used for which element"
    return Reproducibility(
        reproducible_before=before,
        reproducible_after=before and changing is None,
        epochs_kept=all(rewrite.epochs_kept for rewrite in plan.rewrites),
        why=why,
    )


def _differs_between_runs(node: Node) -> str:
    """Returns why this operator may yield other elements, draws or order in another run; '' if it does not."""
    function = node.function
    if node.argument("deterministic") is False:
        return f"{node.title} may yield elements out of order (deterministic=False)"
    if node.op == "opaque":
        return f"{node.title} is not known to pipetune"
    if node.runs_python:
        return f"{node.title} runs Python code, which may return something else each time"
    if node.op in ("random", "shuffle") and node.argument("seed") is None:
        return f"{node.op} draws without a seed"
    if function is None or not (function.random or function.random_python):
        return ""
    if function.random_python:
        return f"the function of {node.title} draws from a random generator whose state outlives the pipeline"
    if not function.seeded:
        return f"the function of {node.title} draws without a seed"
    if node.argument("num_parallel_calls") not in (None, 1):
        return f"the random function of {node.title} runs in parallel"
    return ""
