"""`pad-batches`: pads elements while they are batched, in place of a map that pads each of them before."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import NoProposal, Remove, ReplaceOperator, Rewrite, Safety
from pipetune.core.functions import Padding
from pipetune.core.pipeline import Node
from pipetune.rewrites.batch_first import added_buffer_bytes, batch_first_group, plain_batches, upstream_maps
from pipetune.rewrites.legality import describe_external_dependency, describe_operator, errors_are_ignored, is_stateless
from pipetune.rewrites.rule import Rule, RuleContext

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
