"""The cost of an incomplete last batch where each worker builds batches for its replicas (a `dataset_fn`).

Uses `model.distributing.function_delivery`, which was compared with TensorFlow: with fixed shapes a single worker stops
at the first replica without a batch; several workers continue with empty batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.model.distributing import function_delivery
from pipetune.model.sharding import AutoShardPolicy


@dataclass(frozen=True)
class Remainder:
    """Samples of one epoch, summed over all workers."""

    elements: int
    dropped: int  # not trained on if only full batches are kept
    filled: int  # padding rows if the last batches are filled up


def remainder(counts: Sequence[int], per_replica_batch: int, *, replicas_per_worker: int = 1) -> Remainder:
    """Counts the samples that one epoch drops or adds because last batches are incomplete.

    Args:
        counts: samples that each worker's pipeline reads.
        per_replica_batch: rows in a batch.
        replicas_per_worker: replicas that each worker feeds.

    Raises:
        ValueError: a size is below 1.
    """
    delivery = function_delivery(
        counts,
        per_replica_batch,
        workers=len(counts),
        replicas_per_worker=replicas_per_worker,
        by=AutoShardPolicy.FILE,  # one "file" per worker: all that it reads
        drop_remainder=True,
    )
    # With one worker whole steps are filled up: with fixed shapes, a step that lacks a batch is not run.
    step = per_replica_batch * (replicas_per_worker if len(counts) == 1 else 1)
    filled = sum(math.ceil(count / step) * step - count for count in counts)
    return Remainder(sum(counts), sum(counts) - delivery.delivered, filled)
