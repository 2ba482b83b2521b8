"""Tells whether script or pipetune code is running: both share one process, sometimes one thread."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from pipetune.tf.script import capture

_workflow_thread = threading.local()


@contextlib.contextmanager
def workflow_at_work() -> Iterator[None]:
    """Context manager: iterators used on this thread count as pipetune's, not as the script's."""
    before = getattr(_workflow_thread, "busy", False)
    _workflow_thread.busy = True
    try:
        yield
    finally:
        _workflow_thread.busy = before


def inside_workflow() -> bool:
    """Whether this thread is currently running pipetune's work."""
    return bool(getattr(_workflow_thread, "busy", False))


_WRAPPING = ("pipetune.", "tensorflow.python.autograph.")


def called_by_library() -> bool:
    """Whether the intercepted call came from Keras or TensorFlow rather than from the user."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_WRAPPING):
        frame = frame.f_back
    return frame is not None and capture.is_library(frame.f_code.co_filename)
