"""Checks for buffers whose size counts something else than the author assumed."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.amounts import element_bytes
from pipetune.core.operators import Count, facts
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.mistakes.use import Use, batch_size, nodes_of, said

_DEEP = 8  # batches: fewer may be intended


def prefetched_by_batch_size(use: Use) -> Iterator[Finding]:
    """Reports `batch(64).prefetch(64)`: prefetch counts its input elements, which are batches."""
    for prefetch in nodes_of(use, "prefetch"):
        held, batch = prefetch.argument("buffer_size"), _batch_above(use, prefetch)
        size = batch_size(batch) if batch is not None else None
        if size is None or held != size or size < _DEEP:
            continue
        each = element_bytes(use.pipeline, use.profile, prefetch.id)
        holds = f", {held * each / 2**20:,.0f} MiB" if each is not None and held * each >= 2**20 else ""
        yield said(
            "prefetch-batch-size",
            prefetch,
            f"prefetch({held}) stands behind batch({size}) and counts batches, not examples: it fills up with "
            f"{held:,} batches ({held * size:,} examples{holds}).",
            "prefetch(tf.data.AUTOTUNE), or two or three batches.",
        )


def _batch_above(use: Use, node: Node) -> Node | None:
    """Returns the operator that built the batches that `node` receives, if they reach it one to one."""
    while len(node.inputs) == 1:
        node = use.pipeline[node.inputs[0]]
        if batch_size(node) is not None:
            return node
        if facts(node.op).count is not Count.ONE_TO_ONE and node.op != "repeat":
            return None
    return None
