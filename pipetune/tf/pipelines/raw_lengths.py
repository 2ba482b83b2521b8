"""Checks that all strings that a function decodes as raw numbers have one length, as a batch of them must."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pipetune.tf.pipelines.lifting import treats_each_number
from pipetune.tf.pipelines.terms import Unclear

_DECODER = "DecodeRaw"  # fails on a batch of strings of several lengths; tf.io.decode_raw(fixed_length=) is another op


def check_lengths(graph: Any) -> None:
    """Refuses a function that may decode strings of several lengths.

    They have one length if the decoded values are returned unchanged (a batch holds elements of one shape), or if the
    function takes them apart into pieces of fixed sizes, which determine the length.

    Args:
        graph: of the function traced on single elements.

    Raises:
        Unclear: nothing shows that they have one length.
    """
    needed = _ancestors(graph.outputs)
    given = {id(tensor) for tensor in graph.outputs}
    for op in graph.get_operations():
        if op.type != _DECODER or id(op) not in needed:
            continue
        if not any(id(tensor) in given or _fixes(tensor, needed) for tensor in _as_long(op.outputs[0])):
            raise Unclear("decodes strings that may have several lengths, and a batch of them must have one")


def _ancestors(outputs: Any) -> set[int]:
    """Returns the ids of the ops that the outputs depend on; other ops do not run."""
    found: set[int] = set()
    waiting = [tensor.op for tensor in outputs]
    while waiting:
        op = waiting.pop()
        if id(op) not in found:
            found.add(id(op))
            waiting += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    return found


def _as_long(tensor: Any) -> Iterator[Any]:
    """Yields the tensor and all tensors that elementwise ops compute from it: these are as long."""
    yield tensor
    for reader in tensor.consumers():
        others = [one for one in reader.inputs if one is not tensor]
        if treats_each_number(reader) and reader.type != _DECODER and all(one.shape.rank == 0 for one in others):
            yield from _as_long(reader.outputs[0])


def _fixes(tensor: Any, needed: set[int]) -> bool:
    """Whether an op that runs reads `tensor` and accepts only one length of it."""
    return any(
        id(op) in needed and op.inputs[0] is tensor and _accepts_one_length(op) for op in tensor.consumers()
    )


def _accepts_one_length(op: Any) -> bool:
    if op.type == "EnsureShape":
        return bool(op.outputs[0].shape.is_fully_defined())
    if op.type not in ("Reshape", "SplitV"):
        return False
    sizes = tf.get_static_value(op.inputs[1])
    return sizes is not None and bool((sizes >= 0).all())
