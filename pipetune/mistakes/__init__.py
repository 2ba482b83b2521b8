"""Detects mistakes in the script's original pipelines from facts alone: no TensorFlow, no source text.

Each check takes a pipeline and how the script uses it (`Use`) and reports what is wrong, with the line, the reason and
a fix. A check that is not certain reports nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.core.profile import Finding
from pipetune.mistakes import buffers, caches, captured, epochs, replicas, stateful, subsets, tfds, workers
from pipetune.mistakes.use import Use

__all__ = ["Use", "find"]


def find(training: Use, others: Sequence[Use] = ()) -> list[Finding]:
    """Returns all findings on the training pipeline and the script's other datasets, without duplicates."""
    found: list[Finding] = []
    for use in (training, *others):
        found += [*caches.frozen(use), *caches.endless(use), *buffers.prefetched_by_batch_size(use)]
    found += list(subsets.leaks(training, others)) or subsets.changing(training)
    for use in (training, *others):
        found += tfds.subsets(use)
    for use in (training, *others):
        found += [*epochs.runs_out(use), *epochs.blended(use), *epochs.uneven(use)]
    for use in (training, *others):
        found += caches.never_full(use, [one for one in (training, *others) if one is not use])
    found += [tfds.dividing(one, training) for one in workers.unsharded(training)]
    found += [*stateful.shuffled_apart(training), *workers.divided(training), *stateful.undivided_state(training)]
    for use in (training, *others):
        found += [*stateful.python_for_a_tpu(use), *captured.from_outside(use), *captured.python_on_the_chief(use)]
    for use in (training, *others):
        found += [*replicas.uneven(use), *replicas.left_over(use)]
    return list(dict.fromkeys(found))
