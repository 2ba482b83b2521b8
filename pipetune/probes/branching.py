"""Probes whether functions could compute only the arrays that they select."""

from __future__ import annotations

from pipetune.core.functions import Branching
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.array_selections import CannotBranch, select_by_branch
from pipetune.pipelines.errors import unknown_on_error
from pipetune.probes.edited_graphs import annotate_maps, probe_edit


def annotate_branches(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions that select large arrays annotated with whether they could use branches."""
    return annotate_maps(source, pipeline, "branching", probe_branches, lambda function: bool(function.selections))


@unknown_on_error(Branching)
def probe_branches(source: live.LivePipeline, node: Node) -> Branching:
    """Returns whether the function of `node` could compute only the arrays that it selects, or why not."""
    return probe_edit(source, node, select_by_branch, refusal=CannotBranch, result=Branching)
