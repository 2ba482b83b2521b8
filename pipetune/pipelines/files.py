"""The files of a pipeline: those that it names, and caches and snapshots, isolated while pipetune measures."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core import files
from pipetune.core.operators import READERS
from pipetune.pipelines import live
from pipetune.pipelines.functions import all_nodes
from pipetune.pipelines.graphs import reachable
from pipetune.pipelines.live import LivePipeline

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
    """Yields the local files of all caches and snapshots that `dataset` and its upstream datasets write."""
    for found in reachable([dataset], tensorflow_private.inputs):
        name = written_path(found)
        if name and not _scheme(name) and not (_is_cache(found) and _is_complete(name)):
            yield _local(name)


def _is_cache(dataset: Any) -> bool:
    return live.kind_of(dataset).op == "cache"


def _is_complete(name: str) -> bool:
    return bool(tf.io.gfile.exists(f"{name}.index"))  # written last, after all of the data


_MOST_NAMES = 200_000  # names examined, by judgement: bounds time and memory; a longer list is marked as incomplete
_SAMPLE = 64  # strings examined to tell file names from other text
_REMOTE = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_READERS = READERS | {"CsvDataset"}
_FOLDERS = frozenset({"load", "snapshot"})
_LONGEST_CONSTANT = 4096  # characters; no longer string is a file name, as PATH_MAX of Linux has this value


@dataclass(frozen=True)
class NamedFiles:
    """Existing local files that a pipeline names, and the number of remote names per scheme."""

    paths: tuple[str, ...] = ()  # each once, in the order found
    remote: tuple[tuple[str, int], ...] = ()  # pairs of scheme and number of names
    complete: bool = True  # False: there were more names than could be checked


def named_files(source: LivePipeline, *, limit_seconds: float = 2.0) -> NamedFiles:
    """Returns the files that the datasets of this pipeline name; stops after `limit_seconds` or `_MOST_NAMES` names."""
    end = time.perf_counter() + limit_seconds
    found: dict[str, None] = {}
    remote: Counter[str] = Counter()
    for number, name in enumerate(_candidates(source)):
        if number >= _MOST_NAMES or time.perf_counter() > end:
            return NamedFiles(tuple(found), tuple(remote.items()), complete=False)
        if scheme := _scheme(name):
            remote[scheme] += 1
        elif (name := _local(name)) not in found and os.path.isfile(name):
            found[name] = None
    return NamedFiles(tuple(found), tuple(remote.items()))


def files_within(folder: str) -> Iterator[str]:
    """Yields every file of a folder and its subfolders."""
    for root, _, names in os.walk(folder):
        yield from (os.path.join(root, name) for name in sorted(names))


def _candidates(source: LivePipeline) -> Iterator[str]:
    for node in source.pipeline:
        dataset = source.datasets[node.id]
        if node.op in _READERS:  # it keeps a tensor, or a dataset that keeps tensors
            given = getattr(dataset, "_filenames", ())
            yield from _names([given] if isinstance(given, tf.Tensor) else getattr(given, "_tensors", ()))
        elif node.op in _FOLDERS:
            yield from _stored(live.to_json_value(getattr(dataset, "_path", "")), files_within)
        elif node.op == "cache":
            yield from _stored(node.argument("filename"), _cache_files)
        yield from _names(getattr(dataset, "_tensors", ()))
        for attribute in live.kind_of(dataset).functions:
            yield from _constants(getattr(dataset, attribute))


def _names(tensors: Iterable[Any]) -> Iterator[str]:
    """Yields the strings of those tensors of which at least half of a sample are names of files."""
    for tensor in tensors:
        if not isinstance(tensor, tf.Tensor) or tensor.dtype != tf.string or not hasattr(tensor, "numpy"):
            continue
        values = np.asarray(tensor.numpy()).reshape(-1)
        if len(values) == 0:
            continue
        sample = [os.fsdecode(value) for value in values[:: max(1, len(values) // _SAMPLE)]]
        if 2 * sum(map(_is_name, sample)) >= len(sample):
            yield from map(os.fsdecode, values)


def _constants(wrapper: Any) -> Iterator[str]:
    """Yields names written into a function: constants of its graph, and tensors that it captures."""
    try:
        concrete = wrapper.function
        graph_def = concrete.graph.as_graph_def()
    except AttributeError:
        return
    yield from _names(concrete.captured_inputs)
    for node in all_nodes(graph_def):
        if node.op == "Const" and (tensor := node.attr["value"].tensor).dtype == tf.string.as_datatype_enum:
            for value in tensor.string_val:
                name = os.fsdecode(value)
                if 0 < len(name) < _LONGEST_CONSTANT and _is_name(name):
                    yield name


def _stored(name: Any, local_files: Callable[[str], Iterable[str]]) -> Iterable[str]:
    """Returns the files of what is stored under a name; the name itself if it is not local."""
    if not isinstance(name, str) or not name:
        return ()
    return (name,) if _scheme(name) else local_files(name)


def _cache_files(filename: str) -> Iterator[str]:
    """Yields the files of a file cache: their names all begin with that of the cache."""
    folder, stem = os.path.split(filename)
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder or ".")):
            if name.startswith((f"{stem}.", f"{stem}_")):
                yield os.path.join(folder, name)


def _is_name(text: str) -> bool:
    return bool(_scheme(text)) or os.path.isfile(_local(text))


def _local(name: str) -> str:
    return name.removeprefix("file://")


def _scheme(name: str) -> str:
    """Returns the lowercase scheme of a name that is not local, else ""."""
    found = _REMOTE.match(name)
    return "" if found is None or found[1].lower() == "file" else found[1].lower()
