"""What a last batch costs that is not full, where each worker makes batches for its replicas (a `dataset_fn`).

After `model.distributing.function_delivery`, which was compared with TensorFlow: with fixed shapes one worker stops
with the first replica that has no batch; several workers go on with empty ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.model.distributing import function_delivery
from pipetune.model.sharding import AutoShardPolicy


@dataclass(frozen=True)
class Remainder:
    """Samples of one epoch, over all workers."""

    elements: int
    dropped: int  # not trained on where only full batches are kept
    filled: int  # rows that are no samples where the last batches are made full


def remainder(counts: Sequence[int], per_replica_batch: int, *, replicas_per_worker: int = 1) -> Remainder:
    """What one epoch leaves out or adds.

    Args:
        counts: samples that each worker's pipeline reads.
        per_replica_batch: rows of a batch.

    Raises:
        ValueError: a size is below 1.
    """
    delivery = function_delivery(
        counts,
        per_replica_batch,
        workers=len(counts),
        replicas_per_worker=replicas_per_worker,
        by=AutoShardPolicy.FILE,  # a file stands for what a worker reads
        drop_remainder=True,
    )
    # On one worker whole steps are made full: with fixed shapes a step that lacks a batch is not taken.
    step = per_replica_batch * (replicas_per_worker if len(counts) == 1 else 1)
    filled = sum(math.ceil(count / step) * step - count for count in counts)
    return Remainder(sum(counts), sum(counts) - delivery.delivered, filled)
