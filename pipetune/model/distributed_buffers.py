"""Elements that one worker buffers because its input is distributed.

Follows the section "Prefetching" of TensorFlow's "Distributed Input" guide, according to which the buffer size is the
number of replicas in sync; TensorFlow 2.21 uses the number of replicas of the worker (`input_lib.py`). The other
buffers are those of `multi_device_iterator_ops.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.model.rebatching import per_replica_batch
from pipetune.model.sharding import check_positive


@dataclass(frozen=True)
class Buffered:
    """Most elements that one worker buffers, in whole minibatches; the user's own buffers come on top."""

    cut: int  # of the global batch that is being split among replicas
    prefetched: int  # in the prefetch that tf.distribute adds
    waiting: int  # one minibatch per replica in the worker's memory
    on_devices: int  # one minibatch per replica on its device

    @property
    def host(self) -> int:
        """Elements in the worker's memory; if the devices are CPUs, `on_devices` is in that memory too."""
        return self.cut + self.prefetched + self.waiting


def buffered(
    global_batch: int, *, workers: int = 1, replicas_per_worker: int = 1, from_function: bool = False
) -> Buffered:
    """Elements that each worker buffers.

    Every worker splits a whole global batch: its memory grows with the replicas of the job, not with the worker's.

    Args:
        global_batch: elements in a global batch.
        workers: number of workers.
        replicas_per_worker: replicas of each worker.
        from_function: whether the dataset comes from a `dataset_fn`: then nothing is split or prefetched.
    """
    check_positive(workers=workers, replicas_per_worker=replicas_per_worker)
    replicas = workers * replicas_per_worker
    each = replicas_per_worker * per_replica_batch(global_batch, replicas)
    added = replicas > 1 and not from_function
    return Buffered(
        cut=global_batch if added else 0, prefetched=each if added else 0, waiting=each, on_devices=each
    )
