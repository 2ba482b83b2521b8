"""Operators of TensorFlow 1 that TensorFlow has deprecated, and that no rewrite can see into."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.profile import Finding, finding_at
from pipetune.lint.dataset_use import DatasetUse

_SUCCESSORS = {
    "_MapAndBatchDataset": ("map_and_batch", ".map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(n)"),
    "_ShuffleAndRepeatDataset": ("shuffle_and_repeat", ".shuffle(n).repeat()"),
    "parallel_interleave": (
        "parallel_interleave",
        ".interleave(f, cycle_length=n, num_parallel_calls=tf.data.AUTOTUNE)",
    ),
}
"""Class or operator -> name in `tf.data.experimental`, and what its documentation names instead (2.21)."""


def find_deprecated_operators(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on deprecated operators for which there are newer ones, and that the script itself calls."""
    for node in use.pipeline:
        if found := _SUCCESSORS.get(node.label or node.op):
            name, successor = found
            if node.location is not None and node.location.method not in ("apply", name):
                continue  # in a function of TensorFlow, such as make_batched_features_dataset
            yield finding_at(
                "deprecated-operator",
                node,
                f"tf.data.experimental.{name} is deprecated, and pipetune has no rewrite for it.",
                f"Write `{successor}`, and analyze the script again.",
            )
