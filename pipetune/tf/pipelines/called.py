"""Selects the function that a map of an edited pipeline calls: the traced original or a variant that an edit made."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pipetune.core.functions import FunctionFacts, FunctionForm
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import cropped, cutting, forms, fusion, gathering, live


def function_of(node: Node, source: live.LivePipeline, pipeline: Pipeline, above: Any) -> Any:
    """Returns the function that the map `node` calls on the elements of the rebuilt upstream dataset `above`.

    Args:
        source: the live pipeline the edits were made on.
        pipeline: the edited pipeline that contains `node`.

    Raises:
        CannotReplay: the live pipeline does not hold what the function is made of.
    """
    function = node.function
    if node.gathers:
        windows = node.gathering.windows if node.gathering is not None else None
        return gathering.gather_from(source.datasets[pipeline.source_of(node.id).id], windows)
    if function is not None and function.part_of:
        return _part(function, source.datasets[function.part_of], above)
    if function is not None and function.first:
        return fusion.fused(source, (*function.first, node.id))
    return _in_form(function, source.datasets[node.id], above)


def made_anew(node: Node) -> bool:
    """Whether a map's function is built from others or from part of one, so that an edit determines its input."""
    function = node.function
    return node.gathers or (function is not None and bool(function.part_of or function.first))


def predicate_of(node: Node, original: Any) -> Any:
    """Returns the predicate of the filter `node`, where `original` is the user's filter dataset.

    An edit that moved the filter needs the Python function, which is traced again on the new input.
    """
    again = node.function is not None and node.function.form is FunctionForm.ON_INPUT
    return private.python_function(original._predicate) if again else original._predicate


def _in_form(function: FunctionFacts | None, original: Any, above: Any) -> Any:
    """Returns the function of the map `original` in the variant that an edit chose."""
    form = function.form if function is not None else FunctionForm.AS_TRACED
    traced = original._map_func
    if function is not None and function.called_on_batches:
        return forms.in_form(private.python_function(traced), form, above.element_spec)
    return cropped.decoding_window(traced) if form is FunctionForm.DECODE_AND_CROP else traced


def _part(function: FunctionFacts, original: Any, above: Any) -> Any:
    """Returns the part of the function of the map `original` that `function` describes."""
    assert function.cut is not None
    whole = cutting.Cuttable(original._map_func)
    if function.form is FunctionForm.HEAD:
        return whole.head(function.cut.position)
    if function.form is FunctionForm.TAIL:
        return whole.tail(function.cut.position)
    if function.form is FunctionForm.VECTORIZED:
        return forms.in_form(whole.called_tail(function.cut.position), function.form, above.element_spec)
    rows = tf.nest.flatten(above.element_spec)[0].shape[0]
    if function.form is FunctionForm.ON_BATCHES:
        return whole.head_on_batches(function.cut.position, rows)[0]
    return whole.tail_on_batches(function.cut.position, rows)[0]
