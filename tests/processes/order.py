"""Checks that the indices of a module restore the data's order from the elements of several processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import DeliveryMode
from pipetune.distributed.verify.counting import running

INDEXED, IN_ORDER = "indexed_dataset_fn", "in_order"
"""The functions of a module that supports indices."""

_INDICES = "indices-{}.npz"


def offered(module: Any) -> bool:
    """Whether the module can return elements with their index and sort predictions by it."""
    return hasattr(module, INDEXED) and hasattr(module, IN_ORDER)


def read_indices(
    module: Any, folder: Path, process: int, *, delivery: DeliveryMode, workers: int, worker: int, given: dict[str, Any]
) -> None:
    """Saves the indices of each batch that a worker returns.

    Args:
        delivery: PARTS, or RANKS for a process that determines its rank by itself.
        given: further arguments of the module's functions.
    """
    context = (tf.distribute.InputContext(workers, worker, workers),) if delivery is DeliveryMode.PARTS else ()
    dataset = getattr(module, INDEXED)(*context, **given)
    with running():
        found = [np.asarray(index) for index, *_ in dataset.as_numpy_iterator()]
    np.savez(folder / _INDICES.format(process), *found)


def restored(module: Any, folder: Path, processes: Sequence[int]) -> bool | None:
    """Whether all elements are restored in order, without repetition; None if the processes wrote no indices.

    The indices themselves take the place of predictions, and the batches of the last process come first.
    """
    if not offered(module) or not all((folder / _INDICES.format(process)).exists() for process in processes):
        return None
    batches: list[Any] = []
    for process in reversed(processes):
        with np.load(folder / _INDICES.format(process)) as found:
            batches += [found[name] for name in found.files]
    if not batches:
        return None
    ordered = np.asarray(getattr(module, IN_ORDER)(batches, batches))
    came = sum(int(np.count_nonzero(indices >= 0)) for indices in batches)  # padding rows have no index
    return len(ordered) == came and bool(np.all(np.diff(ordered) > 0))
