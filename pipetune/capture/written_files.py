"""Which files the script writes, and whether training may write them again; those that native code writes are reported
to the undo journal, because Python raises no audit events for them.

TensorFlow's own file operations all go through one module (`tf.io.gfile`, `GFile`, TensorBoard's writers). Other
libraries are wrapped once the script imports them; a library that is not installed costs nothing. File names that are
computed inside a TensorFlow graph cannot be seen: `tf.io.write_file` in a traced function, an inner
`Dataset.cache(name)`. Such a change is still detected, and named, if the script also writes to that folder otherwise.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.patches import ImportWatcher, Patches
from pipetune.capture.rebuilding import Loop, contains, function_at, loops_at, shared_frames, tree_of
from pipetune.core import file_events
from pipetune.core.undo import UndoJournal
from pipetune.pipelines import call_sites
from pipetune.pipelines.call_sites import CallPath, inside_workflow
from pipetune.pipelines.files import files_written_by, named_files
from pipetune.pipelines.live import LivePipeline

_MOST_FILES = 20_000  # by judgement: a stack takes some microseconds for each


class WrittenFiles:
    """The files that the script has written so far, and its call stacks while it did."""

    def __init__(self) -> None:
        self._stacks: dict[str, CallPath] = {}

    def add(self, path: str) -> None:
        """Notes that the code that runs now will write the file at `path`."""
        if len(self._stacks) < _MOST_FILES and not inside_workflow():
            self._stacks[path] = call_sites.path_from(sys._getframe(1))

    def written_again(self, source: LivePipeline, read: CallPath) -> str:
        """Returns a file of the pipeline that training may write again; "" if it is not seen to write any.

        Args:
            source: the pipeline.
            read: the user's call stack where the script reads it.
        """
        first = next((node.id for node in source.pipeline if not node.inputs), None)
        made = call_sites.path_of(source.datasets[first]) if first is not None else ()
        again = {path for path, stack in self._stacks.items() if stack and _is_repeated(stack, read, made)}
        paths = named_files(source).paths if again else ()
        return next((path for path in paths if os.path.realpath(path) in again), "")


@functools.lru_cache(maxsize=1024)
def _is_repeated(wrote: CallPath, read: CallPath, made: CallPath) -> bool:
    """Whether code that wrote a file runs again in a loop around the reading, or is called there or by a callback."""
    shared = shared_frames(wrote, read)
    for writing, reading in shared:
        place = call_sites.start_of(writing)
        if place is not None and any(contains(loop, place) for loop in _loops(reading, made)):
            return True
    writers = {code.co_name for code, _ in wrote[: len(wrote) - len(shared)]}
    files = dict.fromkeys(code.co_filename for code, _ in (*wrote, *read))
    trees = [tree for tree in map(tree_of, files) if tree is not None]
    bodies = (*_repeated(read, made), *(one for tree in trees for one in _callbacks(tree)))
    return not writers.isdisjoint(_called(bodies, trees))


def _called(bodies: Iterable[ast.AST], trees: Iterable[ast.Module]) -> set[str]:
    """Returns the names that these parts of a script call, and that the functions of these names call in turn."""
    calls_of: dict[str, set[str]] = {}  # by the name of a function
    for function in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        calls_of.setdefault(function.name, set()).update(_calls_in(function))
    new = {name for body in bodies for name in _calls_in(body)}
    found = set[str]()
    while new:
        found |= new
        new = {name for one in new for name in calls_of.get(one, ())} - found
    return found


def _calls_in(part: ast.AST) -> Iterator[str]:
    return (call_sites.called_name(node) for node in ast.walk(part) if isinstance(node, ast.Call))


def _loops(reading: call_sites.FramePosition, made: CallPath) -> list[Loop]:
    """Returns the loops around a frame's position, without those that also build the data: each time new data."""
    built = [call_sites.start_of(step) for step in made if step[0] is reading[0]]
    return [loop for loop in loops_at(reading) if not any(place and contains(loop, place) for place in built)]


def _repeated(read: CallPath, made: CallPath) -> Iterator[ast.AST]:
    """Yields the loops around a reading, and the functions that an iteration of one calls on the way to it."""
    inside = False
    for step in reversed(read):
        loops, function = _loops(step, made), function_at(step)
        if inside and function is not None:
            yield function
        yield from loops
        inside = inside or bool(loops)


def _callbacks(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields what Keras calls at the ends of epochs and steps, by its name: methods, arguments of `LambdaCallback`."""
    for node in ast.walk(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else node.arg if isinstance(node, ast.keyword) else None
        if (name or "").startswith("on_"):  # as the methods of `keras.callbacks.Callback`
            yield node


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
