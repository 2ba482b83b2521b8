"""Files of numbers, and helper modules with functions for the datasets that read them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf


def records(folder: Path, *, files: int, each: int) -> str:
    """Writes TFRecord files with the numbers 0, 1, ... as text, `each` per file; returns their pattern."""
    for file in range(files):
        with tf.io.TFRecordWriter(str(folder / f"part-{file}.tfrecord")) as writer:
            for record in range(each):
                writer.write(str(each * file + record).encode())
    return str(folder / "part-*.tfrecord")


@contextmanager
def helper_module(name: str, text: str, folder: Path) -> Iterator[Any]:
    """A module with this text, which can be imported while the context is open."""
    (folder / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)
