"""Whether a take or a skip splits a dataset: somebody makes the other half too."""

from __future__ import annotations

from pipetune.core.pipeline import Node
from pipetune.tf import private
from pipetune.tf.pipelines import operators
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script.objects import live_objects

OTHER_HALF = {"take": "_SkipDataset", "skip": "_TakeDataset"}


def other_half(node: Node, source: LivePipeline) -> bool:
    """Whether what a take leaves, or a skip passes over, is another dataset's: same input, same count."""
    above = private.inputs(source.datasets[node.id])
    return any(
        type(one).__name__ == OTHER_HALF[node.op]
        and any(given is above[0] for given in private.inputs(one))
        and operators.as_value(one._count) == node.argument("count")
        for one in live_objects()
    )
