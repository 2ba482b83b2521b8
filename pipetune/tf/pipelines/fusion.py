"""Probes whether one function that calls the functions of consecutive maps in turn is equal to those maps.

The user's Python functions are traced again, as TensorFlow would if the script called one in the other. The result is
equal if it computes from its element what the maps compute, op by op.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from pipetune.core.functions import Fused
from pipetune.core.map_runs import map_runs
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import forms, functions, live
from pipetune.tf.pipelines.guards import unknown_on_error
from pipetune.tf.pipelines.lifting import computes
from pipetune.tf.pipelines.terms import Term, Unclear

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with the most downstream map of every run annotated with what the fused function would be."""
    told = {
        lowest.id: replace(lowest.function, fused=_ask(source, run))
        for run in map_runs(pipeline)
        if (lowest := run[-1]).function is not None
    }
    return pipeline.with_functions(told)


def fused(source: live.LivePipeline, names: tuple[str, ...]) -> Any:
    """Returns the composition of the Python functions of these maps; `names` are node ids, most upstream first."""
    maps = [source.datasets[name] for name in names]
    function = private.python_function(maps[0]._map_func)
    for above, below in pairwise(maps):
        several = type(above.element_spec) is tuple
        function = forms.one_after_another(function, private.python_function(below._map_func), several=several)
    return function


def _ask(source: live.LivePipeline, run: tuple[Node, ...]) -> Fused:
    first = tuple(node.id for node in run[:-1])
    return unknown_on_error(lambda why: Fused(first, why_not=why))(_fused_functions)(source, run)


def _fused_functions(source: live.LivePipeline, run: tuple[Node, ...]) -> Fused:
    names = tuple(node.id for node in run)
    first = names[:-1]
    above, last = source.datasets[run[0].inputs[0]], source.datasets[run[-1].id]
    try:
        mapped = above.map(fused(source, names))
    except Exception as error:  # the user's functions are called on inputs they were not written for
        return Fused(first, why_not=f"their functions cannot be called in one ({type(error).__name__})")
    if mapped.element_spec != last.element_spec:
        return Fused(first, why_not="called in one, their functions give other shapes or types")
    facts = functions.read_facts(mapped._map_func)
    checks = any(node.function is not None and node.function.can_raise for node in run)
    if not facts.stateless or facts.can_raise != checks:
        return Fused(first, why_not="traced as one, their functions have state or check other values")
    try:
        terms: list[Term] | None = None
        for name in names:
            terms = computes(source.datasets[name]._map_func.function, terms)
        if terms != computes(mapped._map_func.function):
            return Fused(first, why_not="called in one, their functions do something else")
    except Unclear as reason:
        return Fused(first, why_not=f"a function of theirs {reason}")
    return Fused(first, digest=facts.digest)
