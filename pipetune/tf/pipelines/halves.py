"""Detects whether a take or a skip splits a dataset, that is, whether its complement is built as well."""

from __future__ import annotations

from pipetune.core.pipeline import Node
from pipetune.tf import private
from pipetune.tf.pipelines import operators
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script.objects import live_objects

OTHER_HALF = {"take": "_SkipDataset", "skip": "_TakeDataset"}


def other_half(node: Node, source: LivePipeline) -> bool:
    """Whether another live dataset is the complement of this take or skip: same input, same count."""
    above = private.inputs(source.datasets[node.id])
    return any(
        type(one).__name__ == OTHER_HALF[node.op]
        and any(given is above[0] for given in private.inputs(one))
        and operators.as_value(one._count) == node.argument("count")
        for one in live_objects()
    )
