"""Probes whether functions could compute only the arrays that they select."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import Branching
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import functions, live
from pipetune.pipelines.array_selections import CannotBranch, select_by_branch
from pipetune.pipelines.errors import unknown_on_error


class ShapesLost(Exception):
    """An edited function returns elements of other static shapes; the message is the last clause of a sentence."""


def edited_digest(source: live.LivePipeline, node: Node, edited: Any) -> str:
    """Returns the digest of a traced function whose graph was edited, once a map has accepted it.

    Args:
        source: the live pipeline.
        node: the map that calls the function.
        edited: the edited function.

    Raises:
        ShapesLost: the map would have another element spec.
    """
    with tensorflow_private.reusing_traced_functions():
        mapped = source.datasets[node.inputs[0]].map(edited)
    if mapped.element_spec != source.datasets[node.id].element_spec:
        raise ShapesLost("its static shapes would be lost")
    return functions.read_facts(mapped._map_func).digest


def annotate_branches(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions that select large arrays annotated with whether they could use branches.

    Args:
        pipeline: that of `source`, with or without other annotations.
    """
    facts = {
        node.id: replace(node.function, branching=probe_branches(source, node))
        for node in pipeline
        if node.op == "map" and node.inputs and node.function is not None and node.function.selections
    }
    return pipeline.with_functions(facts)


@unknown_on_error(Branching)
def probe_branches(source: live.LivePipeline, node: Node) -> Branching:
    """Returns whether the function of `node` could compute only the arrays that it selects, or why not."""
    try:
        return Branching(digest=edited_digest(source, node, select_by_branch(source.datasets[node.id]._map_func)))
    except (CannotBranch, ShapesLost) as reason:
        return Branching(why_not=str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return Branching(why_not=f"its graph cannot be changed ({type(error).__name__})")
