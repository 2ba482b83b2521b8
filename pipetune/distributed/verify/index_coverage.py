"""Proves that indices restore the source order of what several workers deliver, by running the variant with indices.

A fingerprint of each row takes the place of predictions. If a pipeline draws random numbers, or pads rows to the
longest one of their batch, rows differ from run to run, and only their indices are compared.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import DeliveryMode
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.emit.sharding import BATCHES
from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.counting import running
from pipetune.distributed.verify.emitted import emitted, opened
from pipetune.distributed.verify.service_coverage import running_service

WORKER_COUNTS = (2, 3)  # numbers of workers to run, by judgement: more would take longer
ALIKE_COUNTS = (2,)  # if all workers run the same pipeline, or a service has to be started for them
_SECONDS = 4.0  # limit for reading one dataset to its end
_MOST_ROWS = 20_000  # rows compared, at most; chosen by judgement: longer data is left unchecked, more takes longer

Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # index, fingerprint
Batches = list[tuple[Any, Any]]  # index and fingerprint of the rows of each batch

_service = tf.data.experimental.service


class NotRun(Exception):
    """The variant cannot be run, or not to its end; the message is the end of a sentence."""


def check_order(
    module_text: str,
    *,
    tuned: Pipeline,
    delivery: DeliveryMode,
    parameter: Any = None,
    global_batch_size: int | None = None,
    epoch_batches: int | None = None,
) -> str:
    """Runs the variant of a module with indices as several workers, and returns a sentence on the result.

    Args:
        tuned: the pipeline that the module implements; other arguments are as in `emitted`.
        epoch_batches: number of batches in which an endless worker delivers all data; None if unknown.

    Raises:
        CannotExpress: the order is not restored, or the variant does not run.
    """
    whole = delivery is DeliveryMode.WHOLE
    if whole and epoch_batches is None:
        return "Whether indices restore the order was not run: how many steps an epoch has was not counted."
    counts = ALIKE_COUNTS if delivery in (DeliveryMode.WHOLE, DeliveryMode.SERVICE) else WORKER_COUNTS
    with emitted(
        module_text, delivery=delivery, parameter=parameter, global_batch_size=global_batch_size, indexed=True
    ) as make:
        form = _Form(opened(), tuned, most=epoch_batches if whole else None)
        try:
            alone = form.in_order(form.batches(make(1, 0, 1)))
            for workers in counts:
                if delivery is DeliveryMode.SERVICE:
                    with running_service(workers) as address:
                        served = _service.distribute(_service.ShardingPolicy.DYNAMIC, address, compression=None)
                        given = form.batches(make(1, 0, 1).apply(served))
                else:
                    parts = [make(1, 0, 1) if whole else make(workers, one, workers) for one in range(workers)]
                    given = list(chain.from_iterable(map(form.batches, parts)))
                together = form.in_order(given[::-1])
                _compare(*(_in_common(alone, together) if whole else (alone, together)), workers)
        except NotRun as reason:
            return f"Whether indices restore the order was not run: {reason}."
    shown, what = " and ".join(map(str, counts)), "rows" if form.steady else "indices"
    return f"With {shown} workers indices put all {len(alone[0]):,} {what} back into the order of the source."


class _Form:
    """Reads indices and fingerprints from the datasets of a module."""

    def __init__(self, module: Any, tuned: Pipeline, *, most: int | None) -> None:
        """Takes the module, its pipeline, and the most batches to read from an endless worker; None: all batches."""
        self._module, self._most = module, most
        self._batched = any(node.op in BATCHES for node in tuned)
        padded = any(node.op == "padded_batch" for node in tuned)
        drawn = any(node.function is not None and not node.function.stateless for node in tuned)
        self.steady = not padded and not drawn  # a row does not depend on the run or on its batch

    def batches(self, dataset: Any) -> Batches:
        """Returns index and fingerprint of the rows of each batch."""
        found: Batches = []
        end, seen = time.monotonic() + _SECONDS, 0
        with running():
            for index, fingerprint, rows in self._looked_at(dataset).as_numpy_iterator():
                if rows != np.size(index):
                    raise CannotExpress(f"What stands behind the batch makes {rows} rows of {np.size(index)}.")
                seen += int(rows)
                if seen > _MOST_ROWS or time.monotonic() > end:
                    raise NotRun("the data is too long")
                found.append((index, fingerprint))
        return found

    def in_order(self, batches: Batches) -> Rows:
        """Returns index and fingerprint of all rows as ordered by the module's own function `in_order`."""
        if not batches:
            raise CannotExpress("The form with indices gives nothing.")
        indices = [index for index, _ in batches]
        both = self._module.in_order([{"index": index, "row": row} for index, row in batches], indices)
        if self._most is None and len(both["index"]) < sum(int(np.sum(index >= 0)) for index in indices):
            raise CannotExpress("Two elements have one index.")
        return both["index"], both["row"]

    def _looked_at(self, dataset: Any) -> Any:
        parts = tf.nest.flatten(dataset.element_spec[1])
        dense = [isinstance(part, tf.TensorSpec) for part in parts]
        self.steady = self.steady and all(dense)

        def look(index: Any, element: Any) -> tuple[Any, Any, Any]:
            rows = tf.size(index)
            if self._batched and any(dense):
                rows = tf.shape(tf.nest.flatten(element)[dense.index(True)])[0]
            if not self.steady:
                return index, index, rows
            if self._batched:
                return index, tf.map_fn(numbering.fingerprint, element, fn_output_signature=tf.int64), rows
            return index, numbering.fingerprint(element), rows

        try:
            looked_at = dataset.map(tf.autograph.experimental.do_not_convert(look))
        except (TypeError, ValueError, NotImplementedError) as error:
            raise NotRun("its elements cannot be compared") from error
        return looked_at if self._most is None else looked_at.take(self._most)


def _in_common(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    """Returns the rows that both readings have: a fixed number of steps of an endless dataset may miss some."""
    _, first, second = np.intersect1d(one[0], other[0], return_indices=True)
    return (one[0][np.sort(first)], one[1][np.sort(first)]), (other[0][np.sort(second)], other[1][np.sort(second)])


def _compare(alone: Rows, together: Rows, workers: int) -> None:
    for one, other in zip(alone, together, strict=True):
        if not np.array_equal(one, other):
            raise CannotExpress(f"With {workers} workers the indices do not give the order of one back.")
