"""Probes whether functions only pad elements, which a padded batch could do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.functions import Padding
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.functions import VALUE_CHECKS
from pipetune.pipelines.lifting import output_terms
from pipetune.pipelines.terms import CannotProve, Term
from pipetune.probes.batches import batched, downstream_batch

_PADS = frozenset({"Pad", "PadV2"})
_OTHER_CHECKS = VALUE_CHECKS - {"EnsureShape"}  # a padded batch checks shapes


def annotate_padding(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions that pad annotated with whether they do nothing else."""
    facts = {}
    for node in pipeline:
        batch = downstream_batch(pipeline, node)
        if node.op == "map" and node.function is not None and batch is not None and _PADS & {*node.function.operations}:
            facts[node.id] = replace(node.function, padding=probe_padding(source, node, batch))
    return pipeline.with_functions(facts)


@unknown_on_error(Padding)
def probe_padding(source: live.LivePipeline, node: Node, batch: Node) -> Padding:
    """Returns to what shapes the map `node` pads elements that `batch` collects, or why it does more than that."""
    given, padded = source.datasets[node.inputs[0]], source.datasets[node.id]
    if node.function is None or not node.function.stateless or _OTHER_CHECKS & {*node.function.operations}:
        return Padding("its function has state or checks values")
    before, after = (tf.nest.map_structure(lambda _: 0, one.element_spec) for one in (given, padded))
    if before != after:
        return Padding("its function gives elements of another structure")
    if not all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(given.element_spec)):
        return Padding("it gets components that are no plain tensors")
    try:
        _require_padding(padded._map_func.function)
    except CannotProve as reason:
        return Padding(f"its function {reason}")
    fixed = tf.nest.map_structure(lambda part: part.shape.as_list(), padded.element_spec)
    shapes = live.shapes_text(padded.element_spec, fixed)
    if shapes is None:
        return Padding("its elements are no tensors, dicts or tuples")
    size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
    made = given.padded_batch(size, padded_shapes=fixed, drop_remainder=drops)
    if made.element_spec != batched(padded, batch).element_spec:
        return Padding("a padded batch would have other shapes")
    return Padding(shapes=shapes)


def _require_padding(traced: Any) -> None:
    """Raises unless every output of a traced function is its input of the same index, filled up by zeros at the ends.

    The size of each axis must be fixed in the input, or be filled up from whatever it is to the fixed size of the
    output: only then does a padded batch accept the same elements as the function.
    """
    for place, term in enumerate(output_terms(traced)):
        if term.shape is None or None in term.shape:
            raise CannotProve("does not give every component a fixed shape")
        result = term.inputs[0] if term.op == "EnsureShape" else term  # a padded batch makes the same check
        pads = result.op in _PADS
        given = result.inputs[0] if pads else result
        if given.op != "Input" or given.attribute("place") != place or given.shape is None:
            raise CannotProve("does more than pad")
        if result.op == "PadV2" and _number(result.inputs[-1]) != 0:
            raise CannotProve("pads with another value than zero")
        amounts = _amounts(result) if pads else [(0, 0)] * len(given.shape)
        for axis, (size, (before, after)) in enumerate(zip(given.shape, amounts, strict=True)):
            if before != 0:
                raise CannotProve("pads in front of the values")
            if size is None and not _fills_up(after, given, axis, term.shape[axis]):
                raise CannotProve("does not fill up every component to its fixed size")


Amount = int | Term | None
"""How many values are added at one end of an axis; None: this cannot be told."""


def _amounts(term: Term) -> list[tuple[Amount, Amount]]:
    """Returns what a padding adds before and behind the values of each axis."""
    fixed = term.attribute("paddings")
    if fixed is not None:
        return [(before, after) for before, after in fixed]
    axes = _stacked(term.inputs[1])
    if len(axes) != term.rank:
        raise CannotProve("pads by numbers that it computes at once")
    return [_ends(axis) for axis in axes]


def _ends(axis: Term) -> tuple[Amount, Amount]:
    if axis.op == "Constant" and axis.value is not None:
        before, after = axis.value.tolist()
        return before, after
    ends = _stacked(axis)
    return (_number(ends[0]), ends[1]) if len(ends) == 2 else (None, None)


def _stacked(term: Term) -> tuple[Term, ...]:
    return term.inputs if term.op == "Pack" and term.attribute("axes") == (0,) else ()


def _number(term: Term) -> int | None:
    constant = term.op == "Constant" and term.value is not None and term.value.ndim == 0
    return term.value.item() if constant and term.value is not None else None


def _fills_up(amount: Amount, given: Term, axis: int, size: int | None) -> bool:
    """Whether an amount is `size` less the size of an axis, and so negative, which is an error, for longer elements."""
    if not isinstance(amount, Term) or amount.op != "Sub" or _number(amount.inputs[0]) != size:
        return False
    term = amount.inputs[1]
    if term.op == "Size":
        return given.rank == 1 and term.inputs[0] == given
    taken = term.inputs[0] if term.op == "Reshape" else term
    shape = taken.inputs[0] if taken.op == "Slice" else taken
    one = taken.op == "Slice" and taken.attribute("parts") == ((axis, 1, 1),)
    return term.shape == () and shape.op == "Shape" and shape.inputs[0] == given and (one or given.rank == 1)
