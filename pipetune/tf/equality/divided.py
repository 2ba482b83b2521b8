"""Checks that a strategy divides the batches of a plan over its replicas as it divides those of the script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.comparison import Check
from pipetune.tf import private
from pipetune.tf.pipelines import operators
from pipetune.tf.script.handing_over import HandedOver

_NAME = "replicas"
_BATCHING = frozenset({"batch", "padded_batch", "ragged_batch"})


def divided_alike(handed: HandedOver, tuned: Any) -> Iterator[Check]:
    """Checks that every replica gets the same rows as before; yields nothing if batches are not divided.

    A strategy infers the batch size: it walks upstream from the end of the pipeline to the operator that batches, and
    gives up at a map on the way. If it knows the size, and shards by file or not at all, it deals rows to the replicas
    by that size; otherwise it divides every batch by its own size. A smaller last batch then goes to other replicas
    (TensorFlow 2.21, `input_lib._make_rebatch_fn` and `_AutoShardDataset`).

    Args:
        handed: the script's dataset and the strategy call that distributes it.
        tuned: the dataset of the plan.
    """
    before = handed.facts()
    if not before.shares:
        return
    after = replace(handed, dataset=tuned, distributed=handed.like(tuned)).facts()
    size, count = before.batch or after.batch, len(before.shares)
    if before.by_own_size and after.by_own_size:
        yield Check(_NAME, True, f"every batch is divided over {count} replicas by its own size, as before")
    elif before.by_own_size == after.by_own_size:
        said = f"{_sizes(before.shares)} rows of a batch"
        alike = before.shares == after.shares
        detail = f"the replicas get {said} as before" if alike else f"{_sizes(after.shares)} instead of {said}"
        yield Check(_NAME, alike, detail)
    elif size and size % count == 0 and not _may_be_partial(handed.dataset):
        yield Check(_NAME, True, f"each of {count} replicas gets {size // count} rows of every batch as before")
    else:
        yield Check(
            _NAME,
            False,
            "the strategy would divide batches that are not full, or not even, over its replicas in another way; with "
            "drop_remainder=True in the script's batch it could not",
        )


def _may_be_partial(dataset: Any) -> bool:
    """Whether some batch may be smaller than the others: not with `drop_remainder` or an infinite batched dataset."""
    while operators.kind_of(dataset).op not in _BATCHING:
        above = private.inputs(dataset)
        if len(above) != 1:
            return True
        (dataset,) = above
    (source,) = private.inputs(dataset)
    drops = operators.read_arguments(dataset, operators.kind_of(dataset)).get("drop_remainder")
    return not drops and int(source.cardinality()) != tf.data.INFINITE_CARDINALITY


def _sizes(shares: tuple[int, ...]) -> str:
    return ", ".join(map(str, shares))
