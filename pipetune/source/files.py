"""Writes several files so that either all of them change or none, and no file is ever half written."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.errors import PipetuneError


@dataclass(frozen=True)
class Change:
    """New bytes for a file, and its current ones (None: the file is new)."""

    path: str
    old: bytes | None
    new: bytes


def write_all(changes: Sequence[Change]) -> None:
    """Writes every change; symbolic links stay links, and mode and owner are kept.

    Raises:
        PipetuneError: a file cannot be written; those written before it are restored.
    """
    for change in changes:
        _refuse_unwritable(change)
    written: list[Change] = []
    try:
        for change in changes:
            written.append(change)
            _replace(change.path, change.new)
    except BaseException as error:
        for change in reversed(written):
            _restore(change)
        if isinstance(error, OSError):
            raise PipetuneError(
                f"{written[-1].path} cannot be written: {error.strerror}.", hint="Nothing was changed."
            ) from error
        raise


def _refuse_unwritable(change: Change) -> None:
    if change.old is None:
        return
    path = os.path.realpath(change.path)
    # The mode is checked, too: replacing a file needs no write permission on it, and root may write anything.
    if not os.stat(path).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
        raise PipetuneError(
            f"{change.path} is not writable.",
            hint="Nothing was changed. Make the file writable and try again.",
        )


def _replace(path: str, data: bytes) -> None:
    target = Path(os.path.realpath(path))
    before = target.stat() if target.exists() else None
    handle, name = tempfile.mkstemp(prefix=".pipetune-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if before is None:
            os.chmod(name, 0o644)
        else:
            with contextlib.suppress(PermissionError):
                os.chown(name, before.st_uid, before.st_gid)
            os.chmod(name, stat.S_IMODE(before.st_mode))
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _restore(change: Change) -> None:
    """Restores the old bytes of a file if the new ones were written."""
    path = Path(change.path)
    if change.old is None:
        path.unlink(missing_ok=True)
    elif path.read_bytes() != change.old:
        _replace(change.path, change.old)
