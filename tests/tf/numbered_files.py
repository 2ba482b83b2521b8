"""Files of numbers, and modules of functions for the datasets that read them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf


def records(folder: Path, *, files: int, each: int) -> str:
    """The pattern of TFRecord files that hold the numbers 0, 1, ... as text, so many in each, file after file."""
    for file in range(files):
        with tf.io.TFRecordWriter(str(folder / f"part-{file}.tfrecord")) as writer:
            for record in range(each):
                writer.write(str(each * file + record).encode())
    return str(folder / "part-*.tfrecord")


@contextmanager
def helper_module(name: str, text: str, folder: Path) -> Iterator[Any]:
    """A module of this text, which others can import while it is open."""
    (folder / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)
