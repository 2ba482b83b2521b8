"""`bucket-batches`: batches of elements of about the same length, where padding is a large part of them."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Insert, Remove, Rewrite, Safety, Silence
from pipetune.core.padding import BUCKETS, Padding
from pipetune.core.pipeline import Node, Value
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import described, stateless
from pipetune.rules.pricing import buffer_bytes

NAME = "bucket-batches"

LEAST_PADDING = 0.10
"""The share of padding from which a reader is told of it."""

LEAST_SAVED = 0.05
"""The share of all bytes in the batches that buckets must leave out to be worth a question."""

_TAKES_BATCHES = frozenset({"map", "prefetch", "repeat", "shuffle", "with_options", "copy_to_device"})
"""Operators that may stand below: it makes no difference to them how many batches there are, and of what size."""


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        padding = _padding(node, context)
        if padding is None or padding.share < LEAST_PADDING:
            continue
        why = _forbidden(node, padding, context)
        if why:
            yield Silence(NAME, node.id, f"Of the batches of {described(node)} {padding.share:.0%} is padding; {why}.")
        else:
            yield _rewrite(node, padding, context)


def _padding(node: Node, context: RuleContext) -> Padding | None:
    measured = context.profile.operator(node.id) if context.profile is not None else None
    return measured.padding if measured is not None and node.op == "padded_batch" else None


def _forbidden(node: Node, padding: Padding, context: RuleContext) -> str:
    """Why batches may not be made by length here, as the end of a sentence; empty where they may."""
    if padding.why_not:
        return padding.why_not
    if node.argument("drop_remainder"):
        return "its incomplete batch is dropped: of batches by length, that of each length would be"
    if context.partial_read:
        return "training stops before the data is read to its end: elements of rare lengths would never come"
    for below in context.pipeline.downstream(node.id):
        if below.op not in _TAKES_BATCHES:
            return f"{described(below)} behind it would get other batches, and another number of them"
        if below.op == "map" and not stateless(below):
            return f"{described(below)} behind it does more than work on the batch it gets"
    if padding.saved_share < LEAST_SAVED:
        return f"in batches by length {padding.bucketed_share:.0%} would still be"
    return ""


def _rewrite(node: Node, padding: Padding, context: RuleContext) -> Rewrite:
    size, boundaries = node.argument("batch_size"), padding.boundaries
    assert isinstance(size, int)
    buckets = len(boundaries) + 1
    arguments: dict[str, Value] = {
        "batch_size": size,
        "element_length_func": padding.length_of,
        "unpacked": padding.unpacked,
        "bucket_boundaries": boundaries,
    }
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.REORDERS,
        edits=(Insert(node.id, BUCKETS, f"{BUCKETS}@{node.id}", arguments), Remove(node.id)),
        summary=(
            f"Put elements of about the same length into one batch: {padding.share:.0%} of the bytes in batches are "
            f"padding, in {buckets} buckets {padding.bucketed_share:.0%} would be, which is {padding.saved_share:.0%} "
            "less to make and to train on."
        ),
        group=f"{NAME}@{node.id}",
        notes=(
            "Each element comes once per epoch as before; which of them share a batch depends on their lengths.",
            f"The last batch of each of the {buckets} buckets may be smaller, and TensorFlow no longer knows how many "
            "batches there are.",
            f"Seen in {padding.batches} batches; padding is predicted from the lengths in them.",
        ),
        predicted_bytes=buffer_bytes(context, node.inputs[0], buckets * size),
    )


RULE = Rule(
    name=NAME,
    summary="Makes batches of elements of about the same length, so that less of them is padding.",
    legality=(
        "Only in place of a padded_batch that pads to the longest of each batch with the default values and drops no "
        f"remainder, where at least {LEAST_PADDING:.0%} of the bytes in a sample of batches is padding and buckets "
        f"between measured quantiles of the lengths leave out {LEAST_SAVED:.0%} of all bytes. Every bucket gets ten "
        "batches an epoch at least. Never in front of an operator that counts batches, batches again, caches or "
        "keeps state, nor where training stops before the data is read to its end."
    ),
    safety=(
        "REORDERS: every element once per epoch, in other batches and another order, and one batch per bucket may be "
        "smaller. Values are compared row by row, without the zeros behind them."
    ),
    propose=propose,
)
