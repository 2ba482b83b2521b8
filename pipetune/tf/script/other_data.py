"""Describes data for `fit` that is no tf.data dataset: how Keras reads it, and what can be measured immediately."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf


def described(value: Any) -> str:
    """Describes the data and what could make its input faster, as text without a final full stop."""
    kinds = {base.__name__ for base in type(value).__mro__}
    if "PyDataset" in kinds:
        return _python_batches(value)
    arrays = tf.nest.flatten(value)
    if arrays and all(isinstance(one, np.ndarray | tf.Tensor) and one.ndim for one in arrays):
        return _arrays(arrays)
    return f"Model.fit was given {type(value).__name__}, not a tf.data.Dataset"


def _arrays(arrays: list[Any]) -> str:
    rows = len(arrays[0])
    size = sum(int(np.prod(one.shape)) * one.dtype.itemsize if isinstance(one, np.ndarray) else
               int(np.prod(one.shape)) * one.dtype.size for one in arrays)  # fmt: skip
    kind = type(arrays[0]).__name__
    return (
        f"Model.fit was given {kind} ({rows:,} rows, {size / 2**20:,.1f} MiB), not a tf.data.Dataset; Keras draws row "
        "numbers and gathers each batch of rows at once, which leaves nothing to tune while the rows need no work"
    )


def _python_batches(value: Any) -> str:
    """Describes a `PyDataset`: Python code makes every batch, in as many workers as it specifies."""
    kind, workers = type(value).__name__, int(getattr(value, "workers", 1) or 1)
    processes = bool(getattr(value, "use_multiprocessing", False))
    how = f"workers={workers}, use_multiprocessing={processes}, max_queue_size={getattr(value, 'max_queue_size', 10)}"
    said = f"Model.fit was given {kind}, not a tf.data.Dataset; Python code makes its batches ({how})"
    seconds = _seconds_of_one(value)
    if seconds is None:
        return said
    most = workers / seconds
    limit = "at most" if processes or workers == 1 else "fewer, as threads take turns at the interpreter, than"
    return (
        f"{said}: one took {1e3 * seconds:.3g} ms, so training gets {limit} {most:,.3g} batches/s. More workers with "
        "use_multiprocessing=True raise that, or a tf.data.Dataset whose maps hold no Python"
    )


def _seconds_of_one(value: Any) -> float | None:
    """Measures a second access to the first batch, in seconds; Keras, too, reads some batches before it trains."""
    try:
        value[0]
        started = time.perf_counter()
        value[0]
        return max(1e-6, time.perf_counter() - started)
    except Exception:  # whatever the user's code raises, `fit` is about to raise it
        return None
