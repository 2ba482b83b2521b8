"""Notifies the undo journal before the script changes files, through Python's audit events (PEP 578).

Source: the "Audit events table" of Python's library reference. These libraries were tested to raise the events: `open`
and code built on it (pandas, matplotlib, zipfile, gzip, shelve, `ndarray.tofile`, `numpy.memmap`), `os`, `shutil`,
`tempfile`, `sqlite3.connect`. A training step of TensorFlow raises none; an eager one about 35, each of which costs a
dictionary lookup.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from pipetune.core.undo import AnyPath, TooLarge, UndoJournal, appends_only

_current: UndoJournal | None = None
_hooked = False


def current_journal() -> UndoJournal | None:
    """Returns the undo journal of this process; None if there is none."""
    return _current


def set_journal(journal: UndoJournal | None) -> None:
    """Sends the file events of this process to `journal` from now on; None: ignores them."""
    global _current, _hooked
    _current = journal
    if not _hooked:  # an audit hook cannot be removed
        _hooked = True
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _current is None:  # also during interpreter shutdown, when module globals are cleared
        return
    handler = _HANDLERS.get(event)
    if handler is None:
        return
    try:
        handler(_current, *arguments)
    except TooLarge:
        raise
    except Exception:  # a bug here must not fail the script; its folders are compared afterwards anyway
        traceback.print_exc()


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC  # flags of `open` that may change a file


def _open(journal: UndoJournal, path: AnyPath, mode: str | None, flags: int | None) -> None:
    flags = flags or 0
    if isinstance(path, int) or not (flags & _WRITING or set(mode or "") & set("wxa+")):
        return
    if not os.path.isdir(path):  # `tempfile` opens a folder to create an unnamed file
        journal.before_write(path, appending=appends_only(flags))


def _link(journal: UndoJournal, source: AnyPath, target: AnyPath, at: int = -1, to: int = -1) -> None:
    journal.before_change(source, at=at)  # a write through either name changes both
    journal.before_change(target, at=to)


def _temporary(journal: UndoJournal, path: str) -> None:
    journal.before_temporary(path, owned=_is_owned())


_OWNERS: Mapping[Any, Callable[[Mapping[str, Any]], bool]] = {
    tempfile.TemporaryDirectory.__init__.__code__: lambda _names: True,
    tempfile.NamedTemporaryFile.__code__: lambda names: bool(names.get("delete", True)),
}


def _is_owned() -> bool:
    """Whether the path now being created will be removed by a `tempfile` object."""
    frame = sys._getframe(1)
    for _ in range(8):  # frames between here and the `tempfile` function that the script called
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code in _OWNERS:
            return _OWNERS[frame.f_code](frame.f_locals)
    return False


_HANDLERS: Mapping[str, Callable[..., None]] = {
    "open": _open,
    "os.truncate": lambda journal, path, *_: journal.before_write(path),
    "os.rename": lambda journal, source, target, at=-1, to=-1: journal.before_rename(source, target, at=at, to=to),
    "os.remove": lambda journal, path, at=-1: journal.before_change(path, at=at),
    "os.rmdir": lambda journal, path, at=-1: journal.before_change(path, at=at),
    "os.mkdir": lambda journal, path, _mode=0, at=-1: journal.before_change(path, at=at),
    "os.symlink": lambda journal, _source, target, at=-1: journal.before_change(target, at=at),
    "os.link": _link,
    "os.chmod": lambda journal, path, _mode, at=-1: journal.before_write(path, at=at),
    "os.chown": lambda journal, path, _user, _group, at=-1: journal.before_write(path, at=at),
    "os.utime": lambda journal, path, _times=None, _ns=None, at=-1: journal.before_write(path, at=at),
    "sqlite3.connect": lambda journal, name: journal.before_database(name),
    "tempfile.mkdtemp": _temporary,
    "tempfile.mkstemp": _temporary,
}
