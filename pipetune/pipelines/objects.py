"""All live objects: to find the variables and tables that the script created, and its iterators."""

from __future__ import annotations

import gc
from typing import Any


def live_objects() -> list[Any]:
    """Returns all objects that the garbage collector tracks, including frozen ones (`gc.freeze`)."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    found = gc.get_objects()
    if frozen:
        gc.freeze()
    return found
