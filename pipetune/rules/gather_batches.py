"""`gather-batches`: shuffle and batch row indices, then gather the rows of a whole batch at once."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Silence
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.gathering import gather_at_once

NAME = "gather-batches"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    yield from gather_at_once(
        context,
        rule=NAME,
        windows=False,
        summary="Hand on the numbers of the rows, and gather the rows of each batch of {size} at once{after}.",
    )


RULE = Rule(
    name=NAME,
    summary="Shuffles and batches row numbers of arrays in memory, and gathers the rows of a batch at once.",
    legality=(
        "Only for from_tensor_slices over dense arrays that nobody else reads, above a plain batch. Between the two "
        "may stand operators that hand elements through whole (shuffle, repeat, take, skip, shard, prefetch, a cache "
        "in memory, options) and maps that vectorize-map could put behind the batch: they are put there too. A "
        "shuffle keeps its seeds, so the order is the one it was. The arrays are handed to the function as tensors, "
        "never as constants in its graph."
    ),
    safety=(
        "EXACT: the same rows in the same order. With maps put behind the batch as vectorize-map says: APPROXIMATE "
        "where last bits depend on the number of rows, where the script sets "
        "`deterministic=False` batches may overtake each other: STATISTICAL, and REORDERS where the last may be short."
    ),
    propose=propose,
)
