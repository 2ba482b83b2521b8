"""All live objects: to find the variables and tables that the script created, and to free its iterators."""

from __future__ import annotations

import gc
from typing import Any

from pipetune import tensorflow_private

RESOURCE_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    tensorflow_private.OwnedIterator: ("_iterator_resource", "_dataset"),
    tensorflow_private.DistributedIterator: ("_iterators",),
}
"""By class, the attributes that hold the runtime's iterator."""


def live_objects() -> list[Any]:
    """Returns all objects that the garbage collector tracks, including frozen ones (`gc.freeze`)."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    found = gc.get_objects()
    if frozen:
        gc.freeze()
    return found


def free_iterators() -> None:
    """Frees what the runtime holds for every iterator: threads, buffers, and the lock of a cache that is being filled.

    The Python objects stay; taking an element from one raises an error.
    """
    for candidate in live_objects():
        for kind, held in RESOURCE_ATTRIBUTES.items():
            if issubclass(type(candidate), kind):
                for name in held:
                    setattr(candidate, name, None)
    gc.collect()
