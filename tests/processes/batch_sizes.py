"""The sizes of the batches of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def rows(element: Any) -> int:
    """The number of rows of a batch; a scalar element counts as one row."""
    parts = [part for part in tf.nest.flatten(element) if part.shape.rank]
    return int(tf.shape(parts[0])[0]) if parts else 1


def sizes_of(dataset: Iterable[Any], most_steps: int | None) -> list[int]:
    """The sizes of at most `most_steps` batches."""
    return list(itertools.islice(map(rows, dataset), most_steps))
