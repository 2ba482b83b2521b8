"""Runs a pipeline through epochs and records when each element arrives; helps to time the fill of shuffle buffers."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Insert, Remove, SetArgument
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import RunFailed
from pipetune.search.course import Epoch
from pipetune.tf.measure import failures, windows
from pipetune.tf.pipelines import live, replay

MOST_ELEMENTS = 100_000  # arrival times kept


def run_epochs(
    dataset: Any, *, seconds: float, most_epochs: int = 20, most_elements: int = MOST_ELEMENTS
) -> list[Epoch]:
    """Consumes the dataset as `fit` does, with a new iterator per epoch, for about `seconds`; returns the epochs seen.

    An endless dataset is one epoch that does not end. The time to create an iterator counts towards its first
    element.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    end = time.perf_counter() + seconds
    epochs: list[Epoch] = []
    left = most_elements
    while len(epochs) < most_epochs and left > 0 and (not epochs or time.perf_counter() < end):
        windows.settle()
        epoch = _run_epoch(dataset, end, left)
        if not epoch.arrivals:
            if not epochs:
                raise RunFailed("The dataset is empty.")
            break
        epochs.append(epoch)
        left -= len(epoch.arrivals)
        if not epoch.complete:
            break
    windows.settle()
    return epochs


def first_seconds(dataset: Any) -> float:
    """Returns the seconds from requesting an iterator to its first element.

    Raises:
        RunFailed: the pipeline raised, or is empty.
    """
    windows.settle()
    epoch = _run_epoch(dataset, time.perf_counter(), 1)
    windows.settle()
    if not epoch.arrivals:
        raise RunFailed("The dataset is empty.")
    return epoch.first_seconds


def without_shuffle(source: live.LivePipeline) -> Any | None:
    """The pipeline with every shuffle buffer at one element; None if nothing shuffles or it cannot be rebuilt."""
    return _edited(
        source,
        [
            SetArgument(node.id, "buffer_size", 1)
            for node in source.pipeline
            if node.op == "shuffle" and node.argument("buffer_size") not in (None, 1)
        ],
    )


def with_empty_caches(source: live.LivePipeline) -> Any | None:
    """The pipeline with new, empty memory caches in place of those that earlier windows have filled.

    None if it has no memory cache or cannot be rebuilt. A cache in a file belongs to the user and is kept.
    """
    edits: list[Edit] = []
    for node in source.pipeline:
        if node.op == "cache" and not node.argument("filename"):
            edits += [Insert(node.id, "cache", f"cache@{node.id}", {"filename": ""}), Remove(node.id)]
    return _edited(source, edits)


def _edited(source: live.LivePipeline, edits: list[Edit]) -> Any | None:
    if not edits:
        return None
    try:
        return replay.replay(source, apply_edits(source.pipeline, edits))
    except (PipetuneError, tf.errors.OpError, ValueError, TypeError):
        return None


def _run_epoch(dataset: Any, end: float, most: int) -> Epoch:
    arrivals: list[float] = []
    complete = False
    asked = time.perf_counter()
    iterator: Any = None
    try:
        with failures.told():
            iterator = iter(dataset)
            try:
                while True:
                    next(iterator)
                    now = time.perf_counter()
                    arrivals.append(now - asked)
                    if now >= end or len(arrivals) >= most:
                        break
            except StopIteration:
                complete = True
    finally:
        del iterator
    return Epoch(tuple(arrivals), complete)
