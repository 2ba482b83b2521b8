"""Probes whether a predicate decides the same on the input of an upstream map, for filters that a rule may move.

The user's predicate is traced again, as TensorFlow would if the script called `filter` first. It decides the same if it
reads only components that the map passes through unchanged, and computes the same from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pipetune.core.functions import OnInput
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import functions, live
from pipetune.tf.pipelines.guards import unknown_on_error
from pipetune.tf.pipelines.lifting import computes
from pipetune.tf.pipelines.terms import Unclear, input_term, input_terms

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's

_MADE = "Made"
"""The op of a term that is a component computed by the upstream map: the predicate must not read it."""

_HANDS_THROUGH = frozenset({"prefetch", "with_options"})


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its predicates annotated with what they decide upstream of the maps that feed them."""
    told = {
        node.id: replace(node.function, on_inputs=tuple(_ask(source, pipeline, node)))
        for node in pipeline
        if node.op == "filter" and node.function is not None and node.function.stateless
    }
    return pipeline.with_functions(told)


def _ask(source: live.LivePipeline, pipeline: Pipeline, node: Node) -> Iterator[OnInput]:
    """Yields the result of the predicate of `node` on the input of each upstream map, nearest first.

    The last one may hold a reason why the filter cannot be moved.
    """
    predicate = source.datasets[node.id]._predicate
    places: Sequence[int] | None = None  # per input of the predicate, its index in the map's input, or -1
    above = pipeline[node.inputs[0]]
    while len(above.inputs) == 1 and (above.op == "map" or above.op in _HANDS_THROUGH):
        if above.op == "map":
            if above.function is None or not above.function.stateless:
                return  # no rule would move the filter past it
            given = above.function.hands_on
            places = given if places is None else [given[place] if place >= 0 else -1 for place in places]
            answer = _tried(predicate, source.datasets[above.inputs[0]], places)
            yield answer
            if answer.why_not:
                return
        above = pipeline[above.inputs[0]]


@unknown_on_error(lambda why: OnInput(why_not=why))
def _tried(predicate: Any, dataset: Any, places: Sequence[int]) -> OnInput:
    try:
        there = dataset.filter(private.python_function(predicate))._predicate
    except Exception as error:  # the user's function is called on inputs it was not written for
        return OnInput(why_not=f"its predicate cannot be called there ({type(error).__name__})")
    facts = functions.read_facts(there)
    if not facts.stateless:
        return OnInput(why_not="its predicate has state when it is traced there")
    try:
        own = input_terms(predicate.function)
        given = [
            input_term(place, dtype=term.dtype, shape=term.shape) if place >= 0 else replace(term, op=_MADE)
            for place, term in zip(places, own, strict=True)
        ]
        here = computes(predicate.function, given)
        if any(term.op == _MADE for result in here for term in result.ancestors()):
            raise Unclear("reads what the map makes")
        if here != computes(there.function):
            return OnInput(why_not="its predicate does something else when it is traced there")
    except Unclear as reason:
        return OnInput(why_not=f"its predicate {reason}")
    return OnInput(digest=facts.digest)
