"""Pipetune's own folders for a while: each is named after the process that made it, whose end may leave it behind.

A process that is killed removes nothing. The next command takes away what processes left that are no longer there
(`remove_abandoned`). What a worker needs lies in the folder of its job (`use`), which the command that started it
removes, however the worker ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"pipetune-[a-z]+-(\d+)-(\d+)-(\d+)-")
_root: str | None = None


def use(root: str) -> None:
    """Folders of this process are made in `root` from now on, not in the system's folder for temporary files."""
    global _root
    _root = root


def root() -> str | None:
    """Where folders of this process are made; None: in the system's folder for temporary files."""
    return _root


@contextlib.contextmanager
def folder(purpose: str, *, within: str | None = None) -> Iterator[str]:
    """A new folder, gone when it is closed.

    Args:
        purpose: one word, for who finds it there meanwhile.
        within: where it has to be, else where all of this process are.
    """
    prefix = f"pipetune-{purpose}-{os.getpid()}-{_started(os.getpid())}-{_namespace()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=within or _root, ignore_cleanup_errors=True) as made:
        yield made


def remove_abandoned() -> None:
    """Removes the folders of processes that have ended, where they were to be made if nobody says otherwise.

    Those of other users, machines and containers, which may share the place, are left alone.
    """
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            named = _NAME.match(entry.name)
            if named is None or not entry.is_dir(follow_symlinks=False):
                continue
            process, started, namespace = map(int, named.groups())
            ours = namespace == _namespace() and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if ours and _started(process) != started:
                shutil.rmtree(entry.path, ignore_errors=True)


def _started(process: int) -> int:
    """When a process has begun, in clock ticks since the machine has; -1 where there is none, 0 where none can tell."""
    if not os.path.isdir("/proc/self"):
        return 0
    try:
        state = Path(f"/proc/{process}/stat").read_text()
        return int(state.rpartition(")")[2].split()[19])  # proc(5): field 22; the name before may have spaces
    except (OSError, IndexError, ValueError):
        return -1


def _namespace() -> int:
    """Tells the numbers of processes of this container from those of another."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
