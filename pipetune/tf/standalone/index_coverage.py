"""Proves that indices put what several workers give back into the order of the source, by running the form with them.

What stands in for predictions is a fingerprint of each row. Where a pipeline draws random numbers, or pads rows to the
longest of their batch, a row differs from run to run, and its index alone is compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import Delivery
from pipetune.tf.standalone import probe
from pipetune.tf.standalone.counting import running
from pipetune.tf.standalone.emitted import loaded, maker
from pipetune.tf.standalone.service_coverage import running_service

WORKER_COUNTS = (2, 3)
_SECONDS = 4.0  # for everything once; with more workers as often again
_MOST_ROWS = 20_000

Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # index, fingerprint

_service = tf.data.experimental.service


class TooLong(Exception):
    """Running it all takes longer than there is time."""


def check_order(
    module_text: str,
    *,
    tuned: Pipeline,
    delivery: Delivery,
    parameter: Any = None,
    global_batch_size: int | None = None,
    epoch_batches: int | None = None,
) -> str:
    """What was found when the form was run as several workers, a sentence.

    Args:
        tuned: the pipeline that the module stands for.
        epoch_batches: in which a worker that never ends gives everything.

    Raises:
        CannotExpress: the order does not come back, or the form does not run.
    """
    with loaded(module_text) as module:
        make = maker(
            module, parameter=parameter, global_batch_size=global_batch_size, delivery=delivery, indexed=True
        )
        batched = any(node.op in ("batch", "padded_batch") for node in tuned)
        comparable = _comparable(tuned)
        most = epoch_batches if delivery is Delivery.WHOLE else None
        if delivery is Delivery.WHOLE and most is None:
            return "Whether indices restore the order was not run: how many steps an epoch has was not counted."
        once = delivery is not Delivery.WHOLE
        try:
            rows = _rows(make(1, 0, 1), batched=batched, comparable=comparable, most=most)
            alone = _in_order(module, rows, once=once)
            counts = (2,) if delivery in (Delivery.WHOLE, Delivery.SERVICE) else WORKER_COUNTS
            for workers in counts:
                if delivery is Delivery.SERVICE:
                    together = _from_service(make(1, 0, 1), workers, batched=batched, comparable=comparable)
                else:
                    alike = delivery is Delivery.WHOLE
                    made = (make(1, 0, 1) if alike else make(workers, worker, workers) for worker in range(workers))
                    together = list(
                        chain.from_iterable(
                            _rows(one, batched=batched, comparable=comparable, most=most) for one in made
                        )
                    )
                restored = _in_order(module, together[::-1], once=once)
                _compare(*((alone, restored) if once else _in_common(alone, restored)), workers)
        except TooLong:
            return "Whether indices restore the order was not run: the data is too long."
    shown = " and ".join(str(workers) for workers in counts)
    what = "rows" if comparable else "indices"
    return f"With {shown} workers indices put all {len(alone[0]):,} {what} back into the order of the source."


def _comparable(pipeline: Pipeline) -> bool:
    functions = [node.function for node in pipeline if node.function is not None]
    steady = not any(one.random or one.python or not one.stateless for one in functions)
    return steady and not any(node.op == "padded_batch" for node in pipeline)


def _rows(
    dataset: Any, *, batched: bool, comparable: bool, most: int | None = None
) -> list[tuple[Any, Any]]:
    """Index and fingerprint of the rows of each batch."""
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def look(index: Any, element: Any) -> tuple[Any, Any, Any]:
        rows = tf.shape(tf.nest.flatten(element)[0])[0] if batched else 1
        if not comparable:
            return index, index, rows
        if batched:
            return index, tf.map_fn(probe.fingerprint, element, fn_output_signature=tf.int64), rows
        return index, probe.fingerprint(element), rows

    looked_at = dataset.map(look)
    return list(_read(looked_at if most is None else looked_at.take(most)))


def _read(dataset: Any) -> Iterator[tuple[Any, Any]]:
    end, rows = time.monotonic() + _SECONDS, 0
    with running():
        for index, fingerprint, count in dataset.as_numpy_iterator():
            if count != np.size(index):
                raise CannotExpress(f"What stands behind the batch makes {count} rows of {np.size(index)}.")
            rows += int(np.size(index))
            if rows > _MOST_ROWS or time.monotonic() > end:
                raise TooLong
            yield index, fingerprint


def _from_service(dataset: Any, workers: int, *, batched: bool, comparable: bool) -> list[tuple[Any, Any]]:
    with running_service(workers) as address:
        fetched = dataset.apply(
            _service.distribute(_service.ShardingPolicy.DYNAMIC, address, compression=None)
        )
        return _rows(fetched, batched=batched, comparable=comparable)


def _in_order(module: Any, batches: list[tuple[Any, Any]], *, once: bool) -> Rows:
    """Index and fingerprint as the module's own `in_order` gives them back.

    Args:
        once: no element is to come twice.
    """
    if not batches:
        raise CannotExpress("The form with indices gives nothing.")
    indices = [index for index, _ in batches]
    both = module.in_order([{"index": index, "row": row} for index, row in batches], indices)
    if once and len(both["index"]) < sum(int(np.sum(index >= 0)) for index in indices):
        raise CannotExpress("Two elements have one index.")
    return both["index"], both["row"]


def _in_common(one: Rows, other: Rows) -> tuple[Rows, Rows]:
    """The rows that came both times: where epochs follow one another, so many steps may not have all of one."""
    _, first, second = np.intersect1d(one[0], other[0], return_indices=True)
    return (one[0][np.sort(first)], one[1][np.sort(first)]), (other[0][np.sort(second)], other[1][np.sort(second)])


def _compare(alone: Rows, together: Rows, workers: int) -> None:
    for one, other in zip(alone, together, strict=True):
        if not np.array_equal(one, other):
            raise CannotExpress(f"With {workers} workers the indices do not give the order of one back.")
