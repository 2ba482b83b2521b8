"""Advice to batch elements of similar length if a large part of the batches is padding. It makes no edit.

Such batches contain other elements than the original ones, which is for the author of the model to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding, PaddingShares, finding_at
from pipetune.rewrites.legality import describe_operator, is_stateless
from pipetune.rewrites.rule import RuleContext

MIN_PADDING_SHARE = 0.10
"""Smallest share of padding that is reported."""

MIN_SAVED_SHARE = 0.05
"""Smallest share of all batch bytes that buckets must save to be reported."""

_ALLOWED_DOWNSTREAM = frozenset({"map", "prefetch", "repeat", "shuffle", "with_options", "copy_to_device"})
"""Operators allowed downstream: the number and the size of the batches make no difference to them."""


def suggest_length_buckets(context: RuleContext) -> Iterator[Finding]:
    """Yields the measured saving of `bucket_by_sequence_length` over each `padded_batch`, with the call to write."""
    for node in context.pipeline:
        measured = context.measured(node.id)
        padding = measured.padding if measured is not None and node.op == "padded_batch" else None
        if padding is None or padding.share < MIN_PADDING_SHARE or not _may_be_bucketed(node, padding, context):
            continue
        buckets = len(padding.boundaries) + 1
        yield finding_at(
            "bucket-batches",
            node,
            f"In the batches of {describe_operator(node)}, {padding.share:.0%} of the bytes are padding. "
            f"If each batch contained elements of similar length, in {buckets} buckets, it would be "
            f"{padding.bucketed_share:.0%}: {padding.saved_share:.0%} fewer bytes to produce and to train "
            f"on (measured on {padding.batches} batches).",
            hint=(
                f"Use {_format_call(node, padding)} instead of padded_batch. Each element still occurs once "
                "per epoch; which elements share a batch depends on their lengths, and the last batch of each "
                "bucket may be smaller. pipetune does not make this change, because the batches differ."
            ),
        )


def _may_be_bucketed(node: Node, padding: PaddingShares, context: RuleContext) -> bool:
    """Whether buckets would keep the elements of an epoch and save enough."""
    if padding.why_not or padding.saved_share < MIN_SAVED_SHARE:
        return False
    # The last batch of each bucket would be dropped, or elements of rare lengths would never be delivered.
    if node.argument("drop_remainder") or context.partial_read:
        return False
    return all(
        below.op in _ALLOWED_DOWNSTREAM and (below.op != "map" or is_stateless(below))
        for below in context.pipeline.downstream(node.id)
    )


def _format_call(node: Node, padding: PaddingShares) -> str:
    component = "element" + "".join(f"[{step!r}]" for step in padding.length_of)
    element = "*element" if padding.unpacked else "element"
    sizes = f"[{node.argument('batch_size')}] * {len(padding.boundaries) + 1}"
    boundaries = list(padding.boundaries)
    return f"bucket_by_sequence_length(lambda {element}: tf.shape({component})[0], {boundaries}, {sizes})"
