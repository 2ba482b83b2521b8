"""Faster garbage collections. Each window ends with one, because a live iterator would keep filling its buffers."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def short_collections() -> Iterator[None]:
    """Excludes the objects alive now (mostly TensorFlow's imports) from collections in the block: saves 0.2 s each.

    If the script itself has called `gc.freeze`, nothing is changed.
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
