"""Puts back what an undo journal recorded, once the processes that ran the script have ended, however they ended.

The command that started them does it, or the next one of any kind where that was killed too. A folder of journals
belongs to one start of workers: each of them records into a file of its own, and of a path that several recorded the
earliest state counts.

What somebody else has changed since is left alone, and the copy of what stood there is named. A state counts as the
script's own doing if the journal ends with it (size, times, inode), or if it is no later than the last sign of life of
a process that recorded. Times of the inode are compared, which copying tools cannot set.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipetune.core.undo import Kind, Names, Original, listing, merged, state_of

VARIABLE = "PIPETUNE_UNDO"
"""Names the folder of journals to a worker, and marks it and all that it starts."""

_LOCK, _PROGRESS = "lock", "progress"
_KEPT = "kept"  # written when all is restored: names of copies that the user was told of
_LATE_SECONDS = 2.0  # after the last sign of life: signs are 0.5 s apart, and a busy machine may delay one
_YOUNG_SECONDS = 60.0  # a folder without a lock: it is just being made


@dataclass
class Restoration:
    """What was done to the files of the script. Paths are absolute."""

    restored: list[str] = field(default_factory=list)  # changed or removed by the script, and as they were again
    removed: list[str] = field(default_factory=list)  # made by the script
    left: list[tuple[str, str]] = field(default_factory=list)  # changed by somebody else since; the copy, "" for none
    failed: list[tuple[str, str, str]] = field(default_factory=list)  # the copy, and why it was not put back
    unknown: list[str] = field(default_factory=list)  # changed in a folder of the script, not known by whom


def roots() -> tuple[Path, ...]:
    """Where folders of journals may be: the user's state folder; where that cannot be written, one for all his."""
    state = os.environ.get("XDG_STATE_HOME", "")
    own = Path(state) if os.path.isabs(state) else Path(os.path.expanduser("~/.local/state"))
    return own / "pipetune" / "undo", Path(tempfile.gettempdir()) / f"pipetune-undo-{os.getuid()}"


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """A new folder for the journals of one start of workers, locked while open; "" where none can be made.

    What is in it is to be restored before it is closed; it goes with all that nobody needs any more.
    """
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{secrets.token_hex(3)}"
    for root in roots():
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(root)
            made = root / name
            made.mkdir(mode=0o700)
            lock = os.open(made / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield str(made)
        finally:
            _clear(made)
            os.close(lock)
        return
    yield ""


def recover() -> Iterator[Restoration]:
    """Restores after every command that was killed before it could; ends what is left of its processes first."""
    for root in roots():
        try:
            _check_owner(root)
            folders = sorted(root.iterdir())
        except OSError:
            continue
        for left in folders:
            with _taken_over(left) as ours:
                if ours:
                    _end_processes_of(str(left))
                    yield restore(str(left))
                    _clear(left)


@contextlib.contextmanager
def _taken_over(left: Path) -> Iterator[bool]:
    """Whether nobody works in this folder, and something is to be done there; it is ours while open."""
    if (left / _KEPT).exists():
        yield False
        return
    try:
        if not (left / _LOCK).exists() and time.time() - left.stat().st_mtime < _YOUNG_SECONDS:
            yield False
            return
        lock = os.open(left / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def _check_owner(root: Path) -> None:
    """Nobody else may leave journals there: what they name is written over."""
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{root} is not this user's alone")


def _clear(left: Path) -> None:
    """Removes a folder of journals that was restored, but for the copies that the user was told of."""
    if not (left / _KEPT).exists():
        if not any(left.glob("*.jsonl")):
            shutil.rmtree(left, ignore_errors=True)
        return  # interrupted: the next command goes on
    kept = set((left / _KEPT).read_text().split("\n"))
    for path in left.iterdir():
        if path.name not in {*kept, _KEPT}:
            path.unlink(missing_ok=True)
    if not any(kept):
        shutil.rmtree(left, ignore_errors=True)


def _end_processes_of(left: str) -> None:
    """Ends what the killed command and its workers have left running: it carries the name of the folder."""
    mark = f"{VARIABLE}={left}".encode()
    for process in filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):
            if int(process) != os.getpid() and mark in Path("/proc", process, "environ").read_bytes().split(b"\0"):
                os.kill(int(process), signal.SIGKILL)
                _wait_for_end(int(process))


def _wait_for_end(process: int) -> None:
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return
        if state == "Z":
            return
        time.sleep(0.01)


@dataclass
class _Records:
    """What all journals of a folder say."""

    originals: dict[str, Original] = field(default_factory=dict)
    final: dict[str, list[Any]] = field(default_factory=dict)  # states of each path that are the script's own doing
    listings: dict[str, Names] = field(default_factory=dict)
    prefixes: list[str] = field(default_factory=list)  # of files that TensorFlow makes, and may remove by itself
    temporaries: list[str] = field(default_factory=list)
    last_sign: float = 0.0  # of life, of any of the processes; seconds since the epoch


def _read(left: Path) -> _Records:
    records = _Records()
    found: list[tuple[int, Original]] = []
    for journal in sorted(left.glob("*.jsonl")):
        records.last_sign = max(records.last_sign, journal.stat().st_mtime)
        mine: list[tuple[int, int, Original]] = []  # with its generation
        generation, begun = 0, -1
        for text in journal.read_bytes().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the process ended while it wrote it, before the script's own change
            if "original" in line:
                mine.append((generation, line["at"], _original(line["original"])))
                if mine[-1][2].kind is Kind.NAMED:
                    records.prefixes.append(mine[-1][2].path.removesuffix("*"))
            elif "mark" in line:
                generation = line["mark"]
            elif "begin" in line:
                begun = line["begin"]
            elif "discard" in line:
                mine = []
            elif "listing" in line and line["names"] is not None:
                records.listings[line["listing"]] = {name: tuple(state) for name, state in line["names"].items()}
            elif "temporary" in line:
                records.temporaries.append(line["temporary"])
            elif "final" in line:
                for path, state in line["final"].items():
                    records.final.setdefault(path, []).append(tuple(state) if state else None)
        # Killed before anything was known to train: it may have been in the loop that was begun last.
        first = begun if begun >= 0 else generation
        found += [(at, original) for number, at, original in mine if number >= first]
    copied = (one for _, one in sorted(found, key=lambda one: one[0]) if not one.copy or (left / one.copy).exists())
    records.originals = merged(copied)
    return records


def _original(fields: dict[str, Any]) -> Original:
    return Original(**{**fields, "kind": Kind(fields["kind"]), "names": tuple(fields["names"])})


def restore(left: str, *, unlisted: tuple[str, ...] = ()) -> Restoration:
    """Puts back what the journals in the folder `left` recorded; can be done again where it was interrupted.

    Args:
        left: made by `folder`; "" for none.
        unlisted: folders that are not compared, for pipetune itself writes there.
    """
    done = Restoration()
    if left:
        _Restorer(Path(left), done).restore(unlisted)
    return done


class _Restorer:
    def __init__(self, left: Path, done: Restoration) -> None:
        self._left, self._done = left, done
        self._records = _read(left)
        # The paths begun before, if this was interrupted: all but the last are done, and that one is ours to change.
        try:
            self._begun = json.loads(f"[{(left / _PROGRESS).read_text().rstrip().rstrip(',')}]")
        except (OSError, ValueError):
            self._begun = []

    def restore(self, unlisted: tuple[str, ...]) -> None:
        originals = sorted(self._records.originals.values(), key=lambda one: one.path.count(os.sep))
        with open(self._left / _PROGRESS, "a", encoding="utf-8") as progress:
            for original in [
                *(one for one in originals if one.kind is Kind.FOLDER),
                *(one for one in originals if one.kind not in (Kind.FOLDER, Kind.ABSENT, Kind.NAMED)),
                *reversed([one for one in originals if one.kind in (Kind.ABSENT, Kind.NAMED)]),
            ]:
                if original.path in self._begun[:-1]:
                    continue
                progress.write(json.dumps(original.path) + ",")
                progress.flush()
                try:
                    self._put_back(original)
                except OSError as error:
                    self._done.failed.append((original.path, self._copy(original), error.strerror or str(error)))
        for path in self._records.temporaries:
            with contextlib.suppress(OSError):
                _remove(path)
        self._compare(unlisted)
        named = [copy for _, copy in self._done.left] + [copy for _, copy, _ in self._done.failed]
        (self._left / _KEPT).write_text("\n".join(os.path.basename(copy) for copy in named if copy))

    def _put_back(self, original: Original) -> None:
        path, now = original.path, state_of(original.path)
        if original.kind is Kind.ABSENT:
            if now is not None:
                self._remove_new(path)
            return
        if original.kind is Kind.NAMED:
            folder, stem = os.path.split(path.removesuffix("*"))
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if name.startswith(stem) and name not in original.names:
                    self._remove_new(os.path.join(folder, name))
            return
        if original.kind is Kind.UNCOPIED:
            raise OSError("it was too large to be copied")
        if now == (original.size, original.modified, original.changed, original.inode):
            return
        if original.kind is Kind.FOLDER and now is not None and stat.S_ISDIR(mode := os.lstat(path).st_mode):
            if stat.S_IMODE(mode) != original.mode:
                os.chmod(path, original.mode)
            return
        if now is not None and not self._is_own(path, now):
            self._done.left.append((path, self._copy(original)))
            return
        if original.kind is Kind.FOLDER:
            _remove(path)
            os.mkdir(path)
            _put_metadata(path, original)
        elif original.kind is Kind.LINK:
            if os.path.islink(path) and os.readlink(path) == original.target:
                return
            _remove(path)
            os.symlink(original.target, path)
        elif original.kind is Kind.FILE:
            _put_content(path, original, self._left / original.copy)
        elif original.kind is Kind.APPENDED:
            if now is None or now[0] < original.size:
                raise OSError("it was cut, and had been opened to be appended to only")
            os.truncate(path, original.size)
            _put_metadata(path, original)
        self._done.restored.append(path)

    def _remove_new(self, path: str) -> None:
        """Removes what the script made; in a folder, but for what somebody else has put there since."""
        if os.path.isdir(path) and not os.path.islink(path):
            for above, folders, files in os.walk(path, topdown=False):
                for name in (*files, *folders):
                    self._remove_own(os.path.join(above, name))
        if self._remove_own(path):
            self._done.removed.append(path)

    def _remove_own(self, path: str) -> bool:
        now = state_of(path)
        if os.path.isdir(path) and not os.path.islink(path):
            with contextlib.suppress(OSError):  # something is left in it
                os.rmdir(path)
                return True
        elif now is not None and self._is_own(path, now):
            os.unlink(path)
            return True
        else:
            self._done.left.append((path, ""))
        return False

    def _is_own(self, path: str, now: tuple[int, int, int, int]) -> bool:
        """Whether what is at `path` now is the doing of the script, and not of somebody else since."""
        if now in self._records.final.get(path, ()) or path in self._begun[-1:]:
            return True
        return now[2] / 1e9 <= self._records.last_sign + _LATE_SECONDS

    def _copy(self, original: Original) -> str:
        return str(self._left / original.copy) if original.copy else ""

    def _compare(self, unlisted: tuple[str, ...]) -> None:
        """Names what has changed in the folders of the script, and that no journal knew of."""
        known, prefixes = self._records.originals, tuple(self._records.prefixes)
        for above, names in self._records.listings.items():
            now = listing(above)
            if now is None or above in unlisted:
                continue
            for name in sorted({*names, *now}):
                path = os.path.join(above, name)
                told = path in known or path in self._records.temporaries or path.startswith(prefixes)
                if not told and names.get(name) != now.get(name):
                    self._done.unknown.append(path)


def _put_content(path: str, original: Original, copy: Path) -> None:
    """The file as it was. One that is still the same file is written in place: other names of it, its owner, and who
    has it open are kept.
    """
    now = None if os.path.islink(path) else state_of(path)
    if now is not None and now[3] == original.inode:
        with contextlib.suppress(PermissionError):
            with open(copy, "rb") as source, open(path, "r+b") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.truncate(original.size)
            _put_metadata(path, original)
            return
    aside = f"{path}.pipetune-{secrets.token_hex(3)}"
    try:
        shutil.copyfile(copy, aside)
        os.truncate(aside, original.size)
        _put_metadata(aside, original)
        if os.path.isdir(path) and not os.path.islink(path):
            _remove(path)
        os.replace(aside, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(aside)


def _put_metadata(path: str, original: Original) -> None:
    with contextlib.suppress(PermissionError):
        os.chown(path, original.user, original.group)
    os.chmod(path, original.mode)
    os.utime(path, ns=(original.accessed, original.modified))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


if __name__ == "__main__":
    for _ in recover():
        pass
