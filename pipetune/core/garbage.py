"""Faster garbage collections. Each window ends with one, because a live iterator would keep filling its buffers."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def shortened_collections() -> Iterator[None]:
    """Context manager: excludes the objects alive on entry (mostly TensorFlow's imports) from garbage collections.

    Saves about 0.2 s per collection.

    Does nothing if the script itself has called `gc.freeze`.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
