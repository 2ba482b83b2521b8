"""Annotates a pipeline with what its functions do in other variants and positions, for the rules that need to know."""

from __future__ import annotations

from pipetune.core.pipeline import Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.map_functions import annotate_fusions
from pipetune.probes.batches import annotate_batches, annotate_predicates
from pipetune.probes.decoding import annotate_crops, annotate_scales
from pipetune.probes.edited_graphs import annotate_branches, annotate_python
from pipetune.probes.padding import annotate_padding
from pipetune.probes.splits import annotate_gathers, annotate_splits

_ANNOTATIONS = (  # whether a function can be split depends on what it does on batches
    annotate_batches,
    annotate_predicates,
    annotate_branches,
    annotate_crops,
    annotate_fusions,  # never of a function whose graph could be edited
    annotate_scales,
    annotate_padding,
    annotate_python,
    annotate_splits,
    annotate_gathers,
)


def annotate(source: live.LivePipeline) -> Pipeline:
    """Returns the pipeline of `source`, its functions annotated by tracing each of them again where needed."""
    annotated = source.pipeline
    for add in _ANNOTATIONS:
        annotated = add(source, annotated)
    return annotated
