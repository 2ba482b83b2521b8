"""`mirrored`: one process, several devices."""

from __future__ import annotations

from functools import partial

from pipetune.distributed.emit.kind import Kind
from pipetune.distributed.emit.replicas import emit_for_replicas

_emit = partial(
    emit_for_replicas,
    strategy="tf.distribute.MirroredStrategy()",
    remark="The same function serves MultiWorkerMirroredStrategy.",
)
KIND = Kind(_emit, one_process=True)
