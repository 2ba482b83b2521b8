"""Kinds of writes in training scripts, each to files of its own, which must be restored afterwards.

A kind prepares a folder with existing files, may open a file before the loop, and changes the folder once for every
call. Imported by the tests and by the scripts that they analyze; libraries are imported when they are used.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import logging.handlers
import mmap
import os
import pickle
import shelve
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PRECIOUS = b"\x89what took a week to make\0" * 40

Change = Callable[[Path, Any, int], object]
"""Arguments: the folder, the object opened in it, and the number of earlier calls."""


def _file(folder: Path) -> None:
    (folder / "file").write_bytes(PRECIOUS)


def _nothing(_folder: Path) -> None:
    return None


@dataclass(frozen=True)
class Kind:
    """One kind of write."""

    change: Change
    prepare: Callable[[Path], object] = _file
    opened: Callable[[Path], Any] = _nothing
    native: bool = False  # the library opens the file in C, without an audit event of Python
    modules: tuple[str, ...] = ()  # required modules
    stays: frozenset[str] = field(default_factory=frozenset)


KINDS: dict[str, Kind] = {}


def add(name: str, change: Change, **more: Any) -> None:
    KINDS[name] = Kind(change, **more)


def kind(name: str, **more: Any) -> Callable[[Change], Change]:
    def added(change: Change) -> Change:
        add(name, change, **more)
        return change

    return added


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """All entries of a folder with type, mode, size, modification time and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        now = path.lstat()
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", stat.S_IMODE(now.st_mode))
        else:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = (stat.S_IMODE(now.st_mode), now.st_size, now.st_mtime_ns, now.st_nlink, digest)
    return found


# -- the standard library


def _stream(mode: str, write: Callable[[Any, int], object], name: str = "file") -> Change:
    """Writes to a file that is opened for it."""

    def change(folder: Path, _opened: Any, step: int) -> None:
        with open(folder / name.format(step), mode) as stream:
            write(stream, step)

    return change


add("json", _stream("w", lambda stream, step: json.dump({"step": step}, stream)))
add("pickle", _stream("wb", lambda stream, step: pickle.dump(step, stream)))
add("append", _stream("a", lambda stream, step: stream.write(f"step {step}\n")))
add("read and written anew", _stream("a+", lambda stream, step: (stream.seek(0), stream.truncate(), stream.write("n"))))
add("exclusive", _stream("x", lambda stream, _: stream.write("new"), "new-{}"), prepare=_nothing)
add("in place", _stream("r+b", lambda stream, step: (stream.seek(step), stream.write(b"changed in place"))))


@kind("log opened before", opened=lambda folder: open(folder / "file", "a"))  # noqa: SIM115
def _(folder: Path, opened: Any, step: int) -> None:
    opened.write(f"a line of step {step}\n" * 100)
    opened.flush()


@kind("file opened before to be read and written anew", opened=lambda folder: open(folder / "file", "a+"))  # noqa: SIM115
def _(folder: Path, opened: Any, step: int) -> None:
    opened.truncate(0)
    opened.write(f"step {step}\n")
    opened.flush()


@kind("file opened before to be changed", opened=lambda folder: open(folder / "file", "r+b"))  # noqa: SIM115
def _(folder: Path, opened: Any, step: int) -> None:
    opened.seek(3)
    opened.write(b"changed")
    opened.truncate(20)
    opened.flush()


def _rotating(folder: Path, **how: Any) -> logging.Logger:
    logger = logging.getLogger(f"of {folder}")
    logger.propagate = False
    handler = logging.handlers.RotatingFileHandler(folder / "file", **how)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return logger


@kind("logging", opened=lambda folder: _rotating(folder, maxBytes=0))
@kind("rotating log", opened=lambda folder: _rotating(folder, maxBytes=len(PRECIOUS) + 40, backupCount=2))
def _(folder: Path, opened: Any, step: int) -> None:
    opened.info("a line that makes it rotate, %d", step)


@kind("touch and unlink")
def _(folder: Path, _opened: Any, step: int) -> None:
    (folder / "marker").touch()
    (folder / "file").touch()
    (folder / "file").unlink()
    (folder / "file").touch()


@kind("os.open")
def _(folder: Path, _opened: Any, step: int) -> None:
    descriptor = os.open(folder / "file", os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, b"short")
    os.close(descriptor)


def _path(change: Callable[[Path], object]) -> Change:
    """Changes a file by its path, where it still is."""
    return lambda folder, *_: change(folder / "file") if (folder / "file").exists() else None


add("os.truncate", _path(lambda path: os.truncate(path, 7)))
add("os.remove", _path(lambda path: os.remove(path)))
add("os.rename", _path(lambda path: os.rename(path, f"{path}.bak")))


@kind("written aside and replaced")
def _(folder: Path, _opened: Any, step: int) -> None:
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as stream:
        stream.write(str(step))
    os.replace(stream.name, folder / "file")


def _folder_of_files(folder: Path) -> None:
    _several(folder, "run/a", "run/deep/b", "run/deep/c")
    os.symlink("deep/b", folder / "run" / "link")
    os.chmod(folder / "run" / "deep", 0o750)


add("rmtree", lambda folder, *_: shutil.rmtree(folder / "run", ignore_errors=True), prepare=_folder_of_files)


@kind("folder renamed", prepare=_folder_of_files)
def _(folder: Path, _opened: Any, step: int) -> None:
    if step % 2 == 0 and (folder / "run").exists():
        os.rename(folder / "run", folder / f"run-{step}")
        (folder / f"run-{step}" / "a").write_text("changed under another name")
        (folder / "run").mkdir()
        (folder / "run" / "a").write_text("another one")


@kind("folders made", prepare=_nothing)
def _(folder: Path, _opened: Any, step: int) -> None:
    (folder / "runs" / str(step) / "images").mkdir(parents=True)
    (folder / "runs" / str(step) / "images" / "a").write_text("new")


@kind("copytree", prepare=_folder_of_files)
def _(folder: Path, _opened: Any, step: int) -> None:
    shutil.copytree(folder / "run", folder / f"copied-{step}", symlinks=True)
    shutil.copytree(folder / "run" / "deep", folder / "run", dirs_exist_ok=True)


@kind("copy", opened=lambda _folder: shutil.copy2)
@kind("move", opened=lambda _folder: shutil.move)
def _(folder: Path, opened: Any, step: int) -> None:
    (folder / "other").write_text("other")
    opened(folder / "other", folder / "file")


def _latest(folder: Path) -> None:
    _several(folder, "one", "two")
    os.symlink("one", folder / "latest")


@kind("symlink swapped", prepare=_latest)
def _(folder: Path, _opened: Any, step: int) -> None:
    os.symlink("two", folder / "next")
    os.replace(folder / "next", folder / "latest")
    (folder / "latest").write_text("written through a link")


@kind("hard link")
def _(folder: Path, _opened: Any, step: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.link(folder / "file", folder / "other name")
    (folder / "other name").write_text("written by another name")


@kind("chmod and utime")
def _(folder: Path, _opened: Any, step: int) -> None:
    os.chmod(folder / "file", 0o600 if step % 2 else 0o444)
    os.utime(folder / "file", (step, step))


@kind("zipfile")
def _(folder: Path, _opened: Any, step: int) -> None:
    with zipfile.ZipFile(folder / "file", "w") as archive:
        archive.writestr("data.pkl", str(step))


@kind("tarfile")
def _(folder: Path, _opened: Any, step: int) -> None:
    with tarfile.open(folder / "file", "w:gz") as archive:
        archive.add(__file__, "a")


def _shelved(folder: Path, key: str = "precious", value: object = PRECIOUS) -> None:
    with shelve.open(str(folder / "shelf")) as shelf:
        shelf[key] = value


add("shelve", lambda folder, _, step: _shelved(folder, str(step), step), prepare=_shelved)


def _database(folder: Path, *more: str, name: str = "runs.db") -> None:
    with contextlib.closing(sqlite3.connect(folder / name)) as connection:
        for statement in (*more, "create table runs (step integer)"):
            connection.execute(statement)
        _inserted(connection, -1)


def _inserted(connection: sqlite3.Connection, step: int) -> None:
    connection.execute("insert into runs values (?)", [step])
    connection.commit()


@kind("sqlite", prepare=_database)
def _(folder: Path, _opened: Any, step: int) -> None:
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as connection:
        _inserted(connection, step)


@kind("sqlite named by a URI", prepare=lambda folder: _database(folder, name="all runs.db"))
def _(folder: Path, _opened: Any, step: int) -> None:
    uri = f"{(folder / 'all runs.db').as_uri()}?mode=rw#runs"  # as_uri writes the space as %20
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        _inserted(connection, step)


@kind("sqlite opened before", prepare=_database, opened=lambda folder: sqlite3.connect(folder / "runs.db"))
def _(folder: Path, opened: Any, step: int) -> None:
    _inserted(opened, step)
    opened.execute("delete from runs")  # not committed yet: SQLite's own journal exists next to the file


add(
    "sqlite with a write-ahead log",
    lambda _, opened, step: _inserted(opened, step),
    prepare=lambda folder: _database(folder, "pragma journal_mode=wal"),
    opened=lambda folder: sqlite3.connect(folder / "runs.db", check_same_thread=False),
)


@kind("mmap")
def _(folder: Path, _opened: Any, step: int) -> None:
    with open(folder / "file", "r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[:5] = b"mmap!"


def _several(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PRECIOUS)


def _chunks(folder: Path) -> None:
    _several(folder, "store/.zgroup", "store/images/0.0", "store/images/0.1", "store/images/0.2")


@kind("directory store", prepare=_chunks)
def _(folder: Path, _opened: Any, step: int) -> None:
    chunk = folder / "store" / "images" / f"0.{step % 5}"
    aside = chunk.with_name(f"{chunk.name}.{os.getpid()}.partial")
    aside.write_bytes(b"chunk")
    os.replace(aside, chunk)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / "store" / "images" / "0.2")


@kind("a thread")
def _(folder: Path, _opened: Any, step: int) -> None:
    thread = threading.Thread(target=(folder / "file").write_text, args=(str(step),))
    thread.start()
    thread.join()


def _checkpoints(folder: Path) -> None:
    _several(folder, "ckpt-0", "ckpt-1", "ckpt-2")
    (folder / "checkpoint").write_text("ckpt-2")


@kind("rotated checkpoints", prepare=_checkpoints)
def _(folder: Path, _opened: Any, step: int) -> None:
    (folder / f"ckpt-{step + 3}").write_text("new")
    (folder / "checkpoint").write_text(f"ckpt-{step + 3}")
    for old in sorted(folder.glob("ckpt-*"), key=lambda path: path.stat().st_mtime_ns)[:-3]:
        old.unlink()


@kind("temporary folder within", prepare=_nothing)
def _(folder: Path, _opened: Any, step: int) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        Path(name, "a").write_text("a")
    Path(tempfile.mkdtemp(dir=folder), "b").write_text("b")


@kind("relative path")
def _(folder: Path, _opened: Any, step: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(FileNotFoundError):
        os.unlink("file", dir_fd=descriptor)
        os.mkdir(f"new-{step}", dir_fd=descriptor)
    os.close(descriptor)


# -- other libraries

_module: Callable[[str], Any] = importlib.import_module


@kind("numpy.save", modules=("numpy",))
def _(folder: Path, _opened: Any, step: int) -> None:
    import numpy as np

    with open(folder / "file", "wb") as stream:
        np.save(stream, [step])
    np.save(folder / "new", [step])
    np.savez(folder / "file2", a=[step])
    np.savetxt(folder / "file", [step])


def _mapped(folder: Path, name: str = "file", mode: str = "r+", **more: Any) -> Any:
    return _module("numpy").memmap(folder / name, mode=mode, dtype="uint8", **more)


@kind("memmap", modules=("numpy",))
def _(folder: Path, _opened: Any, step: int) -> None:
    _mapped(folder)[:3] = 7
    _mapped(folder, "new", "w+", shape=9)[:3] = 7


@kind("memmap opened before", modules=("numpy",), opened=_mapped)
def _(folder: Path, opened: Any, step: int) -> None:
    opened[:4] = step % 256


add("tofile", lambda folder, _, step: _module("numpy").arange(step + 3).tofile(folder / "file"), modules=("numpy",))
add(
    "to_parquet",
    lambda folder, _, step: _module("pandas").DataFrame({"step": [step]}).to_parquet(folder / "file"),
    modules=("pandas", "pyarrow"),
    native=True,
)
add(
    "image",
    lambda folder, *_: _module("PIL.Image").new("RGB", (4, 4)).save(folder / "file", format="png"),
    modules=("PIL",),
)


def _datasets(folder: Path, name: str = "file", mode: str = "w", key: str = "precious", value: object = (1, 2)) -> None:
    with _module("h5py").File(folder / name, mode) as file:
        file[key] = value


@kind("h5py", modules=("h5py",), native=True, prepare=_datasets)
def _(folder: Path, _opened: Any, step: int) -> None:
    _datasets(folder, key="step", value=step)
    _datasets(folder, "new", "a", key=str(step), value=step)


@kind(
    "h5py opened before",
    modules=("h5py",),
    native=True,
    prepare=_datasets,
    opened=lambda folder: _module("h5py").File(folder / "file", "a"),
    stays=frozenset({"file"}),  # opening the file writes to it, before the loop
)
def _(folder: Path, opened: Any, step: int) -> None:
    opened["precious"][0] = step
    opened[f"{step}"] = list(range(1000))
    opened.flush()


# -- TensorFlow


def _tf() -> Any:
    return _module("tensorflow")


@kind("GFile w", native=True, opened=lambda _folder: "w")
@kind("GFile a", native=True, opened=lambda _folder: "a")
def _(folder: Path, opened: Any, step: int) -> None:
    with _tf().io.gfile.GFile(str(folder / "file"), opened) as file:
        file.write(str(step))


@kind("GFile opened before", native=True, opened=lambda folder: _tf().io.gfile.GFile(str(folder / "file"), "a"))
def _(folder: Path, opened: Any, step: int) -> None:
    opened.write(str(step))
    opened.flush()


@kind("gfile", native=True, prepare=_folder_of_files)
def _(folder: Path, _opened: Any, step: int) -> None:
    gfile = _tf().io.gfile
    gfile.makedirs(str(folder / "new" / str(step)))
    if step == 0:
        gfile.copy(str(folder / "run" / "a"), str(folder / "new" / "0" / "a"))
        gfile.rename(str(folder / "run" / "a"), str(folder / "run" / "deep" / "b"), overwrite=True)
        gfile.remove(str(folder / "run" / "deep" / "c"))
        gfile.rmtree(str(folder / "run" / "deep"))
        gfile.mkdir(str(folder / "run" / "deep"))


@kind("TFRecordWriter", native=True)
def _(folder: Path, _opened: Any, step: int) -> None:
    with _tf().io.TFRecordWriter(str(folder / "file")) as writer:
        writer.write(str(step).encode())


@kind(
    "TFRecordWriter opened before",
    native=True,
    prepare=_nothing,
    opened=lambda folder: _tf().io.TFRecordWriter(str(folder / "records")),
    stays=frozenset({"records"}),  # created by the script before its loop
)
def _(folder: Path, opened: Any, step: int) -> None:
    opened.write(str(step).encode() * 1000)
    opened.flush()


@kind("write_file", native=True)
def _(folder: Path, _opened: Any, step: int) -> None:
    tf = _tf()
    tf.io.write_file(str(folder / "file"), f"step {step}")
    assert tf.io.read_file(str(folder / "file")) == f"step {step}".encode()


@kind("raw ops", native=True)
def _(folder: Path, _opened: Any, step: int) -> None:
    tf = _tf()
    tf.raw_ops.WriteFile(filename=str(folder / "file"), contents=f"step {step}")
    tf.raw_ops.WriteFile(filename=str(folder / "new" / f"{step}"), contents="new")
    tf.compat.v1.write_file(str(folder / f"v1-{step}"), "new")
    tf.raw_ops.Save(filename=str(folder / f"saved-{step}"), tensor_names=["a"], data=[1.0])
    for prefix in ("v2", "made/v2"):
        given = {"tensor_names": ["a"], "shape_and_slices": [""], "tensors": [1.0]}
        tf.raw_ops.SaveV2(prefix=str(folder / f"{prefix}-{step}"), **given)


@kind("dataset written to TFRecords", native=True)
def _(folder: Path, _opened: Any, step: int) -> None:
    tf = _tf()
    data = tf.data.Dataset.from_tensors(str(step))
    tf.data.experimental.TFRecordWriter(str(folder / "file")).write(data)
    tf.data.experimental.TFRecordWriter(str(folder / f"{step}")).write(data)


@kind("summaries", native=True, prepare=_nothing)
def _(folder: Path, _opened: Any, step: int) -> None:
    tf = _tf()
    with tf.summary.create_file_writer(str(folder / "events")).as_default():
        tf.summary.write("loss", 0.5, step=step)


@kind("checkpoints of TensorFlow", native=True, prepare=_checkpoints)
def _(folder: Path, _opened: Any, step: int) -> None:
    _tf().train.Checkpoint(value=_tf().Variable(step)).write(str(folder / f"ckpt-{step % 5}"))


@kind("Keras saves", native=True)
def _(folder: Path, _opened: Any, step: int) -> None:
    import keras

    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.save(folder / "model.keras")
    model.save_weights(folder / "aside.weights.h5")
    os.replace(folder / "aside.weights.h5", folder / "best.weights.h5")
    keras.saving.save_model(model, filepath=folder / f"{step}.keras")
    if step > 2:
        os.remove(folder / f"{step - 3}.keras")
    if step == 0:
        _tf().saved_model.save(_tf().Module(), str(folder / "exported"))


def chosen(*, native: bool | None = None) -> Mapping[str, Kind]:
    """The kinds whose libraries are installed: all, those that write in C, or those visible to Python."""
    return {
        name: found
        for name, found in KINDS.items()
        if native in (None, found.native) and all(map(importlib.util.find_spec, found.modules))
    }


def prepared(base: Path, *, native: bool | None = None, names: Collection[str] = ()) -> Mapping[str, Kind]:
    """Creates a folder with existing files in `base` for each kind, or for the named kinds."""
    kinds = {name: KINDS[name] for name in names} or chosen(native=native)
    for name, found in kinds.items():
        folder = base / name.replace(" ", "-")
        folder.mkdir(parents=True)
        found.prepare(folder)
        for path in folder.rglob("*"):
            if not path.is_symlink():
                os.utime(path, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    return kinds


class Writer:
    """Changes the folders that `prepared` created, one kind after another."""

    def __init__(self, base: Path, *, native: bool | None = None, names: Collection[str] = ()) -> None:
        """Uses all kinds, or those that are named."""
        kinds = names or chosen(native=native)
        self._folders = {name: base / name.replace(" ", "-") for name in kinds}
        self._opened = {name: KINDS[name].opened(folder) for name, folder in self._folders.items()}
        self._calls = dict.fromkeys(self._folders, 0)

    def change(self, name: str) -> None:
        """Performs one write of this kind."""
        self._calls[name], step = self._calls[name] + 1, self._calls[name]
        KINDS[name].change(self._folders[name], self._opened[name], step)

    def close(self) -> None:
        """Closes the opened objects, for tests whose process continues."""
        for opened in self._opened.values():
            if hasattr(opened, "close"):
                opened.close()

    def rounds(self) -> Iterator[str]:
        """Yields the kinds in an endless cycle."""
        while True:
            yield from self._folders


def lost(base: Path, before: Mapping[str, Mapping[str, tuple[object, ...]]]) -> dict[str, list[str]]:
    """The paths that differ, for each kind with a difference."""
    found = {}
    for name, was in before.items():
        now = tree(base / name.replace(" ", "-"))
        paths = sorted({*was, *now} - KINDS[name].stays)
        if differs := [path for path in paths if was.get(path) != now.get(path)]:
            found[name] = differs
    return found


def trees(base: Path, kinds: Mapping[str, Kind]) -> dict[str, dict[str, tuple[object, ...]]]:
    """The contents of the folder of each kind."""
    return {name: tree(base / name.replace(" ", "-")) for name in kinds}
