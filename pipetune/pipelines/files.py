"""Isolates file caches and snapshots while pipetune measures."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core import files
from pipetune.pipelines import live

_folder = ""  # holds all private locations while `private_files` is open


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Context manager: datasets are built with private files, which are deleted when the outermost context closes."""
    global _folder
    if _folder:
        yield
        return
    with files.temporary_folder("caches") as _folder:
        try:
            yield
        finally:
            _folder = ""


@contextlib.contextmanager
def private_files_for_new_code() -> Iterator[None]:
    """Like `private_files`, for new code that is run to test it: every cache that it creates gets a private file."""
    original = tensorflow_private.DatasetV2.cache

    def cache(dataset: Any, filename: Any = "", name: Any = None) -> Any:
        written = live.to_json_value(filename)
        return original(dataset, cache_file(written, None) if isinstance(written, str) else filename, name)

    with private_files():
        tensorflow_private.DatasetV2.cache = cache
        try:
            yield
        finally:
            tensorflow_private.DatasetV2.cache = original


def private_folder() -> str:
    """Returns the folder of the private files while `private_files` is open, else ""."""
    return _folder


def written_path(dataset: Any) -> str:
    """Returns the cache file or the snapshot folder that this dataset may write; "" if there is none."""
    attribute = {"cache": "_filename", "snapshot": "_path"}.get(live.kind_of(dataset).op, "")
    name = live.to_json_value(getattr(dataset, attribute, "")) if attribute else ""
    return name if isinstance(name, str) else ""


def needs_private_file(dataset: Any) -> bool:
    """Whether this dataset, as built by the script, would write a file while pipetune measures."""
    name = written_path(dataset)
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
    """Returns the folder to use for the script's snapshot: finished data is linked, writes go to a private folder."""
    name = written_path(original)
    if not _folder:
        return name
    place = tempfile.mkdtemp(dir=_folder)
    with contextlib.suppress(OSError):  # the folder does not exist yet
        for written in os.scandir(name):
            if tensorflow_private.snapshot_is_finished(written.path):
                os.symlink(os.path.abspath(written.path), os.path.join(place, written.name))
    return place


def files_written_by(dataset: Any) -> Iterator[str]:
    """Yields the files of all caches and snapshots that `dataset` and its upstream datasets write."""
    waiting, seen = [dataset], set()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            waiting += tensorflow_private.inputs(found)
            name = written_path(found)
            if name and not (_is_cache(found) and _is_complete(name)):
                yield name


def _is_cache(dataset: Any) -> bool:
    return live.kind_of(dataset).op == "cache"


def _is_complete(name: str) -> bool:
    return bool(tf.io.gfile.exists(f"{name}.index"))  # written last, after all of the data
