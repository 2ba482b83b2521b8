"""Effect of TensorFlow's graph pass `shuffle_and_repeat_fusion` (on by default) on the order of a seeded shuffle.

The pass fuses a shuffle with the repeat directly after it. If the repeat is finite, the second repetition and every
later epoch have a different order than the two separate operators produce; if it is infinite, the order is the same
(TensorFlow 2.21).
"""

from __future__ import annotations

from pipetune.core.pipeline import INFINITE, Pipeline

FUSED_SHUFFLE = "TensorFlow makes one step of a shuffle and the repeat next to it: later epochs have another order"
"""Why a rewrite that makes the two operators adjacent, or separates them, does not keep the order."""


def fused_shuffles(pipeline: Pipeline) -> frozenset[str]:
    """Returns the ids of the shuffles whose order the pass changes."""
    ends = (node for node in pipeline if node.op == "repeat" and node.argument("count") not in (None, INFINITE))
    repeated = {name for node in ends for name in node.inputs}
    return frozenset(
        node.id
        for node in pipeline
        if node.op == "shuffle" and node.argument("seed") is not None and node.id in repeated
    )
