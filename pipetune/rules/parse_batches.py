"""`parse-batches`: parse serialized examples, CSV lines and other text a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Silence
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.batching import batch_first, parses

NAME = "parse-batches"

def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    yield from batch_first(
        context,
        rule=NAME,
        summary="Batch first, then call {maps} once per batch of {size}: it parses {size} at a time.",
        concerns=parses,
    )


RULE = Rule(
    name=NAME,
    summary="Parses a batch at a time: serialised examples, CSV, raw bytes, text.",
    legality=(
        "Only as vectorize-map, for functions that parse: tf.io.parse_single_example, tf.io.decode_csv, "
        "tf.io.decode_raw, string ops, and what else they do. A function with sparse or ragged features is called on "
        "batches with tf.io.parse_example in place of tf.io.parse_single_example; nothing may be done with those "
        "features in the same function. Where tf.vectorized_map has no form for what parses (tf.io.decode_raw), the "
        "function is cut in two behind that: the beginning is called on batches as it is, the rest through "
        "tf.vectorized_map. What tf.io.decode_raw decodes must have one length, by how the function takes it apart. "
        "Sequence examples stay as they are."
    ),
    safety=(
        "EXACT: parsing gives the same values, shapes and sparse shapes for a batch. Other ops of the function may "
        "make it APPROXIMATE, and a short last batch behind an unordered map REORDERS, as in "
        "vectorize-map."
    ),
    propose=propose,
)
