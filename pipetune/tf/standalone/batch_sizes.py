"""Reads whole batches for their sizes alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def rows(element: Any) -> int:
    """Rows of a batch; an element that is none counts as one."""
    parts = [part for part in tf.nest.flatten(element) if part.shape.rank]
    return int(tf.shape(parts[0])[0]) if parts else 1


def sizes_of(dataset: Iterable[Any], most_steps: int | None, started: float) -> tuple[list[int], float]:
    """The size of each batch, and the seconds from `started` (of `time.perf_counter`) until the first."""
    return timed(map(rows, dataset), most_steps, started)


def timed(sizes: Iterable[int], most_steps: int | None, started: float) -> tuple[list[int], float]:
    """At most so many of the sizes, and the seconds until the first."""
    found: list[int] = []
    first = 0.0
    for size in sizes:
        found.append(size)
        first = first or time.perf_counter() - started
        if len(found) == most_steps:
            break
    return found, first
