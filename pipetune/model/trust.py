"""Cases in which the cost model makes no prediction: Python code, remote storage, unknown operators."""

from __future__ import annotations

from pipetune.core.functions import FunctionForm
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import OperatorProfile, Profile
from pipetune.model.stages import behind_cache, priced_at, share_kept


def why_not(pipeline: Pipeline, profile: Profile) -> str:
    """Why the rate of this pipeline cannot be predicted, as the end of a sentence; empty if it can.

    Operators upstream of a cache do not count: they do not run in the epochs after the first.
    """
    still = behind_cache(pipeline) | pipeline.numbered
    for node in pipeline:
        if node.id not in still and (
            reason := _reason(node, priced_at(node, pipeline, profile)) or _far_away(node, profile)
        ):
            return reason
    return ""


def _far_away(node: Node, profile: Profile) -> str:
    schemes = profile.files.remote if profile.files is not None else ()
    if not schemes or node.inputs:
        return ""
    return f"files come from remote storage ({schemes[0]}://), whose speed changes from one moment to the next"


def _reason(node: Node, measured: OperatorProfile | None) -> str:
    if node.op == "opaque":
        return f"{node.title} is not an operator pipetune knows"
    if node.op == "from_generator" or (node.function is not None and node.function.python):
        return f"{node.title} runs Python code, which takes turns with the training loop"
    if node.function is not None and node.function.called_on_batches:
        known = measured is not None and measured.on_batch_seconds is not None
        return "" if known else f"the cost of {node.title} on batches was not measured"
    if node.function is not None and node.function.form is FunctionForm.DECODE_AND_CROP:
        known = share_kept(node, measured) is not None and measured is not None and measured.cpu_seconds is not None
        return "" if known else f"the cost of {node.title} {node.function.form} was not measured"
    if node.function is not None and (measured is None or measured.cpu_seconds is None):
        return f"the cost of {node.title} was not measured"
    return ""
