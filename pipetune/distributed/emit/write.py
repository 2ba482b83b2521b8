"""Writes a stand-alone module: the tuned pipeline, for processes that read it side by side."""

from __future__ import annotations

from pipetune.core.distribution import ElementBytes, StandaloneParts
from pipetune.core.results import ServiceNeed
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Known, Standalone


def emit_standalone(
    parts: StandaloneParts,
    kind: str,
    *,
    script: str,
    checked: str = "Not checked.",
    epoch_batches: int | None = None,
    batch_bytes: ElementBytes | None = None,
    need: ServiceNeed | None = None,
    no_index: str = "",
    no_fill: str = "",
) -> Standalone:
    """The module for `parts`.

    Args:
        kind: one of `kinds.names()`.
        script: the name of the user's script, for the header.
        checked: how the module was checked, a sentence for the header.
        epoch_batches: what an epoch of the script has, where it was counted.
        batch_bytes: what a batch takes on its way, where it was measured.
        no_index: why the form with indices failed when it was run, as part of a sentence.
        no_fill: why filling last batches failed, the same.
        need: whether a service helps, and how many workers it takes, where that was worked out.

    Raises:
        CannotExpress: the pipeline has no faithful stand-alone form of this kind; the message says why.
    """
    known = Known(script, checked, epoch_batches, batch_bytes, need, no_index, no_fill)
    return kinds.find(kind).emit(parts, known)
