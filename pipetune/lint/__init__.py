"""Detects mistakes in the script's original pipelines from facts alone: no TensorFlow, no source text.

Each check takes a pipeline and how the script uses it (`DatasetUse`) and yields what is wrong, with the line, the
reason and a fix. A check that is not certain yields nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pipetune.core.profile import Finding, finding_at
from pipetune.lint import caches, epochs, workers
from pipetune.lint.dataset_use import DatasetUse

__all__ = ["DatasetUse", "find_mistakes"]


def find_mistakes(training: DatasetUse, others: Sequence[DatasetUse] = ()) -> list[Finding]:
    """Returns all findings on the training pipeline and the script's other datasets, without duplicates."""
    uses = (training, *others)

    def each(*checks: Callable[[DatasetUse], Iterator[Finding]]) -> Iterator[Finding]:
        return (finding for use in uses for check in checks for finding in check(use))

    found = [
        *each(
            caches.find_frozen_randomness,
            epochs.find_repeated_draws,
            caches.find_endless_caches,
            caches.find_large_shuffles,
            _find_deprecated_operators,
        ),
        *caches.find_prefetch_of_batch_size(uses),
        *(list(epochs.find_validation_leaks(training, others)) or epochs.find_changing_subsets(training)),
        *each(epochs.find_wrong_subsets),
        *each(epochs.find_exhausted_data, epochs.find_mixed_epochs, epochs.find_uneven_steps),
        *each(lambda use: caches.find_incomplete_caches(use, [one for one in uses if one is not use])),
        *workers.find_division_problems(training),
        *workers.find_unsharded_state(training),
        *each(workers.find_python_on_tpu, workers.find_captured_objects, workers.find_python_on_chief),
        *each(workers.find_uneven_replicas, workers.find_unused_remainder),
    ]
    return list(dict.fromkeys(found))


_SUCCESSORS = {
    "_MapAndBatchDataset": ("map_and_batch", ".map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(n)"),
    "_ShuffleAndRepeatDataset": ("shuffle_and_repeat", ".shuffle(n).repeat()"),
    "parallel_interleave": (
        "parallel_interleave",
        ".interleave(f, cycle_length=n, num_parallel_calls=tf.data.AUTOTUNE)",
    ),
}
"""Operators of TensorFlow 1, which no rewrite can see into, by class or operator: the name in `tf.data.experimental`,
and what its documentation names instead (2.21)."""


def _find_deprecated_operators(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on deprecated operators for which there are newer ones, and that the script itself calls."""
    for node in use.pipeline:
        if found := _SUCCESSORS.get(node.label or node.op):
            name, successor = found
            if node.location is not None and node.location.method not in ("apply", name):
                continue  # in a function of TensorFlow, such as make_batched_features_dataset
            message = f"tf.data.experimental.{name} is deprecated, and pipetune has no rewrite for it."
            hint = f"Write `{successor}`, and analyze the script again."
            yield finding_at("deprecated-operator", node, message, hint)
