"""`vectorize-map`: batch first, then call the function once per batch instead of once per element."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Silence
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.batching import batch_first, parses

NAME = "vectorize-map"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    yield from batch_first(
        context,
        rule=NAME,
        summary="Batch first, then call {maps} once per batch of {size}, not once per element.",
        concerns=_computes,
    )


def _computes(node: Node) -> bool:
    return not parses(node)


RULE = Rule(
    name=NAME,
    summary="Batches first and calls the map's function once per batch, where it gives the same rows.",
    legality=(
        "The function is traced on batches, and must be, op by op, what the function of single elements is when each "
        "op is given one axis more: axes, slices, shapes, attributes and constants included. Where that cannot be "
        "shown it is called through tf.vectorized_map, if every op of it is one that TensorFlow converts rightly, "
        "which was tried for each, and needs no loop. "
        "Never a function with state, Python, control flow, a check on values or random numbers; never with a "
        "cast of floats that may not fit a small integer, which is done otherwise in a batch than alone; never "
        "where a component of the map's input has no fixed shape. The batch must be a plain one, and between the "
        "two may stand only operators that hand elements through whole (shuffle, repeat, take, skip, shard, "
        "prefetch). Values are compared on real elements before a plan holds it."
    ),
    safety=(
        "EXACT where every op gives the same bits on batches, but for the sign of a zero behind relu, minimum, maximum "
        "and clipping, which is noted. APPROXIMATE with ops whose last bits depend on how many rows they get at once "
        "(exp, log, pow, sums of floats). REORDERS where the map ran unordered and the last batch may be short."
    ),
    propose=propose,
)
