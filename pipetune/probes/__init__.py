"""Annotates a pipeline with what its functions do in other variants and positions, for the rules that need to know it:
each module probes one kind of variant."""

from __future__ import annotations

from functools import partial

from pipetune.core.functions import GRAPH_EDITS, FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.graphs import graph_edit
from pipetune.pipelines.replay import annotate_fusions
from pipetune.probes.batches import annotate_batches, annotate_predicates
from pipetune.probes.edited_graphs import annotate_maps, annotate_scales, probe_crop, probe_edit
from pipetune.probes.function_splitting import annotate_gathers, annotate_splits
from pipetune.probes.pad_batches import annotate_padding


def annotate(source: live.LivePipeline) -> Pipeline:
    """Returns the pipeline of `source`, its functions annotated by tracing each of them again where needed."""
    annotated = source.pipeline
    for add in _ANNOTATIONS:
        annotated = add(source, annotated)
    return annotated


def annotate_graph_edits(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions annotated with whether they have each of the variants `GRAPH_EDITS`."""
    for form, edit in GRAPH_EDITS.items():
        probe = _PROBES.get(form, partial(probe_edit, form=form))
        pipeline = annotate_maps(source, pipeline, edit.probed, probe, graph_edit(form).applies)
    return pipeline


_PROBES = {FunctionVariant.DECODE_AND_CROP: probe_crop}
"""What examines more than whether a graph can be edited."""

_ANNOTATIONS = (
    annotate_batches,
    annotate_predicates,
    annotate_graph_edits,
    annotate_fusions,  # a function is called by another in the variant that its graph has
    annotate_scales,
    annotate_padding,
    annotate_splits,  # whether a function can be split depends on what it does on batches
    annotate_gathers,
)
