"""Whether what tf.vectorized_map makes of a function keeps the rows apart, and which of its ops not bit by bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipetune.core.functions import FunctionFacts
from pipetune.tf.pipelines.row_wise import MixesRows, not_known_exact

SHAPING = frozenset({"Const", "ExpandDims", "Identity", "NoOp", "Placeholder", "Squeeze"})
"""Ops that may be there on single elements and not on batches, or the other way round."""

_LOOPS = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})
_PARSER = "ParseExampleV2"


def inexact_when_vectorized(operations: Iterable[Any], facts: FunctionFacts) -> tuple[str, ...]:
    """Ops that are not bit-equal on batches; the form that TensorFlow knows for each keeps the rows apart.

    Args:
        operations: those of the function, traced on single elements.
        facts: of the function through `tf.vectorized_map`, traced on batches.

    Raises:
        MixesRows: TensorFlow would go through the rows one by one, or trace functions inside.
    """
    ops = tuple(operations)
    loop = next((kind for kind in facts.operations if kind in _LOOPS), None)
    if loop is not None:
        raise MixesRows(f"it would run a loop ({loop})")
    parsers = [op for op in ops if op.type == _PARSER]
    if any(op.get_attr("num_sparse") or op.get_attr("ragged_value_types") for op in parsers):
        raise MixesRows("it does not keep the rows of sparse and ragged features apart")
    return not_known_exact(op for op in ops if op.type not in SHAPING)
