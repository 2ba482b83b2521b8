"""Ends a group of processes that communicate."""

from __future__ import annotations

import os
import signal
import time


def ended(children: set[int], deadline: float) -> bool:
    """Whether all processes succeed before the deadline (of `time.monotonic`); those still running then are killed.

    When one fails, the others are killed as well, because they would wait for it.
    """
    left = set(children)
    well = True
    while left and well and time.monotonic() < deadline:
        child, status = os.waitpid(-1, os.WNOHANG)
        left.discard(child)
        well = status == 0
        if not child:
            time.sleep(0.02)
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return well and not left
