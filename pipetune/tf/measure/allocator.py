"""Releases memory that the allocator retains, before the peak memory of a pipeline is measured."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> bool:
    """Releases the allocator's free memory to the system (malloc_trim(3)); False if nothing could be released.

    Memory that the script used earlier (a filled shuffle buffer, a preview) stays with the process when it is freed,
    and a pipeline that takes the same memory again would seem to need none.
    """
    gc.collect()
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError):
        return False
