"""Many small files with one element each: the cost of opening them, and of larger files instead."""

from __future__ import annotations

from pipetune.core.pipeline import Node
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import described
from pipetune.rules.pricing import as_size, as_time

LEAST_SHARE = 0.05
"""Minimum saving as a share of the operator's cost: below it, other files would make no visible difference."""


def many_small_files(node: Node, context: RuleContext) -> str | None:
    """Describes what converting to TFRecords would gain for a map that opens a small file for each element.

    Returns None if it is not such a map, or if nothing was measured.
    """
    use = context.profile.files if context.profile is not None else None
    if node.op != "map" or node.function is None or not node.function.reads_files or use is None:
        return None
    if not use.many_small or use.small is None:
        return None
    small, measured = use.small, context.profile.operator(node.id) if context.profile is not None else None
    saved = small.apart_seconds - small.together_seconds
    said = [
        f"{described(node)} opens one of {use.files:,} files of {as_size(use.bytes_total / use.files)} for each "
        f"element: {as_time(small.apart_seconds)} each, {as_time(small.together_seconds)} from one TFRecord file "
        f"(measured on {small.files:,} of them)."
    ]
    cost = measured.wall_seconds if measured is not None else None
    if cost and saved > LEAST_SHARE * cost and saved < cost:
        said.append(
            f"Opening and reading is {small.apart_seconds / cost:.0%} of what the operator takes; with TFRecords it "
            f"could be {cost / (cost - saved):.2f} times as fast. Write all files into a few shards once "
            "(tf.io.TFRecordWriter), and read tf.data.TFRecordDataset(shards, num_parallel_reads=tf.data.AUTOTUNE) in "
            "place of the paths."
        )
    else:
        said.append("That is little of what the operator takes: a conversion to TFRecords would not show here.")
    return " ".join(said)
