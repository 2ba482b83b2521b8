"""`pad-batches`, and advice to batch elements of similar length where a large part of the batches is padding.

The advice makes no edit: its batches contain other elements, which is for the author of the model to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import NoProposal, Remove, ReplaceOperator, Rewrite, Safety
from pipetune.core.functions import Padding
from pipetune.core.measurement import percent
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding, PaddingShares, finding_at
from pipetune.rewrites.batch_first import added_buffer_bytes, batch_first_group, plain_batches, upstream_maps
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    describe_external_dependency,
    describe_operator,
    errors_are_ignored,
    is_stateless,
)

NAME = "pad-batches"


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields, for each batch of elements that the nearest map pads, the padded batch, or why there is none."""
    for batch in plain_batches(context.pipeline):
        nearest = next(upstream_maps(batch, context), None)
        padding = nearest.node.function.padding if nearest is not None and nearest.node.function is not None else None
        if nearest is None or padding is None:
            continue
        node = nearest.node
        if why := padding.why_not or _obstacle(node, batch, context):
            yield NoProposal(NAME, node.id, f"{describe_operator(node)} pads each element: {why}.")
        else:
            yield _rewrite(node, batch, padding, context)


def _obstacle(node: Node, batch: Node, context: RuleContext) -> str:
    """Returns why the batch cannot pad in place of the map; "" if it can."""
    if not is_stateless(node):
        return f"its function {describe_external_dependency(node) or 'draws random numbers'}"
    if batch.argument("num_parallel_calls") is not None:
        return f"{describe_operator(batch)} has parallel calls, which padded_batch has not"
    if errors_are_ignored(node, context):
        return "ignore_errors downstream drops an element that is too long, and would then drop a whole batch"
    return ""


def _rewrite(node: Node, batch: Node, padding: Padding, context: RuleContext) -> Rewrite:
    arguments = {
        "batch_size": batch.argument("batch_size"),
        "padded_shapes": padding.shapes,
        "drop_remainder": batch.argument("drop_remainder"),
    }
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.EXACT,
        edits=(ReplaceOperator(batch.id, "padded_batch", arguments), Remove(node.id)),
        summary=(
            f"Pad in {describe_operator(batch)}, with padded_batch, not in {describe_operator(node)}: values are "
            "copied once, and what is in between holds elements without padding."
        ),
        group=batch_first_group(batch),
        notes=("An element that is too long stops the batch with an error, as it stopped the map.",),
        predicted_bytes=added_buffer_bytes(batch, node, context),
    )


RULE = Rule(
    name=NAME,
    summary="Pads elements in the batch, with padded_batch, in place of a map that only pads them to a fixed size.",
    legality=(
        "The traced function of the nearest map before the batch must return every component as it is, or filled up "
        "with zeros behind its values, from any size of an axis to one fixed size: tf.pad by that size less the size "
        "of the axis. It may check the result with tf.ensure_shape, which rejects the same elements as padded_batch, "
        "but nothing else. Only operators that pass elements through unchanged may be in between (shuffle, repeat, "
        "take, skip, shard, prefetch). Never for a batch with parallel calls, and never with ignore_errors downstream."
    ),
    safety="EXACT: the same batches, in the same order, with the same static shapes.",
    propose=propose,
)


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
            f"In the batches of {describe_operator(node)}, {percent(padding.share)} of the bytes are padding. "
            f"If each batch contained elements of similar length, in {buckets} buckets, it would be "
            f"{percent(padding.bucketed_share)}: {percent(padding.saved_share)} fewer bytes to produce and to train "
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
