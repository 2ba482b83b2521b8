"""Whether what several processes give comes back into the data's order by the indices that a module offers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.standalone import Delivery
from pipetune.tf.standalone.counting import running

INDEXED, IN_ORDER = "indexed_dataset_fn", "in_order"
"""The functions of a module that has a form with indices."""

_INDICES = "indices-{}.npz"


def offered(module: Any) -> bool:
    """Whether the module can give each element behind its index, and put predictions in order by that."""
    return hasattr(module, INDEXED) and hasattr(module, IN_ORDER)


def read_indices(
    module: Any, folder: Path, process: int, *, delivery: Delivery, workers: int, worker: int, given: dict[str, Any]
) -> None:
    """Writes down the indices of each batch that a worker gives.

    Args:
        delivery: PARTS, or RANKS for a process that finds out by itself which it is.
        given: what else the module's functions take.
    """
    context = (tf.distribute.InputContext(workers, worker, workers),) if delivery is Delivery.PARTS else ()
    dataset = getattr(module, INDEXED)(*context, **given)
    with running():
        found = [np.asarray(index) for index, *_ in dataset.as_numpy_iterator()]
    np.savez(folder / _INDICES.format(process), *found)


def restored(module: Any, folder: Path, processes: Sequence[int]) -> bool | None:
    """Whether all that came goes back into its order, nothing twice; None where the processes wrote no indices.

    What stands in for predictions is the index itself, and the batches of the last process come first.
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
    came = sum(int(np.count_nonzero(indices >= 0)) for indices in batches)  # rows that fill a batch have no index
    return len(ordered) == came and bool(np.all(np.diff(ordered) > 0))
