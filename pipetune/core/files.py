"""Files: JSON read and written atomically, pipetune's own temporary folders, the files a process has open,
and which files belong to libraries."""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import re
import shutil
import site
import stat
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pipetune.core.errors import MalformedData, PipetuneError

Value = TypeVar("Value")


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Writes `text` to `path` atomically: no reader and no crash leaves a partial file; symlinks are followed.

    Args:
        path: the file; its folder is created if necessary.
        text: the contents, written as UTF-8.
        mode: permission bits of the file; the umask applies.

    Raises:
        PipetuneError: the folder cannot be created or written to.
    """
    try:
        path = path.resolve() if path.is_symlink() else path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            opener = functools.partial(os.open, mode=mode)
            with open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="", opener=opener) as stream:
                stream.write(text)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise PipetuneError(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="Name another place with --out, or make the folder writable.",
        ) from error


def write_json(path: Path, data: object) -> None:
    """Writes `data` as indented JSON, atomically.

    Raises:
        ValueError: `data` contains NaN or infinity, which the caller must encode.
        PipetuneError: as in `write_text`.
    """
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read_value(
    path: Path | str, make: Callable[[dict[str, object]], Value], *, kind: str, schema: int, name: str = ""
) -> Value:
    """Returns the value that `make` builds from a JSON file, whose "schema" must be `schema`.

    Args:
        path: the file, or the folder that contains it under the name `name`.
        make: builds the value from the object in the file; raises `MalformedData` if that is damaged.
        kind: the kind of file, for error messages: "session", "plan".
        schema: the schema version that this release reads.
        name: of the file in a folder.

    Raises:
        PipetuneError: the file does not exist, is not JSON, is damaged, or was written by another release.
    """
    path = Path(path, name) if Path(path).is_dir() else Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipetuneError(
            f"The {kind} file {path} cannot be read: {error.strerror or error}.",
            hint="`pipetune analyze SCRIPT` writes one.",
        ) from error
    except ValueError as error:
        raise PipetuneError(
            f"{path} is not a {kind} file: it is not valid JSON ({error}).",
            hint="It may have been cut short or edited; run `pipetune analyze` again.",
        ) from error
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema:
        raise PipetuneError(
            f"{path} is not a {kind} file that this release can read: its schema is {found!r}, not {schema}.",
            hint="Use the release of pipetune that wrote it, or run `pipetune analyze` again.",
        )
    try:
        return make(data)
    except MalformedData as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint=error.hint) from error


_NAME = re.compile(r"pipetune-[a-z]+-(\d+)-(\d+)-(\d+)-")
_root: str | None = None


def set_root(root: str) -> None:
    """Makes `temporary_folder` create folders in `root` from now on, instead of the system's temporary folder."""
    global _root
    _root = root


def root() -> str | None:
    """Returns the folder in which this process creates folders; None: the system's temporary folder."""
    return _root


@contextlib.contextmanager
def temporary_folder(purpose: str, *, within: str | None = None) -> Iterator[str]:
    """Context manager: creates a folder, which is removed on exit, and yields its path.

    Args:
        purpose: one lowercase word for its name, to explain the folder to people who find it.
        within: where to create it; None: in `root()`.
    """
    prefix = f"pipetune-{purpose}-{os.getpid()}-{_start_time(os.getpid())}-{_pid_namespace()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=within or _root, ignore_cleanup_errors=True) as made:
        yield made


def remove_abandoned() -> None:
    """Removes the folders that exited processes left in the system's temporary folder.

    Folders of other users, machines and containers, which may share that folder, are kept.
    """
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            named = _NAME.match(entry.name)
            if named is None or not entry.is_dir(follow_symlinks=False):
                continue
            process, started, namespace = map(int, named.groups())
            ours = namespace == _pid_namespace() and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if ours and _start_time(process) != started:
                shutil.rmtree(entry.path, ignore_errors=True)


def _start_time(process: int) -> int:
    """Returns when a process started, in clock ticks since boot; -1 if it does not exist, 0 without /proc."""
    if not os.path.isdir("/proc/self"):
        return 0
    try:
        state = Path(f"/proc/{process}/stat").read_text()
        return int(state.rpartition(")")[2].split()[19])  # proc(5): field 22; the name before may contain spaces
    except (OSError, IndexError, ValueError):
        return -1


def _pid_namespace() -> int:
    """Returns an id of the PID namespace, to distinguish process ids of different containers; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def writable_descriptors() -> Iterator[tuple[int, int, int]]:
    """Yields the descriptor, flags and size of each regular file with a name that is open for writing.

    Leaves out the files of standard output and standard error, which are pipetune's log.
    """
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
        logs = [os.fstat(descriptor) for descriptor in (1, 2) if descriptor in descriptors]
    except OSError:
        return
    for descriptor in descriptors:
        try:
            now = os.fstat(descriptor)
            if not stat.S_ISREG(now.st_mode) or not now.st_nlink or any(os.path.samestat(now, log) for log in logs):
                continue
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as stream:
                flags = next(int(line.split()[1], 8) for line in stream if line.startswith("flags:"))
        except (OSError, StopIteration, ValueError):
            continue  # closed in the meantime
        if flags & os.O_ACCMODE != os.O_RDONLY:
            yield descriptor, flags, now.st_size


def writable_mappings() -> Iterator[str]:
    """Yields files with a shared writable mapping, even if their descriptor is closed."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
            lines = [line.rstrip("\n").split(maxsplit=5) for line in stream]
    except OSError:
        return
    for parts in lines:
        if len(parts) == 6 and parts[1].startswith("rw-s") and not parts[5].endswith(" (deleted)"):
            yield parts[5]


@functools.cache
def is_library(filename: str) -> bool:
    """Whether a file belongs to Python, an installed package or pipetune rather than to the user."""
    if "__autograph_generated_file" in filename:
        return False
    if filename.startswith("<"):
        return not filename.startswith("<ipython")
    path = os.path.abspath(filename)
    if not _INSTALLED.isdisjoint(path.split(os.sep)):
        return True
    return path in _library_paths() or any(path.startswith(folder + os.sep) for folder in _library_paths())


_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folder names of installed packages; they also match other environments on the path (.pth files, PYTHONPATH)."""


@functools.cache
def _library_paths() -> frozenset[str]:
    """Returns the folders of libraries, and packages and modules that are installed in another folder of `sys.path`."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    folders.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # pipetune
    libraries = {os.path.abspath(folder) for folder in folders}
    others = {os.path.abspath(folder) for folder in sys.path} - libraries
    return frozenset(libraries.union(*(_installed_in(folder) for folder in others)))


def _installed_in(folder: str) -> set[str]:
    """Returns the packages and modules that were installed in a folder, beside which the user's own may lie.

    `pip install --target` and many platforms install in folders of any name.
    """
    if not glob.glob(os.path.join(glob.escape(folder), "*.dist-info")):
        return set()
    import importlib.metadata  # forty modules, which no command but a worker needs

    found: set[str] = set()
    for distribution in importlib.metadata.distributions(path=[folder]):
        names = (distribution.read_text("top_level.txt") or "").split()
        found.update(names, (f"{name}.py" for name in names))
        if not names:
            found.update(file.parts[0] for file in distribution.files or ())
    return {os.path.join(folder, name) for name in found - {os.pardir}}
