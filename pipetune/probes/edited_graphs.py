"""Probes whether the graphs of functions could be edited, and whether a map accepts an edited function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.functions import Branching, FunctionFacts, ProbeResult, PythonArrays
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import functions, live
from pipetune.pipelines.array_selections import CannotBranch, select_by_branch
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.python_functions import EAGER_CALL, TensorsNeeded, call_with_arrays

Result = TypeVar("Result", bound=ProbeResult)


class ShapesLost(Exception):
    """An edited function returns elements of other static shapes; the message is the last clause of a sentence."""


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


def probe_edit(
    source: live.LivePipeline,
    node: Node,
    edit: Callable[[Any], Any],
    *,
    refusal: type[Exception],
    result: Callable[..., Result],
) -> Result:
    """Returns, as a `result`, whether the function of the map `node` can be edited, or why not.

    Args:
        source: the live pipeline.
        node: the map.
        edit: returns an edited copy of a traced function.
        refusal: what `edit` raises with a reason, as the last clause of a sentence.
        result: makes the answer of a `digest` or of a `why_not`.
    """
    try:
        return result(digest=edited_digest(source, node, edit(source.datasets[node.id]._map_func)))
    except (refusal, ShapesLost) as reason:
        return result(why_not=str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return result(why_not=f"its graph cannot be changed ({type(error).__name__})")


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
    """Returns `pipeline` with its functions that select large arrays annotated with whether they could use branches."""
    return annotate_maps(source, pipeline, "branching", probe_branches, lambda function: bool(function.selections))


@unknown_on_error(Branching)
def probe_branches(source: live.LivePipeline, node: Node) -> Branching:
    """Returns whether the function of `node` could compute only the arrays that it selects, or why not."""
    return probe_edit(source, node, select_by_branch, refusal=CannotBranch, result=Branching)


def annotate_python(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions that call Python annotated with whether that could get arrays."""
    return annotate_maps(source, pipeline, "arrays", probe_python, lambda one: EAGER_CALL in one.operations)


@unknown_on_error(PythonArrays)
def probe_python(source: live.LivePipeline, node: Node) -> PythonArrays:
    """Returns whether the Python code that the function of `node` calls could get arrays, or why not."""
    return probe_edit(source, node, call_with_arrays, refusal=TensorsNeeded, result=PythonArrays)
