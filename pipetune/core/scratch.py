"""Temporary folders of pipetune, each named after the process that created it.

A killed process leaves its folders behind; the next command removes those of processes that no longer exist
(`remove_abandoned`). A worker creates its folders in the folder of its job (`use`), which the command that started it
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
    """Makes `folder` create its folders in `root` from now on, instead of the system's temporary folder."""
    global _root
    _root = root


def root() -> str | None:
    """Returns where folders of this process are created; None: in the system's temporary folder."""
    return _root


@contextlib.contextmanager
def folder(purpose: str, *, within: str | None = None) -> Iterator[str]:
    """Creates a folder that is removed on exit.

    Args:
        purpose: one lowercase word for its name, to explain the folder to people who find it.
        within: where to create it; None: in `root()`.
    """
    prefix = f"pipetune-{purpose}-{os.getpid()}-{_started(os.getpid())}-{_namespace()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=within or _root, ignore_cleanup_errors=True) as made:
        yield made


def remove_abandoned() -> None:
    """Removes the folders that exited processes left in the system's temporary folder.

    Folders of other users, machines and containers, which may share the place, are kept.
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
    """Returns when a process started, in clock ticks since boot; -1 if it does not exist, 0 without /proc."""
    if not os.path.isdir("/proc/self"):
        return 0
    try:
        state = Path(f"/proc/{process}/stat").read_text()
        return int(state.rpartition(")")[2].split()[19])  # proc(5): field 22; the name before may contain spaces
    except (OSError, IndexError, ValueError):
        return -1


def _namespace() -> int:
    """Returns an id of the PID namespace, to distinguish process ids of different containers; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
