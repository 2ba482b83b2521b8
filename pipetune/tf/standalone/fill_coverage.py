"""Proves that a module which fills its last batches gives full ones only, and all of the data under the mask."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pipetune.core.errors import CannotExpress
from pipetune.core.standalone import Delivery
from pipetune.tf.standalone.counting import running
from pipetune.tf.standalone.emitted import fitting_batch_size, loaded, maker

_SECONDS = 3.0  # for the parts of all workers; what is longer is looked at up to there
_WORKERS = 2
_GLANCE = 8  # batches, where nobody knows how many there are


def check_fill(
    module_text: str, *, global_batch_size: int, elements: int | None, parameter: Any = None
) -> str:
    """What was found when it was run as two workers, and as one that feeds two replicas; a sentence.

    Args:
        elements: of an epoch, where they were counted and an epoch ends with the data; else None.

    Raises:
        CannotExpress: a batch is not full, the mask does not count the data, or the module does not run.
    """
    rows = fitting_batch_size(global_batch_size, _WORKERS) // _WORKERS
    with loaded(module_text) as module:
        make = maker(
            module, parameter=parameter, global_batch_size=global_batch_size, delivery=Delivery.PARTS, fill=True
        )
        apart = [make(_WORKERS, worker, _WORKERS) for worker in range(_WORKERS)]
        for made in (apart, [make(1, 0, _WORKERS)]):
            batches = seen = 0
            end = time.monotonic() + _SECONDS
            for one in made:
                for mask in _masks(one if elements is not None else one.take(_GLANCE), end):
                    if len(mask) != rows:
                        raise CannotExpress(f"A batch that should be full has {len(mask)} of {rows} rows.")
                    batches, seen = batches + 1, seen + int(mask.sum())
            whole = elements is not None and time.monotonic() < end
            if whole and seen != elements:
                raise CannotExpress(f"Of {elements} elements {seen} stand in full batches.")
            if whole and len(made) == 1 and batches % _WORKERS:
                raise CannotExpress(f"{batches} batches are no whole steps of {_WORKERS} replicas.")
    if elements is None or not whole:
        return f"With fill=True batches are full, as {_WORKERS} workers and as {_WORKERS} replicas of one."
    return (
        f"With fill=True all {elements:,} elements came in full batches, as {_WORKERS} workers and as {_WORKERS} "
        "replicas of one."
    )


def _masks(dataset: Any, end: float) -> Iterator[Any]:
    shapes = {
        dimension
        for part in tf.nest.flatten(dataset.element_spec)
        if isinstance(part, tf.TensorSpec)
        for dimension in part.shape[:1]
    }
    if None in shapes:
        raise CannotExpress("The number of rows in a filled batch is not fixed.")
    with running():
        for mask in dataset.map(lambda _, mask: mask).as_numpy_iterator():
            yield mask
            if time.monotonic() > end:
                return
