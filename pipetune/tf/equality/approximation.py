"""Functions that a plan has compute other numbers on purpose: how far apart these are is checked by itself."""

from __future__ import annotations

from pipetune.core.comparison import Check
from pipetune.core.editing import apply_edits
from pipetune.core.edits import ReplaceFunction
from pipetune.core.functions import SCALES
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf.pipelines import live, shrinking

REPLAYS = True  # datasets made below this module are pipetune's, not the user's


NOTE = "Both pipelines were compared with the functions that compute other numbers on purpose: all else is the same."


def applied(written: Pipeline, edited: Pipeline) -> Pipeline:
    """The pipeline as written, with those functions of it in the form that `edited` calls them in."""
    edits = []
    for node in _approximating(edited):
        assert node.function is not None
        edits.append(ReplaceFunction(node.id, node.function.form, node.function.digest, apart=node.function.apart))
    return apply_edits(written, edits)


def checks(source: live.LivePipeline, edited: Pipeline) -> list[Check]:
    """For each such function, whether it is the one the plan names, and no further apart than the plan says."""
    found = []
    for node in _approximating(edited):
        assert node.function is not None
        now = shrinking.ask(source, source.pipeline[node.id])
        same = (now.form, now.digest) == (node.function.form, node.function.digest)
        why = now.why_not or ("" if same else "another function than the plan names")
        apart = f"up to {now.most_apart:.1%} of the greatest value, {now.mean_apart:.2%} on average"
        within = now.most_apart <= node.function.apart
        found.append(Check("approximation", not why and within, why or f"{node.title} gives numbers apart by {apart}"))
    return found


def _approximating(pipeline: Pipeline) -> list[Node]:
    return [node for node in pipeline if node.function is not None and node.function.form in SCALES]
