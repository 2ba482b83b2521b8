"""Finds the files that a pipeline names."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.operators import READERS
from pipetune.pipelines import live
from pipetune.pipelines.live import LivePipeline

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
        scheme = _scheme(name)
        name = _local(name)
        if scheme:
            remote[scheme] += 1
        elif name not in found and os.path.isfile(name):
            found[name] = None
    return NamedFiles(tuple(found), tuple(remote.items()))


def files_within(folder: str) -> Iterator[str]:
    """Yields every file of a folder and its subfolders."""
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            yield os.path.join(root, name)


def _candidates(source: LivePipeline) -> Iterator[str]:
    for node in source.pipeline:
        dataset = source.datasets[node.id]
        if node.op in _READERS:
            yield from _reader_names(dataset)
        elif node.op in _FOLDERS:
            yield from _folder_files(getattr(dataset, "_path", ""))
        elif node.op == "cache":
            yield from _cache_files(node.argument("filename"))
        yield from _names(getattr(dataset, "_tensors", ()))
        for attribute in live.kind_of(dataset).functions:
            yield from _constants(getattr(dataset, attribute))


def _reader_names(reader: Any) -> Iterator[str]:
    """Yields the names given to a reader as a tensor, or as a dataset that keeps them in tensors."""
    given = getattr(reader, "_filenames", ())
    yield from _names([given] if isinstance(given, tf.Tensor) else getattr(given, "_tensors", ()))


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
    bodies = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    for node in (node for body in bodies for node in body if node.op == "Const"):
        tensor = node.attr["value"].tensor
        if tensor.dtype == tf.string.as_datatype_enum:
            for value in tensor.string_val:
                name = os.fsdecode(value)
                if 0 < len(name) < _LONGEST_CONSTANT and _is_name(name):
                    yield name


def _folder_files(folder: Any) -> Iterator[str]:
    """Yields every file of a folder that `load` or `snapshot` reads."""
    value = live.to_json_value(folder)
    if not isinstance(value, str) or not value:
        return
    if _scheme(value):
        yield value
    else:
        yield from files_within(value)


def _cache_files(filename: Any) -> Iterator[str]:
    """Yields the files of a file cache: their names all begin with that of the cache."""
    if not isinstance(filename, str) or not filename:
        return
    if _scheme(filename):
        yield filename
        return
    folder, stem = os.path.split(filename)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return
    for name in names:
        if name.startswith(f"{stem}.") or name.startswith(f"{stem}_"):
            yield os.path.join(folder, name)


def _is_name(text: str) -> bool:
    return bool(_scheme(text)) or os.path.isfile(_local(text))


def _local(name: str) -> str:
    return name.removeprefix("file://")


def _scheme(name: str) -> str:
    """Returns the lowercase scheme of a name that is not local, else ""."""
    found = _REMOTE.match(name)
    return "" if found is None or found[1].lower() == "file" else found[1].lower()
