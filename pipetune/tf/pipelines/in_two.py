"""Probes functions that can be called on batches in two parts: the first unchanged, the rest by `tf.vectorized_map`.

This serves functions that decode raw bytes, for which `tf.vectorized_map` has no converter, and then take the values
apart along their first axis, which is another axis on a batch.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pipetune.core.functions import Cut, CutKind, FunctionForm, OnBatches
from pipetune.core.pipeline import Node
from pipetune.tf import private
from pipetune.tf.pipelines import forms, functions, live
from pipetune.tf.pipelines.cutting import Cuttable, NoCut
from pipetune.tf.pipelines.lifting import Lifted, treats_each_number
from pipetune.tf.pipelines.raw_lengths import check_lengths
from pipetune.tf.pipelines.statements import statements_of
from pipetune.tf.pipelines.terms import Unclear
from pipetune.tf.pipelines.vectorized import check_converters

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


def in_two(source: live.LivePipeline, node: Node, batch: Node) -> OnBatches:
    """Probes how the function of `node`, split in two, can be called on the batches of `batch`; or why it cannot."""
    try:
        return _described(source, node, batch, Cuttable(source.datasets[node.id]._map_func))
    except NoCut as reason:
        return OnBatches(why_not=str(reason))
    except Unclear as reason:
        return OnBatches(why_not=f"its function {reason}")
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return OnBatches(why_not=f"its graph cannot be cut ({type(error).__name__})")


def _described(source: live.LivePipeline, node: Node, batch: Node, whole: Cuttable) -> OnBatches:
    position, statement = _place(whole)
    check_lengths(whole.graph)
    above, original = source.datasets[node.inputs[0]], source.datasets[node.id]
    size, drops = batch.argument("batch_size"), bool(batch.argument("drop_remainder"))
    head, tail, first = both_parts(above.batch(size, drop_remainder=drops), whole, position)
    if tail.element_spec != original.batch(size, drop_remainder=drops).element_spec:
        raise NoCut("its shapes would not be known any more")
    parts = [functions.read_facts(made._map_func) for made in (head, tail)]
    if any(not part.stateless or part.can_raise for part in parts):
        raise NoCut("its function has state or checks values when it is traced on batches")
    rest = check_converters(whole.tail(position).function, tail._map_func.function)
    inexact = tuple(sorted({*first.inexact, *rest.inexact}))
    zero_signs = first.zero_signs or rest.zero_signs
    specs = tuple(tf.TensorSpec(one.shape, one.dtype) for one in whole.handed(position))
    cut = Cut(
        CutKind.BEHIND_PARSING,
        position=position,
        spec=str(specs if len(specs) > 1 else specs[0]),
        element_bytes=live.element_bytes(list(specs)),
        head=parts[0].digest,
        tail=parts[1].digest,
        inexact=inexact,
        zero_signs=zero_signs,
        statement=statement,
        handed=len(specs),
        taken=whole.taken(position),
        components=len(whole.arguments),
    )
    return OnBatches(form=FunctionForm.VECTORIZED, digest=cut.tail, inexact=inexact, zero_signs=zero_signs, cut=cut)


def both_parts(batches: Any, whole: Cuttable, position: int, *, synchronous: bool = False) -> tuple[Any, Any, Lifted]:
    """Returns a map of the first part over `batches`, a map of the rest after it, and properties of the first's rows.

    Args:
        batches: a dataset with components of shape [rows, ...].
        position: the number of ops in the first part.
        synchronous: whether both maps are forced to run synchronously, as by the argument of `map`.

    Raises:
        NoCut: the first part cannot be called on batches.
        ValueError: `tf.vectorized_map` has no converter for an op of the rest.
    """
    rows = tf.nest.flatten(batches.element_spec)[0].shape[0]
    first, lifted = whole.head_on_batches(position, rows)
    with private.reusing_traced_functions():
        head = batches.map(first, synchronous=synchronous)
    rest = forms.in_form(whole.called_tail(position), FunctionForm.VECTORIZED, head.element_spec, loops=False)
    return head, head.map(rest, synchronous=synchronous), lifted


def _place(whole: Cuttable) -> tuple[int, int | None]:
    """Places the cut after the last op that `tf.vectorized_map` has no converter for, between statements if possible.

    Raises:
        NoCut: there is no such op, or an op before the cut does not treat every value independently.
    """
    without = [place for place, op in enumerate(whole.ops) if not private.op_is_vectorizable(op.type)]
    lacking = [place for place in without if whole.working([whole.ops[place]])]
    if not lacking:
        raise NoCut("tf.vectorized_map has a form for every op of it")
    first = lacking[-1] + 1
    other = next((op for op in whole.working(whole.ops[:first]) if not treats_each_number(op)), None)
    if other is not None:
        raise NoCut(f"its op {other.type} does not treat every number by itself")
    statements = statements_of(private.python_function(whole.traced), whole.ops)
    for place in range(first, len(whole.ops)):
        if statements is not None and statements[place] > statements[place - 1]:
            return place, statements[place]
        if whole.working([whole.ops[place]]) and not treats_each_number(whole.ops[place]):
            break
    return first, None
