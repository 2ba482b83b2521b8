"""`multiworker`: several processes in step, one on each machine."""

from __future__ import annotations

from functools import partial

from pipetune.distributed.emit.kind import Kind
from pipetune.distributed.emit.replicas import emit_for_replicas

_emit = partial(
    emit_for_replicas,
    strategy="tf.distribute.MultiWorkerMirroredStrategy()",
    remark="The same function serves MirroredStrategy.",
)
KIND = Kind(_emit)
