"""`gather-windows`: pass the start indices of windows of a series, and gather the windows of a whole batch at once."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Silence
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.gathering import gather_at_once

NAME = "gather-windows"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    yield from gather_at_once(
        context,
        rule=NAME,
        windows=True,
        summary="Hand on where the windows start, and gather the windows of each batch of {size} at once{after}.",
    )


RULE = Rule(
    name=NAME,
    summary="Replaces windows made one by one of arrays in memory by one gather of the windows of a batch.",
    legality=(
        "Only for window(...) directly behind from_tensor_slices over dense arrays, with a flat_map directly behind it "
        "whose function batches each window whole and does nothing else, and where windows cut short by the end are "
        "dropped; or for windows as keras.utils.timeseries_dataset_from_array makes them (its operators, and functions "
        "that compute the same), with targets or without, in any order. What may stand between that and the batch is "
        "what gather-batches allows: maps go behind the batch, through tf.vectorized_map where no shape says how long "
        "a window is."
    ),
    safety=(
        "EXACT: the same windows in the same order, with the same static shapes; the cardinality, unknown behind a "
        "flat_map, is then known, and the rewrite says so. With maps put behind the batch as "
        "vectorize-map says: APPROXIMATE where last bits depend on the number of rows, with "
        "`deterministic=False` as in gather-batches."
    ),
    propose=propose,
)
