"""What the input of one worker holds at once because it is distributed.

After the section "Prefetching" of TensorFlow's "Distributed Input" guide, which has a buffer of the number of replicas
in sync; TensorFlow 2.21 takes the replicas of the worker (`input_lib.py`). The rest: `multi_device_iterator_ops.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.model.rebatching import per_replica_batch
from pipetune.model.sharding import check_positive


@dataclass(frozen=True)
class Buffered:
    """Elements that can be held at once by one worker, in whole minibatches; the user's own buffers come on top."""

    cut: int  # of the global batch that is being cut for replicas
    prefetched: int  # in the prefetch that tf.distribute adds
    waiting: int  # for their replica: one minibatch each in the worker's memory
    on_devices: int  # and one each on the device

    @property
    def host(self) -> int:
        """In the worker's memory; on a CPU the devices' memory is that too."""
        return self.cut + self.prefetched + self.waiting


def buffered(
    global_batch: int, *, workers: int = 1, replicas_per_worker: int = 1, from_function: bool = False
) -> Buffered:
    """What each of these workers holds.

    The batch to be cut is a global one on every worker: its memory grows with all replicas, not with the worker's.

    Args:
        from_function: the dataset comes from a `dataset_fn`: nothing is cut or prefetched.
    """
    check_positive(workers=workers, replicas_per_worker=replicas_per_worker)
    replicas = workers * replicas_per_worker
    each = replicas_per_worker * per_replica_batch(global_batch, replicas)
    added = replicas > 1 and not from_function
    return Buffered(
        cut=global_batch if added else 0, prefetched=each if added else 0, waiting=each, on_devices=each
    )
