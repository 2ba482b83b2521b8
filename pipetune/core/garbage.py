"""Python's garbage collector, which every window ends with: an iterator left alive goes on filling its buffers."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def short_collections() -> Iterator[None]:
    """Collections within pass over what is alive now, which is mostly what TensorFlow imports: 0.2 s in each.

    Where the script has told the collector itself what to leave alone (`gc.freeze`), nothing is changed.
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
