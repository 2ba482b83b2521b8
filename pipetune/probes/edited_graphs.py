"""Probes whether the graphs of functions could be edited, and whether a map accepts an edited function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import FunctionFacts, FunctionVariant, ProbeResult
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import functions, live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.graph_edits import CannotEdit, graph_edit


def annotate_maps(
    source: live.LivePipeline,
    pipeline: Pipeline,
    field: str,
    probe: Callable[[live.LivePipeline, Node], ProbeResult],
    applies: Callable[[FunctionFacts], bool],
) -> Pipeline:
    """Returns `pipeline` with the functions of its maps annotated with what a probe finds.

    Args:
        source: the live pipeline.
        pipeline: that of `source`, with or without other annotations.
        field: of `FunctionFacts`, which holds the result.
        probe: examines the function of a map.
        applies: whether a function is examined.
    """
    facts: dict[str, FunctionFacts] = {}
    for node in pipeline:
        if node.op == "map" and node.inputs and node.function is not None and applies(node.function):
            found: Any = {field: probe(source, node)}
            facts[node.id] = replace(node.function, **found)
    return pipeline.with_functions(facts)


@unknown_on_error(ProbeResult)
def probe_edit(source: live.LivePipeline, node: Node, form: FunctionVariant) -> ProbeResult:
    """Returns whether the function of the map `node` has a variant that the map accepts, or why not."""
    try:
        edited = graph_edit(form).edit_graph(source.datasets[node.id]._map_func)
        with tensorflow_private.reusing_traced_functions():
            mapped = source.datasets[node.inputs[0]].map(edited)
    except CannotEdit as reason:
        return ProbeResult(str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return ProbeResult(f"its graph cannot be changed ({type(error).__name__})")
    if mapped.element_spec != source.datasets[node.id].element_spec:
        return ProbeResult("its static shapes would be lost")
    return ProbeResult(digest=functions.read_facts(mapped._map_func).digest)
