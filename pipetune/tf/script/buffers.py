"""Writes out what the script has written and what still waits in buffers of this process.

The process will end without unwinding, and nobody will close its files: what they held when training began has to be
on disk by then. Buffers of Python, of the C library, and of the libraries that keep their own.
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
    """Flushes every file object that is open; one that cannot be flushed is left as it is."""
    kinds = (*_FLUSHED, *_loaded("h5py", "File"))
    flushes: dict[type, bool] = {}  # a million objects, a few thousand types: each is asked once
    for candidate in live_objects():
        kind = type(candidate)  # not isinstance: asking a lazy proxy for its class may run foreign code
        if kind not in flushes:
            flushes[kind] = any(base in kinds for base in kind.__mro__)
        if flushes[kind]:
            with contextlib.suppress(Exception):  # closed, or opened to be read
                candidate.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def _loaded(module: str, name: str) -> tuple[type, ...]:
    kind = getattr(sys.modules.get(module), name, None)
    return (kind,) if isinstance(kind, type) else ()
