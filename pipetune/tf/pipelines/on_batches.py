"""What the functions of maps above a batch do when they are called on batches; asked only of those a rule may move.

This traces the user's Python function once more, as TensorFlow would if the script said `batch` first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import takewhile
from typing import Any

import tensorflow as tf

from pipetune.core.functions import FunctionFacts, FunctionForm, OnBatches
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import forms, functions, live
from pipetune.tf.pipelines.in_two import in_two
from pipetune.tf.pipelines.raw_lengths import check_lengths
from pipetune.tf.pipelines.row_windows import gets_windows
from pipetune.tf.pipelines.row_wise import TAKES_AXES, MixesRows, inexact_ops
from pipetune.tf.pipelines.vectorized import SHAPING, inexact_when_vectorized

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """`pipeline`, told of the functions that could be called on batches what they do there."""
    told: dict[str, FunctionFacts] = {}
    for node in pipeline:
        batch = batch_below(pipeline, node)
        if batch is None or not reaches(pipeline, node, batch):
            continue
        if node.op == "map" and node.inputs and node.function and node.function.stateless:
            told[node.id] = replace(node.function, on_batches=ask(source, node, batch))
    return pipeline.with_functions(told)


def batch_below(pipeline: Pipeline, node: Node) -> Node | None:
    """The nearest batch below an operator: the one its function could be called behind."""
    return next((below for below in pipeline.downstream(node.id) if below.op == "batch"), None)


def reaches(pipeline: Pipeline, node: Node, batch: Node) -> bool:
    """Whether what a map gives comes to `batch` alone, with nothing from elsewhere joined to it."""
    between = takewhile(lambda below: below.id != batch.id, pipeline.downstream(node.id))
    return all(len(below.inputs) == 1 for below in between)


def ask(source: live.LivePipeline, node: Node, batch: Node) -> OnBatches:
    """What the function of `node` does on batches as `batch` makes them: as it is, else vectorized, else parsing, else
    cut in two.
    """
    components = tf.nest.flatten(source.datasets[node.inputs[0]].element_spec)
    fixed = all(isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() for part in components)
    if not fixed and gets_windows(source, node):
        return tried(source, node, batch, FunctionForm.VECTORIZED)  # all are of one length, which no shape says
    if not fixed:
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
    """What the function of `node` does on batches when it is called in this form."""
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
    batches = above.batch(size, drop_remainder=drops)
    function = forms.in_form(private.python_function(original._map_func), form, batches.element_spec, loops=False)
    try:
        mapped = batches.map(function)
    except Exception as error:  # the user's function, on something it was not written for
        return OnBatches(why_not=f"its function cannot be called on batches ({type(error).__name__})")
    if mapped.element_spec != original.batch(size, drop_remainder=drops).element_spec:
        return OnBatches(why_not="its function gives other shapes or types on batches")
    facts = functions.read_facts(mapped._map_func)
    if not facts.stateless or facts.can_raise:
        return OnBatches(why_not="its function has state or checks values when it is traced on batches")
    single, many = original._map_func.function.graph, mapped._map_func.function.graph
    try:
        if form is FunctionForm.VECTORIZED:
            again = functions.read_facts(above.map(private.python_function(original._map_func))._map_func)
            if node.function is None or again.digest != node.function.digest:
                raise MixesRows("its function is traced as something else each time")
            inexact = inexact_when_vectorized(single.get_operations(), facts)
        else:
            check_lengths(single)
            inexact = _inexact_as_it_is(single, many, len(tf.nest.flatten(above.element_spec)))
    except MixesRows as reason:
        return OnBatches(why_not=str(reason))
    return OnBatches(form=form, digest=facts.digest, inexact=inexact)


def _inexact_as_it_is(single: Any, many: Any, arguments: int) -> tuple[str, ...]:
    """Ops that are not bit-equal on batches.

    Raises:
        MixesRows: what is traced on batches need not do to a row what it does to an element.
    """
    if _content(single) != _content(many):
        raise MixesRows("its function does something else when it is traced on batches")
    return inexact_ops(many, arguments)


def _content(graph: Any) -> tuple[Counter[str], Counter[bytes]]:
    """Ops and constants: what must be the same on single elements and on batches. Axes are not, and do differ."""
    ops = Counter(op.type for op in graph.get_operations() if op.type not in SHAPING)
    constants = Counter(
        op.get_attr("value").SerializeToString()
        for op in graph.get_operations()
        if op.type == "Const" and not _is_axis(op.outputs[0])
    )
    return ops, constants


def _is_axis(tensor: Any) -> bool:
    """Whether a tensor says nothing but axes, or where slices along axes begin and end."""
    readers = tensor.consumers()
    return bool(readers) and all(
        reader.type in TAKES_AXES and tensor is not reader.inputs[0] for reader in readers
    )
