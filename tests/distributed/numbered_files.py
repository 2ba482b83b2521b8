"""Files of numbers, and scripts and helper modules with functions for the datasets that read them."""

from __future__ import annotations

import importlib
import itertools
import linecache
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf


def records(folder: Path, *, files: int, each: int, uneven: bool = False) -> str:
    """Writes TFRecord files with the numbers 0, 1, ... as text; returns their pattern.

    There are `each` per file, or if `uneven` one more in every second.
    """
    numbers = itertools.count()
    for file in range(files):
        with tf.io.TFRecordWriter(str(folder / f"part-{file}.tfrecord")) as writer:
            for number in itertools.islice(numbers, each + (file % 2 if uneven else 0)):
                writer.write(str(number).encode())
    return str(folder / "part-*.tfrecord")


def lines(folder: Path, *counts: int) -> list[str]:
    """Writes text files with the numbers 0, 1, ..., so many lines per file; returns their names."""
    numbers = itertools.count()
    for file, count in enumerate(counts):
        (folder / f"part{file}").write_text("".join(f"{number}\n" for number in itertools.islice(numbers, count)))
    return [str(folder / f"part{file}") for file in range(len(counts))]


def run_script(path: Path, text: str) -> dict[str, Any]:
    """Runs a script from a file as a worker does, so that its functions belong to `__main__`; returns its names."""
    path.write_text(textwrap.dedent(text))
    linecache.checkcache(str(path))
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path), "__package__": None}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace


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
