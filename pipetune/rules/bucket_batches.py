"""Advice to batch elements of similar length if a large part of the batches is padding. It makes no edit.

Such batches contain other elements than the original ones, which is for the author of the model to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.padding import Padding
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.rules.base import RuleContext
from pipetune.rules.legality import described, stateless

LEAST_PADDING = 0.10
"""Smallest share of padding that is reported."""

LEAST_SAVED = 0.05
"""Smallest share of all batch bytes that buckets must save to be reported."""

_TAKES_BATCHES = frozenset({"map", "prefetch", "repeat", "shuffle", "with_options", "copy_to_device"})
"""Operators allowed downstream: the number and the size of the batches make no difference to them."""


def length_buckets(context: RuleContext) -> Iterator[Finding]:
    """Yields the measured saving of `bucket_by_sequence_length` over each `padded_batch`, with the call to write."""
    for node in context.pipeline:
        padding = _padding(node, context)
        if padding is None or padding.share < LEAST_PADDING or not _may_be_bucketed(node, padding, context):
            continue
        buckets, place = len(padding.boundaries) + 1, node.location
        yield Finding(
            code="bucket-batches",
            message=(
                f"Of the bytes in the batches of {described(node)} {padding.share:.0%} are padding. With elements of "
                f"about the same length in a batch, in {buckets} buckets, {padding.bucketed_share:.0%} would be: "
                f"{padding.saved_share:.0%} less to make and to train on (seen in {padding.batches} batches)."
            ),
            hint=(
                f"{_call(node, padding)} in place of padded_batch. Each element comes once per epoch as before; which "
                f"of them share a batch depends on their lengths, and the last batch of each bucket may be smaller. "
                "pipetune does not change it: these are other batches."
            ),
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
        )


def _padding(node: Node, context: RuleContext) -> Padding | None:
    measured = context.profile.operator(node.id) if context.profile is not None else None
    return measured.padding if measured is not None and node.op == "padded_batch" else None


def _may_be_bucketed(node: Node, padding: Padding, context: RuleContext) -> bool:
    """Whether buckets would keep the elements of an epoch and save enough."""
    if padding.why_not or padding.saved_share < LEAST_SAVED:
        return False
    if node.argument("drop_remainder"):  # the last batch of each bucket would be dropped
        return False
    if context.partial_read:  # elements of rare lengths would never be delivered
        return False
    return all(
        below.op in _TAKES_BATCHES and (below.op != "map" or stateless(below))
        for below in context.pipeline.downstream(node.id)
    )


def _call(node: Node, padding: Padding) -> str:
    component = "element" + "".join(f"[{step!r}]" for step in padding.length_of)
    element = "*element" if padding.unpacked else "element"
    sizes = f"[{node.argument('batch_size')}] * {len(padding.boundaries) + 1}"
    boundaries = list(padding.boundaries)
    return f"bucket_by_sequence_length(lambda {element}: tf.shape({component})[0], {boundaries}, {sizes})"
