"""An undo journal on disk, so that file changes of a training loop can be reverted after measuring in it.

Windows of training steps run the script's own loop body as often as pipetune requests. What it writes, renames or
removes in these steps is not part of the user's training. Therefore the state of a path is recorded, and its content
copied if it is at risk, *before* the script changes it; `core.restoration` restores it after the process has ended for
any reason.

- **How changes are detected.** Python raises an audit event before it opens, renames or removes a file, for every
  library and thread (`core.file_events`). Native code raises none: known libraries are wrapped by
  `capture.native_writers`. Other changes are found by comparing the folders that were written to, and reported.
- **What is recorded** is the first state of each path, not a list of operations: its size is bounded by the number of
  paths, not of steps, and restoring can be interrupted and repeated. For a file opened only for appending, its length
  is sufficient.
- **Since when.** A Python loop is recognized as training only after it has consumed some elements, and those already
  belong to it. Each loop that may train begins a *generation*; once one is known to train, everything recorded since
  its beginning counts. Earlier changes are the script's own and are kept.
- **Where.** In the user's state folder (XDG base directories), not next to the results: the next command must find it
  with any working directory and options, and a cache folder may be emptied at any time.

Child processes of the script are not tracked: their changes are kept.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipetune.core.files import root, writable_descriptors, writable_mappings

MAX_COPIED_BYTES = 10**9
"""Maximum size of all copies: copying more would take longer than the windows that it is done for."""

MAX_GENERATIONS = 64
"""Maximum number of loops not yet known to train, of which one may hold the others: a preview in each of its steps."""

_FEW_GENERATIONS = 8  # kept where their copies take much space: nested loops, as over epochs, evaluation and a preview

_MAX_LISTINGS = 100  # number of loops at whose start all folders are listed: a script may start thousands of loops
_MAX_NAMES = 5_000  # in a folder that is compared afterwards: listing that many takes a few milliseconds
_MAX_DATABASE_BYTES = 256 * 10**6  # largest SQLite file that is copied on opening, as it may only be read
_HEARTBEAT_SECONDS = 0.5  # between two heartbeats

_MEMORY = "/dev/shm"
_TRANSIENT_FILES = re.compile(rf"\.tempstate\d+$|^{_MEMORY}/(psm_|sem\.)")
"""Files that disappear with the process: of a cache that TensorFlow is filling, and of shared memory."""

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes] | int
"""A path as accepted by Python, or a file descriptor."""

FolderListing = Mapping[str, tuple[int, int, int]]
"""Size, modification time (ns) and inode of each regular file of a folder, by name."""


class RecordKind(enum.StrEnum):
    """What existed at a path, and how it is recorded."""

    ABSENT = "absent"
    FILE = "file"  # its content was copied
    APPENDED = "appended"  # a file that is only appended to: its original length is sufficient
    UNCOPIED = "uncopied"  # a file too large to copy, changed before the loop was known to train
    FOLDER = "folder"
    LINK = "link"
    NAMED = "named"  # files with a prefix, the path before its "*"; existing ones are in `names`


class TooLarge(OSError):
    """A call of the script would change more than can be copied or recorded; raised instead of performing the call."""


@dataclass(frozen=True)
class PathState:
    """State of a path before the script changed it; times are in ns, `copy` is a file in the journal's folder."""

    path: str
    kind: RecordKind
    mode: int = 0
    user: int = -1
    group: int = -1
    size: int = 0
    accessed: int = 0
    modified: int = 0
    changed: int = 0
    inode: int = 0
    copy: str = ""
    target: str = ""  # of a symbolic link; of a file with several names, another one in its folder
    names: tuple[str, ...] = ()


def merge_states(originals: Iterable[PathState]) -> dict[str, PathState]:
    """Returns the first state of each path; if it was recorded for appending, a later copy of its content is added."""
    found: dict[str, PathState] = {}
    for original in originals:
        first = found.setdefault(original.path, original)
        if first.kind is RecordKind.APPENDED and original.kind in (RecordKind.FILE, RecordKind.UNCOPIED):
            found[original.path] = replace(first, kind=original.kind, copy=original.copy, target=original.target)
    return found


def current_state(path: str) -> tuple[int, int, int, int] | None:
    """Returns size, mtime (ns), ctime (ns) and inode of what exists at `path` now; None if nothing does."""
    try:
        now = os.lstat(path)
    except OSError:
        return None
    return now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino


def appends_only(flags: int) -> bool:
    """Whether a file opened with `flags` is only appended to; one opened as "a+" is read, then often truncated."""
    return bool(flags & os.O_APPEND) and not flags & (os.O_TRUNC | os.O_RDWR)


def list_folder(folder: str) -> FolderListing | None:
    """Returns the files in `folder`; None if it does not exist or has too many files to compare."""
    found: dict[str, tuple[int, int, int]] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    now = entry.stat(follow_symlinks=False)
                    found[entry.name] = (now.st_size, now.st_mtime_ns, now.st_ino)
                if len(found) > _MAX_NAMES:
                    return None
    except OSError:
        return None
    return found


class UndoJournal:
    """Records the state of paths before the script changes them, in the process that runs the script."""

    def __init__(
        self, folder: str, *, ignored: Iterable[str] = (), ignored_files: Iterable[str] = (), ends_process: bool = True
    ) -> None:
        """Creates a journal file in `folder`; nothing is recorded before the first `begin_generation`.

        Args:
            folder: an existing folder, private to the user, created by `core.restoration`.
            ignored: folders whose contents do not belong to the script.
            ignored_files: files that others in this process have open, such as the history of a notebook.
            ends_process: whether this process ends with the script. What the script makes by `tempfile` is then
                removed; else it is a file like any other.

        Raises:
            OSError: the folder is not writable, or the disk is full.
        """
        self._folder = os.path.realpath(folder)
        ignored = (self._folder, *map(os.path.realpath, ignored), "/proc", "/sys", "/dev")
        self._ignored = tuple(above + os.sep for above in ignored)
        self._ignored_files = frozenset(map(os.path.realpath, ignored_files))
        self._ends_process = ends_process
        self._owner = os.getpid()
        self._path = os.path.join(self._folder, f"{self._owner}.jsonl")
        self._lines = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._write()  # fails now if nothing can be recorded: the disk is full
        self._lock = threading.RLock()
        self._generations: deque[tuple[int, dict[str, PathState]]] = deque()
        self._generation = self._copied = self._copies = 0
        self._begun = False
        self._own = 0  # changes before any generation
        self._folders: dict[str, FolderListing | None] = {}  # folders that were written to, and their earlier contents
        self._temporary = os.path.realpath(tempfile.gettempdir())
        self._temporaries: dict[str, None] = {}
        self._ended = threading.Event()
        self._last_heartbeat = 0.0  # by the monotonic clock
        self.on_too_large: Callable[[str], None] = lambda _path: None
        """Called with the path of a file too large to copy, once training has begun; need not return."""
        self.on_write: Callable[[str], object] = lambda _path: None
        """Called with the path of each file, folder or link that will change, symlinks resolved, at any time."""

    # -- called by the worker

    def begin_generation(self) -> int:
        """Begins a generation when a loop starts that may train, and returns its number."""
        with self._lock:
            if not self._generation:
                threading.Thread(target=self._send_heartbeats, name="pipetune-undo", daemon=True).start()
            if not self._begun:
                self._generation += 1
                most = MAX_GENERATIONS if self._copied < MAX_COPIED_BYTES / 2 else _FEW_GENERATIONS
                while len(self._generations) >= most:
                    self._drop(self._generations.popleft()[1])
                self._generations.append((self._generation, {}))
                self._write(mark=self._generation)
                if self._generation <= _MAX_LISTINGS:
                    self._folders = {folder: list_folder(folder) for folder in self._folders}
            self._note_open_files()
            return self._generation

    def confirm_training(self, generation: int) -> tuple[str, ...]:
        """Declares that the loop of `generation` trains: what was recorded before it belongs to the script.

        Returns:
            The paths of files that the loop may already have changed and that were too large to copy.
        """
        with self._lock:
            for number, kept in self._generations:
                if number < generation:
                    self._drop(kept)
            since = (kept for number, kept in self._generations if number >= generation)
            found = merge_states(original for kept in since for original in kept.values())
            self._generations = deque([(self._generation, found)])
            self._begun = True
            self._write(begin=generation)
            for folder, names in self._folders.items():
                self._write(listing=folder, names=names, at=time.time_ns())
            return tuple(path for path, original in found.items() if original.kind is RecordKind.UNCOPIED)

    def discard(self) -> None:
        """Drops all records, because the script ran normally after all: its changes are kept."""
        with self._lock:
            self._ended.set()
            while self._generations:
                self._drop(self._generations.popleft()[1])
            try:
                self._write(discard=True)
            except TooLarge:  # on a full disk: an empty journal restores nothing either
                os.ftruncate(self._lines, 0)

    def close(self) -> None:
        """Records the final states, when no code of the script runs any more: later states are attributed to others."""
        with self._lock:
            self._ended.set()
            kept = [path for _, kept in self._generations for path in kept]
            made = [os.path.join(above, name) for path in kept for above, _, names in os.walk(path) for name in names]
            self._write(final={path: current_state(path) for path in (*kept, *made)})

    def release(self) -> None:
        """Closes the journal file after `discard` or `close`; for a process that goes on."""
        os.close(self._lines)

    @property
    def temporary_paths(self) -> tuple[str, ...]:
        """Files and folders that the script created through `tempfile` and has not removed."""
        return tuple(path for path in self._temporaries if os.path.lexists(path))

    # -- called before a change

    def before_write(self, path: AnyPath, *, appending: bool = False, at: int = -1) -> None:
        """The file at `path` (symlinks followed) will be opened for writing, truncated or created.

        Args:
            path: relative to the folder with the descriptor `at`, if that is given.
            appending: whether it is opened for appending, so that its present content stays.
            at: a folder's descriptor; -1 for none. The same in the methods below.
        """
        self._record_path(path, at=at, follow=True, only=RecordKind.APPENDED if appending else None)

    def before_change(self, path: AnyPath, *, at: int = -1) -> None:
        """The entry at `path` itself (symlinks not followed) will be replaced, removed or created."""
        self._record_path(path, at=at)

    def before_rename(self, source: AnyPath, target: AnyPath, *, at: int = -1, to: int = -1) -> None:
        """`source` will be renamed to `target`; for a folder, with all its contents.

        `at` and `to` are descriptors of the folders that the two paths are relative to; -1 for none.
        """
        above, below = self._resolved(source, at), self._resolved(target, to)
        if above is not None and below is not None:
            for name in self._paths_below(above):
                self._record_path(os.path.join(above, name))
                self._record_path(os.path.join(below, name))
            self._record_path(above)
            self._record_path(below)

    def before_removal(self, path: AnyPath) -> None:
        """`path` will be removed; for a folder, with all its contents."""
        name = self._resolved(path, -1)
        if name is not None:
            for below in self._paths_below(name):
                self._record_path(os.path.join(name, below))
            self._record_path(name)

    def before_database(self, name: AnyPath) -> None:
        """An SQLite file will be opened, maybe for writing: if small, it is copied with SQLite's own journals."""
        text = os.fsdecode(name) if not isinstance(name, int) else ""
        if text.startswith("file:"):  # https://www.sqlite.org/uri.html
            text, _, options = text.removeprefix("file:").partition("#")[0].partition("?")
            if {"mode=ro", "mode=memory", "immutable=1"} & set(options.split("&")):
                return
            text = urllib.parse.unquote(text.removeprefix("//localhost").removeprefix("//"))
        now = current_state(os.path.realpath(text)) if text and text != ":memory:" else (_MAX_DATABASE_BYTES + 1,)
        if now is None or now[0] <= _MAX_DATABASE_BYTES:
            self.before_write(text)
            self._keep_beside_database(os.path.realpath(text))

    def before_files_named(self, prefix: AnyPath, *, changing: bool = True) -> None:
        """Files whose names begin with `prefix` will be created and, if `changing`, existing ones changed."""
        name = self._resolved(prefix, -1)
        folder, stem = os.path.split(name or "")
        if name is None:
            return
        if not os.path.isdir(folder):
            self._record_path(name)  # native code also creates the folder
            return
        there = [one for one in os.listdir(folder) if one.startswith(stem)]
        for one in there if changing else ():
            self._record_path(os.path.join(folder, one))
        with self._lock:
            original = PathState(f"{name}*", RecordKind.NAMED, names=tuple(there))
            if self._generations and os.getpid() == self._owner and original.path not in self._generations[-1][1]:
                self._write(original=asdict(original), at=time.time_ns())
                self._generations[-1][1][original.path] = original

    def before_temporary(self, path: str, *, owned: bool) -> None:
        """`tempfile` will create `path`. If it is `owned`, Python removes it when the script ends."""
        name = self._resolved(path, -1) if self._ends_process else None
        if os.getpid() != self._owner or name is None or os.path.lexists(name) or self._is_ignored(name):
            return
        if owned or os.path.dirname(name) == self._temporary:  # but `mkdtemp(dir="runs")` creates a folder to keep
            with self._lock:
                self._temporaries[name] = None
                with contextlib.suppress(TooLarge):  # then it is left behind if the process is killed
                    self._write(temporary=name)

    # -- recording

    def _record_path(
        self, path: AnyPath, *, at: int = -1, follow: bool = False, only: RecordKind | None = None
    ) -> None:
        if os.getpid() != self._owner:
            return
        name = self._resolved(path, at, follow=follow)
        if name is None or self._is_ignored(name):
            return
        self.on_write(name)
        try:
            self._record(name, only, copying=True)
        except TooLarge:
            if self._begun:
                self.on_too_large(name)  # not while the lock is held: the call may never return
            self._record(name, only, copying=False)

    def _record(self, name: str, only: RecordKind | None, *, copying: bool) -> None:
        with self._lock:
            self._list_once(os.path.dirname(name))
            if not self._generations:
                self._own += 1
                if self._own <= _MAX_NAMES:  # another process of the script may train already
                    with contextlib.suppress(TooLarge):  # it only explains the change
                        self._write(own=name, at=time.time_ns())
                return
            self._send_heartbeat()
            kept = self._generations[-1][1]
            known = kept.get(name)
            if known is None and self._is_new(name, kept):
                return
            if known is not None and (known.kind is not RecordKind.APPENDED or only):
                return
            original = self._read_state(name, only, copying=copying)
            if original is None:
                return
            self._write(original=asdict(original), at=time.time_ns())
            kept[original.path] = merge_states(filter(None, (known, original)))[original.path]
            if original.copy and _is_database(os.path.join(self._folder, original.copy)):
                self._keep_beside_database(name)

    def _read_state(self, name: str, only: RecordKind | None, *, copying: bool) -> PathState | None:
        """Returns the state of `name` now, with a copy if needed; None if it is neither file, folder nor link."""
        try:
            now = os.lstat(name)
        except (FileNotFoundError, NotADirectoryError):
            return PathState(_first_missing(name), RecordKind.ABSENT)
        except OSError:
            return None  # without permission to stat it, it cannot be changed either
        found = PathState(
            name,
            only or RecordKind.FILE,
            mode=stat.S_IMODE(now.st_mode),
            user=now.st_uid,
            group=now.st_gid,
            size=now.st_size,
            accessed=now.st_atime_ns,
            modified=now.st_mtime_ns,
            changed=now.st_ctime_ns,
            inode=now.st_ino,
        )
        if stat.S_ISLNK(now.st_mode):
            return replace(found, kind=RecordKind.LINK, target=os.readlink(name))
        if stat.S_ISDIR(now.st_mode):
            return replace(found, kind=RecordKind.FOLDER)
        if not stat.S_ISREG(now.st_mode):
            return None
        if only:
            return found
        if not copying:
            return replace(found, kind=RecordKind.UNCOPIED)
        other = _other_name(name, now.st_ino) if now.st_nlink > 1 else ""
        return replace(found, copy=self._copy_of(name, now.st_size), target=other)

    def _copy_of(self, name: str, size: int) -> str:
        """Copies the file into the journal's folder and returns the name of the copy.

        Raises:
            TooLarge: it exceeds the limit for copies, there is no space for it, or it cannot be read.
        """
        copy = f"{self._owner}-{self._copies}"
        target = os.path.join(self._folder, copy)
        try:
            if self._copied + size > MAX_COPIED_BYTES:
                raise TooLarge(errno.EDQUOT, "pipetune cannot back up all files that would change")
            shutil.copyfile(name, target)
            with open(target, "rb") as copied:
                os.fsync(copied.fileno())  # the journal must not refer to a copy that a power failure would lose
        except OSError as error:
            raise TooLarge(errno.EDQUOT, str(error)) from error
        self._copied, self._copies = self._copied + size, self._copies + 1
        return copy

    def _keep_beside_database(self, name: str) -> None:
        """Also records SQLite's journals: SQLite would apply one that is left next to a restored database to it."""
        for suffix in ("-journal", "-wal", "-shm"):
            self._record_path(name + suffix)

    def _drop(self, kept: Mapping[str, PathState]) -> None:
        for original in kept.values():
            if original.copy:
                os.unlink(os.path.join(self._folder, original.copy))
                self._copied -= original.size

    def _list_once(self, folder: str) -> None:
        """Lists a folder when it is written to for the first time."""
        shared = self._temporary, _MEMORY, os.path.expanduser("~")  # other programs also write there
        if folder in self._folders or folder in shared:
            return
        self._folders[folder] = names = list_folder(folder) if self._generations else None
        if self._begun:
            self._write(listing=folder, names=names, at=time.time_ns())

    def open_files(self) -> list[tuple[int, int, int]]:
        """Returns the files that the script has open for writing: descriptor, flags and size of each."""
        return [found for found in writable_descriptors() if found[0] != self._lines]

    def _note_open_files(self) -> None:
        for descriptor, flags, size in self.open_files():
            appending = appends_only(flags) or self._copied + size > MAX_COPIED_BYTES
            self._record_path(descriptor, only=RecordKind.APPENDED if appending else None)
        for name in writable_mappings():
            self._record_path(name)

    def _write(self, **line: Any) -> None:
        data = json.dumps(line).encode() + b"\n"
        try:
            written = os.write(self._lines, data)
        except OSError as error:
            raise TooLarge(error.errno, f"pipetune cannot record changes of files: {error.strerror}") from error
        if written < len(data):  # the next line must not be appended to a part of this one
            os.ftruncate(self._lines, os.fstat(self._lines).st_size - written)
            raise TooLarge(errno.ENOSPC, "pipetune cannot record changes of files: the disk is full")

    def _send_heartbeats(self) -> None:
        """Updates the modification time of the journal file periodically, as a heartbeat of this process."""
        while not self._ended.wait(_HEARTBEAT_SECONDS):
            self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        """Sends a heartbeat if the last one is old.

        The thread and every change of the script call this: if the machine is so busy that the thread is late, no
        change happens long after the previous heartbeat.
        """
        now = time.monotonic()
        if now - self._last_heartbeat >= _HEARTBEAT_SECONDS / 2 and not self._ended.is_set():
            self._last_heartbeat = now
            os.utime(self._path)

    # -- paths

    def _resolved(self, path: AnyPath, at: int, *, follow: bool = False) -> str | None:
        """Returns the path with symlinks in its folders resolved (with `follow`, in all of it); None if impossible."""
        try:
            if isinstance(path, int):
                name = os.readlink(f"/proc/self/fd/{path}")
                return name if name.startswith(os.sep) and not name.endswith(" (deleted)") else None
            name = os.fsdecode(path)
            if at >= 0 and not os.path.isabs(name):
                name = os.path.join(os.readlink(f"/proc/self/fd/{at}"), name)
            name = os.path.abspath(name)
            if follow:
                return os.path.realpath(name)
            return os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        except (OSError, TypeError, ValueError):
            return None

    def _is_ignored(self, name: str) -> bool:
        if (name.startswith(self._ignored) and not name.startswith(f"{_MEMORY}/")) or _TRANSIENT_FILES.search(name):
            return True
        return name in self._ignored_files or any(one in self._temporaries for one in (name, *_parent_folders(name)))

    def _is_new(self, name: str, kept: Mapping[str, PathState]) -> bool:
        """Whether a parent folder did not exist before the loop, so that nothing in it did."""
        return any(above in kept and kept[above].kind is RecordKind.ABSENT for above in _parent_folders(name))

    def _paths_below(self, folder: str) -> Iterator[str]:
        """Yields every path below a folder, relative to it; nothing if it is no folder, is new, or is not recorded."""
        if not self._generations or os.path.islink(folder) or not os.path.isdir(folder):
            return
        if self._is_new(os.path.join(folder, ""), self._generations[-1][1]):
            return
        for above, folders, files in os.walk(folder):
            for name in (*folders, *files):
                yield os.path.relpath(os.path.join(above, name), folder)


def open_journal(folder: str, **options: Any) -> UndoJournal | None:
    """Returns an `UndoJournal` that ignores pipetune's own folders; None if `folder` is "" or cannot be used."""
    try:
        return UndoJournal(folder, ignored=filter(None, [root()]), **options) if folder else None
    except OSError:
        return None


def _parent_folders(name: str) -> Iterator[str]:
    while (above := os.path.dirname(name)) != name:
        yield above
        name = above


def _other_name(name: str, inode: int) -> str:
    """Returns another name in its folder of the file `name` with this inode; "" if there is none."""
    try:
        with os.scandir(os.path.dirname(name)) as entries:
            return next((one.path for one in entries if one.inode() == inode and one.path != name), "")
    except OSError:
        return ""


def _first_missing(name: str) -> str:
    """Returns the topmost parent folder of `name` that does not exist, or `name` if all exist."""
    while not os.path.lexists(above := os.path.dirname(name)):
        name = above
    return name


def _is_database(path: str) -> bool:
    with open(path, "rb") as stream:
        return stream.read(16) == b"SQLite format 3\0"  # https://www.sqlite.org/fileformat.html
