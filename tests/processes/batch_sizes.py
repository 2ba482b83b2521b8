"""Reads whole batches for their sizes alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def rows(element: Any) -> int:
    """Rows of a batch; an element that is none counts as one."""
    parts = [part for part in tf.nest.flatten(element) if part.shape.rank]
    return int(tf.shape(parts[0])[0]) if parts else 1


def sizes_of(dataset: Iterable[Any], most_steps: int | None) -> list[int]:
    """The size of each batch, of at most so many."""
    return list(itertools.islice(map(rows, dataset), most_steps))
