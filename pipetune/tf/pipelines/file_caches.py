"""Isolates file caches and snapshots: while pipetune measures, none of the script's is filled, locked or written.

A complete cache is read, as the script itself would read it. An incomplete one gets a private location in each dataset
that is built while `apart` is open (`replay.read`), because two datasets that fill the same file disturb each other.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pipetune.core import scratch
from pipetune.tf import private
from pipetune.tf.pipelines import operators

_folder = ""  # holds all private locations while `apart` is open


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """While open, datasets are built with private files, which are deleted when the outermost context closes."""
    global _folder
    if _folder:
        yield
        return
    with scratch.folder("caches") as _folder:
        try:
            yield
        finally:
            _folder = ""


@contextlib.contextmanager
def of_new_code_apart() -> Iterator[None]:
    """Like `apart`, for new code that is run to test it: every cache that the code creates gets a private file."""
    original = private.DatasetV2.cache

    def cache(dataset: Any, filename: Any = "", name: Any = None) -> Any:
        written = operators.as_value(filename)
        return original(dataset, cache_file(written, None) if isinstance(written, str) else filename, name)

    with apart():
        private.DatasetV2.cache = cache
        try:
            yield
        finally:
            private.DatasetV2.cache = original


def folder() -> str:
    """Returns the folder of the private files while `apart` is open, else ""."""
    return _folder


def file_of(dataset: Any) -> str:
    """Returns the cache file or the snapshot folder that this dataset may write; "" if there is none."""
    attribute = {"cache": "_filename", "snapshot": "_path"}.get(operators.kind_of(dataset).op, "")
    name = operators.as_value(getattr(dataset, attribute, "")) if attribute else ""
    return name if isinstance(name, str) else ""


def is_to_be_moved(dataset: Any) -> bool:
    """Whether this dataset, as built by the script, would write a file while pipetune measures."""
    name = file_of(dataset)
    inside = name.startswith(_folder + os.sep)
    return bool(_folder and name) and not inside and not (_is_cache(dataset) and _is_complete(name))


def cache_file(name: str, original: Any) -> str:
    """Returns the file to use for a cache that is being built with the file name `name`.

    Args:
        original: the script's cache; None for one that an edit adds, which must never read what an earlier run left.
    """
    if not _folder or not name or (original is not None and _is_complete(name)):
        return name
    return os.path.join(tempfile.mkdtemp(dir=_folder), os.path.basename(name))


def snapshot_folder(original: Any) -> str:
    """Returns the folder to use for the script's snapshot: finished data is linked for reading, writes go elsewhere."""
    name = file_of(original)
    if not _folder:
        return name
    place = tempfile.mkdtemp(dir=_folder)
    with contextlib.suppress(OSError):  # the folder does not exist yet
        for written in os.scandir(name):
            if private.snapshot_is_finished(written.path):
                os.symlink(os.path.abspath(written.path), os.path.join(place, written.name))
    return place


def files_written_by(dataset: Any) -> Iterator[str]:
    """Yields the files of all caches and snapshots that `dataset` and its upstream datasets write."""
    waiting, seen = [dataset], set()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            waiting += private.inputs(found)
            name = file_of(found)
            if name and not (_is_cache(found) and _is_complete(name)):
                yield name


def _is_cache(dataset: Any) -> bool:
    return operators.kind_of(dataset).op == "cache"


def _is_complete(name: str) -> bool:
    return bool(tf.io.gfile.exists(f"{name}.index"))  # written last, after all of the data
