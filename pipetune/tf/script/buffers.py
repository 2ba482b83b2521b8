"""Flushes data that the script has written but that is still buffered in this process.

The process exits without unwinding, so no file object gets closed: data that is buffered when training begins must be
on disk by then. Covers the buffers of Python, of the C library, and of libraries that keep their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys

import tensorflow as tf

from pipetune.tf.script.objects import live_objects

_FLUSHED: tuple[type, ...] = (
    io.TextIOWrapper,
    io.BufferedWriter,
    io.BufferedRandom,
    tf.io.gfile.GFile,
    tf.io.TFRecordWriter,
    tf.summary.SummaryWriter,
)


def flush() -> None:
    """Flushes every open file object; those that cannot be flushed are skipped."""
    kinds = (*_FLUSHED, *_loaded("h5py", "File"))
    flushes: dict[type, bool] = {}  # a million objects but a few thousand types: each type is checked once
    for candidate in live_objects():
        kind = type(candidate)  # not isinstance: reading `__class__` of a lazy proxy may run third-party code
        if kind not in flushes:
            flushes[kind] = any(base in kinds for base in kind.__mro__)
        if flushes[kind]:
            with contextlib.suppress(Exception):  # closed or read-only
                candidate.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def _loaded(module: str, name: str) -> tuple[type, ...]:
    kind = getattr(sys.modules.get(module), name, None)
    return (kind,) if isinstance(kind, type) else ()
