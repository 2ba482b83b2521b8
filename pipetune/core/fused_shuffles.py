"""What TensorFlow's graph pass `shuffle_and_repeat_fusion`, on by default, does to the order of a fixed seed.

It makes one operator of a shuffle and the repeat directly behind it. Where that repeat ends, the second repetition and
every later epoch have another order than the two operators give; without end they have the same (TensorFlow 2.21).
"""

from __future__ import annotations

from pipetune.core.pipeline import INFINITE, Pipeline

FUSED_SHUFFLE = "TensorFlow makes one step of a shuffle and the repeat next to it: later epochs have another order"
"""Why a rewrite that brings the two together, or apart, does not keep the order."""


def fused_shuffles(pipeline: Pipeline) -> frozenset[str]:
    """The shuffles whose order that pass changes, by id."""
    ends = (node for node in pipeline if node.op == "repeat" and node.argument("count") not in (None, INFINITE))
    repeated = {name for node in ends for name in node.inputs}
    return frozenset(
        node.id
        for node in pipeline
        if node.op == "shuffle" and node.argument("seed") is not None and node.id in repeated
    )
