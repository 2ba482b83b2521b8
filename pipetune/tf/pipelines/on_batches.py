"""Probes what functions of maps upstream of a batch do on batches, for those maps that a rule may move.

The user's Python function is traced again, as TensorFlow would if the script called `batch` first.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import tensorflow as tf

from pipetune.core.functions import FunctionFacts, FunctionForm, OnBatches
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import forms, functions, lifting, live
from pipetune.tf.pipelines.guards import unknown_on_error
from pipetune.tf.pipelines.in_two import in_two
from pipetune.tf.pipelines.raw_lengths import check_lengths
from pipetune.tf.pipelines.row_windows import gets_windows
from pipetune.tf.pipelines.terms import Unclear
from pipetune.tf.pipelines.vectorized import check_converters

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's

def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with the functions that could be called on batches annotated with what they do there."""
    told: dict[str, FunctionFacts] = {}
    for node in pipeline:
        batch = batch_below(pipeline, node)
        if batch is None or not reaches(pipeline, node, batch):
            continue
        if node.op == "map" and node.inputs and node.function and node.function.stateless:
            told[node.id] = replace(node.function, on_batches=ask(source, node, batch))
    return pipeline.with_functions(told)


def batch_below(pipeline: Pipeline, node: Node) -> Node | None:
    """Returns the nearest batch downstream of an operator, after which its function could be called; None if none."""
    return next((below for below in pipeline.downstream(node.id) if below.op == "batch"), None)


def reaches(pipeline: Pipeline, node: Node, batch: Node) -> bool:
    """Whether the output of `node` reaches `batch` without another input being joined to it."""
    between = takewhile(lambda below: below.id != batch.id, pipeline.downstream(node.id))
    return all(len(below.inputs) == 1 for below in between)


@unknown_on_error(lambda why: OnBatches(why_not=why))
def ask(source: live.LivePipeline, node: Node, batch: Node) -> OnBatches:
    """Probes the function of `node` on the batches of `batch`.

    It is called unchanged, else vectorized, else parsing, else split in two.
    """
    components = tf.nest.flatten(source.datasets[node.inputs[0]].element_spec)
    fixed = all(isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() for part in components)
    if not fixed and not gets_windows(source, node):  # windows have one length that no static shape shows
        return OnBatches(why_not="its input has a component without a fixed shape")
    reasons = []
    for form in _FORMS:
        if form is FunctionForm.PARSING and node.function is not None and _PARSER not in node.function.operations:
            continue
        found = tried(source, node, batch, form)
        if not found.why_not:
            return found
        reasons.append(found.why_not)
    found = in_two(source, node, batch)
    if not found.why_not:
        return found
    return OnBatches(why_not=f"{reasons[0]}, and tf.vectorized_map cannot be used: {reasons[1]}")


_FORMS = (FunctionForm.ON_BATCHES, FunctionForm.VECTORIZED, FunctionForm.PARSING)
_PARSER = "ParseExampleV2"


def tried(source: live.LivePipeline, node: Node, batch: Node, form: FunctionForm) -> OnBatches:
    """Probes the function of `node` on batches, called in the variant `form`."""
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
    batches = above.batch(size, drop_remainder=drops)
    function = forms.in_form(private.python_function(original._map_func), form, batches.element_spec, loops=False)
    try:
        mapped = batches.map(function)
    except Exception as error:  # the user's function is called on inputs it was not written for
        return OnBatches(why_not=f"its function cannot be called on batches ({type(error).__name__})")
    if mapped.element_spec != original.batch(size, drop_remainder=drops).element_spec:
        return OnBatches(why_not="its function gives other shapes or types on batches")
    facts = functions.read_facts(mapped._map_func)
    if not facts.stateless or facts.can_raise:
        return OnBatches(why_not="its function has state or checks values when it is traced on batches")
    single, batched = original._map_func.function, mapped._map_func.function
    try:
        if form is FunctionForm.VECTORIZED:
            again = above.map(private.python_function(original._map_func))._map_func.function
            if lifting.computes(again) != lifting.computes(single):
                raise Unclear("is traced as something else each time")
            lifted = check_converters(single, batched)
        else:
            check_lengths(single.graph)
            lifted = lifting.lift(single, batched)
    except Unclear as reason:
        return OnBatches(why_not=f"its function {reason}")
    return OnBatches(form=form, digest=facts.digest, inexact=lifted.inexact, zero_signs=lifted.zero_signs)
