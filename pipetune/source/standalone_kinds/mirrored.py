"""`mirrored`: one process, several devices."""

from __future__ import annotations

from functools import partial

from pipetune.source.standalone_kind import Kind
from pipetune.source.standalone_replicas import emit_for_replicas

KIND = Kind(
    "mirrored",
    partial(
        emit_for_replicas,
        strategy="tf.distribute.MirroredStrategy()",
        told="The same function serves MultiWorkerMirroredStrategy.",
    ),
    one_process=True,
)
