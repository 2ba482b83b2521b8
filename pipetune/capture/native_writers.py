"""Reports the files that native code writes to the undo journal: Python raises no audit events for them.

TensorFlow's own file operations all go through one module (`tf.io.gfile`, `GFile`, TensorBoard's writers). Other
libraries are wrapped once the script imports them; a library that is not installed costs nothing. File names that are
computed inside a TensorFlow graph cannot be seen: `tf.io.write_file` in a traced function, an inner
`Dataset.cache(name)`. Such a change is still detected, and named, if the script also writes to that folder otherwise.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.patches import ImportWatcher, Patches
from pipetune.core import file_events
from pipetune.core.undo import UndoJournal
from pipetune.pipelines.call_sites import inside_workflow
from pipetune.pipelines.files import files_written_by

WriteReporter = Callable[[UndoJournal, tuple[Any, ...], Mapping[str, Any]], object]
"""Called before a call, with the journal and the arguments of the call."""


def _writes_argument(position: int, name: str, *, mode: str = "w") -> WriteReporter:
    """Returns a `WriteReporter` for a function that writes the file named by one of its arguments.

    `mode` is the default of the next argument, which is called the same, for a function that may also read.
    """

    def report(journal: UndoJournal, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        path = args[position] if len(args) > position else kwargs.get(name)
        how = args[position + 1] if len(args) > position + 1 else kwargs.get("mode")
        writes = mode == "w" or set(str(how or mode)) & set("wxa+")
        if isinstance(path, str | bytes | os.PathLike) and writes:
            journal.before_write(path)

    return report


_LIBRARIES: Mapping[str, tuple[tuple[str, str, WriteReporter], ...]] = {  # module: class ("" for the module), function
    "h5py._hl.files": (("File", "__init__", _writes_argument(1, "name", mode="r")),),
    "pandas.io.parquet": (("", "to_parquet", _writes_argument(1, "path")),),
    "pyarrow.parquet.core": (("ParquetWriter", "__init__", _writes_argument(1, "where")),),
    "torch.serialization": (("", "save", _writes_argument(1, "f")),),
    "cv2": (("", "imwrite", _writes_argument(0, "filename")),),
    "soundfile": (("SoundFile", "__init__", _writes_argument(1, "file", mode="r")),),
    "safetensors.numpy": (("", "save_file", _writes_argument(1, "filename")),),
    "safetensors.tensorflow": (("", "save_file", _writes_argument(1, "filename")),),
    "safetensors.torch": (("", "save_file", _writes_argument(1, "filename")),),
}

_TENSORFLOW: Mapping[str, WriteReporter] = {
    "WritableFile": lambda journal, args, _: _report_local(journal.before_write, args[:1], appending=b"a" in args[1]),
    "CopyFile": lambda journal, args, _: _report_local(journal.before_write, args[1:2]),
    "RenameFile": lambda journal, args, _: _report_local(journal.before_rename, args[:2]),
    "DeleteFile": lambda journal, args, _: _report_local(journal.before_change, args[:1]),
    "DeleteRecursively": lambda journal, args, _: _report_local(journal.before_removal, args[:1]),
    "CreateDir": lambda journal, args, _: _report_local(journal.before_change, args[:1]),
    "RecursivelyCreateDir": lambda journal, args, _: _report_local(journal.before_change, args[:1]),
}


_RAW_OPS: Mapping[str, str] = {  # op: argument that names its file, or how the names of its files begin
    "WriteFile": "filename",
    "Save": "filename",
    "SaveSlices": "filename",
    "SaveV2": "prefix",
    "MergeV2Checkpoints": "destination_prefix",
}


def watch(patches: Patches) -> None:
    """Reports writes to the journal of this process until the patches are undone."""
    for name, report in _TENSORFLOW.items():
        patches.wrap(tensorflow_private.file_operations, name, functools.partial(_around, report))
    patches.wrap(tf.io.TFRecordWriter, "__init__", functools.partial(_around, _writes_argument(1, "path")))
    patches.wrap(tf.data.experimental.TFRecordWriter, "write", functools.partial(_around, _records))
    for owner in (tf.io, tf.compat.v1, tf.compat.v1.io):
        patches.wrap(owner, "write_file", functools.partial(_around, functools.partial(_op, "filename", 0)))
    for name, argument in _RAW_OPS.items():
        patches.wrap(tf.raw_ops, name, functools.partial(_around, functools.partial(_op, argument, 0)))
    patches.wrap(tf.summary, "create_file_writer", functools.partial(_around, _events))
    patches.wrap(
        tensorflow_private.CheckpointSaver, "save", functools.partial(_around, functools.partial(_op, "file_prefix", 1))
    )
    patches.enter_context(ImportWatcher(_LIBRARIES, functools.partial(_wrap_library, patches)))


def report_caches(dataset: Any, *, measuring: bool = False) -> None:
    """Reports the files of caches and snapshots that are written while `dataset` is read, unless pipetune reads it.

    Args:
        dataset: the script's own.
        measuring: whether a function of the script reads it in a window.
    """
    journal = file_events.current_journal()
    if journal is not None and (measuring or not inside_workflow()):
        for name in files_written_by(dataset):
            journal.before_files_named(os.path.abspath(name), changing=False)


def _wrap_library(patches: Patches, module: ModuleType) -> None:
    for class_name, name, report in _LIBRARIES[module.__name__]:
        owner = getattr(module, class_name, None) if class_name else module
        if hasattr(owner, name):
            patches.wrap(owner, name, functools.partial(_around, report))


def _around(report: WriteReporter, original: Any, *args: Any, **kwargs: Any) -> Any:
    journal = file_events.current_journal()
    if journal is not None:
        report(journal, args, kwargs)
    return original(*args, **kwargs)


def _report_local(report: Callable[..., None], paths: tuple[Any, ...], **how: bool) -> None:
    """Reports local paths; remote ones ("gs://...") are skipped, as they could not be restored."""
    names = [os.fsdecode(path).removeprefix("file://") for path in paths]
    if names and not any("://" in name for name in names):
        report(*names, **how)


def _records(journal: UndoJournal, args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> None:
    _report_local(journal.before_write, _known_path(args[0]._filename))


def _op(name: str, position: int, journal: UndoJournal, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Reports what an op writes: the file that its argument `name` names, or files whose names begin so."""
    report = journal.before_write if name == "filename" else journal.before_files_named
    _report_local(report, _known_path(args[position] if len(args) > position else kwargs.get(name)))


def _events(journal: UndoJournal, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    folder = _known_path(args[0] if args else kwargs.get("logdir"))
    _report_local(journal.before_change, folder)
    events = tuple(os.path.join(os.fsdecode(one), "events.out.tfevents") for one in folder)
    _report_local(journal.before_files_named, events)


def _known_path(name: Any) -> tuple[str | bytes, ...]:
    """Returns the path, or an empty tuple if a graph computes it."""
    if isinstance(name, tf.Tensor):
        name = name.numpy() if hasattr(name, "numpy") else None
    return (name,) if isinstance(name, str | bytes) else ()
