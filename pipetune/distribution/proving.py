"""Checks a distributed module by running it: what its workers receive, and in which order."""

from __future__ import annotations

import math

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import Delivery
from pipetune.distribution.saying import Checks, clause
from pipetune.source.standalone_kind import Kind, Standalone
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.standalone import coverage, fill_coverage, index_coverage, service_coverage
from pipetune.tf.standalone.coverage import Counted

_BATCHES = frozenset({"batch", "padded_batch"})


def count(
    kind: Kind, written: Standalone, source: LivePipeline, tuned: Pipeline, *, parameter: object
) -> Counted:
    """Counts what the workers receive for several numbers of workers; runs the written module in this process.

    Args:
        kind: the kind of the module.
        written: the module.
        source: the user's live pipeline.
        tuned: the pipeline that the module implements.
        parameter: what the module takes as its argument `source`.

    Raises:
        CannotExpress: the module does not run, or is not the tuned pipeline.
        CannotReplay: the pipeline cannot be reduced to what is counted.
    """
    if kind.delivery is Delivery.SERVICE:
        return service_coverage.check_service(
            written.text,
            source,
            tuned=tuned,
            splits=written.splits,
            parameter=parameter,
            batch_size=written.batch_size,
        )
    return coverage.count(
        written.text,
        source,
        tuned=tuned,
        parameter=parameter,
        shard_by=written.shard_by,
        global_batch_size=written.global_batch_size,
        batch_size=written.batch_size,
        delivery=kind.delivery,
        one_process=kind.one_process,
    )


def full(written: Standalone, checks: Checks, tuned: Pipeline, *, parameter: object) -> tuple[str, str]:
    """Checks that last batches are filled: a sentence on the result, or "" and why the feature is left out."""
    if not written.fills or written.global_batch_size is None:
        return "", ""
    ends = not any(node.op == "repeat" for node in tuned)
    elements = checks[0]["elements"] if ends and checks[0].get("filled") is not None else None
    try:
        return fill_coverage.check_fill(
            written.text,
            global_batch_size=written.global_batch_size,
            elements=elements if isinstance(elements, int) else None,
            parameter=parameter,
        ), ""
    except CannotExpress as error:
        return "", clause(error)


def order(
    kind: Kind, written: Standalone, tuned: Pipeline, checks: Checks, *, parameter: object
) -> tuple[str, str]:
    """Checks the variant with indices by running it: a sentence on the result, or "" and why it is left out."""
    if not written.indexed:
        return "", ""
    try:
        return index_coverage.check_order(
            written.text,
            tuned=tuned,
            delivery=kind.delivery,
            parameter=parameter,
            global_batch_size=written.global_batch_size,
            epoch_batches=epoch_batches(checks, tuned, written.batch_size, every_row=True),
        ), ""
    except CannotExpress as error:
        return "", clause(error)


def epoch_batches(
    checks: Checks, tuned: Pipeline, batch_size: int | None, *, every_row: bool = False
) -> int | None:
    """Batches that contain all of the data once; None if not counted. `every_row` counts an incomplete last batch."""
    first = checks[0]
    elements = first["elements"]
    if first.get("counted") != "elements" or first.get("batches_per_worker") is None or not isinstance(elements, int):
        return None
    drops = not every_row and any(node.argument("drop_remainder") for node in tuned if node.op in _BATCHES)
    size = batch_size or 1
    return elements // size if drops else math.ceil(elements / size)
