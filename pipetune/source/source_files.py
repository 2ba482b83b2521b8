"""Source files: reading them in their own encoding, positions of their lines, and replacing several of them at once."""

from __future__ import annotations

import codecs
import contextlib
import io
import linecache
import os
import re
import stat
import tempfile
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.core.errors import PipetuneError

if TYPE_CHECKING:
    from pipetune.core.pipeline import Pipeline

NEWLINE = re.compile(rb"\r\n|\r|\n")
BYTE_ORDER_MARK = "\ufeff"

_MAX_ENTRIES = 20_000  # directory entries: a folder with more holds data, not source
_MAX_FULL_FOLDERS = 20  # times as many entries are searched: about a second
_SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__", "build", "dist"})


def read_source(path: str) -> str:
    """Returns the text of a Python file, with its newlines and byte order mark unchanged.

    Raises:
        OSError: the file cannot be read.
        SyntaxError, UnicodeDecodeError: its bytes do not match its encoding cookie.
    """
    return decode_source(Path(path).read_bytes())


def neighboring_files(file: str) -> Iterator[str]:
    """Yields the other Python files of the folder, of its subfolders, and of the packages it belongs to."""
    own, folder = os.path.abspath(file), os.path.dirname(os.path.abspath(file))
    while os.path.isfile(os.path.join(folder, "__init__.py")) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    waiting, seen = [folder], 0
    while waiting and seen <= _MAX_FULL_FOLDERS * _MAX_ENTRIES:
        above = waiting.pop(0)
        try:
            with os.scandir(above) as listing:
                entries = sorted(islice(listing, _MAX_ENTRIES + 1), key=lambda one: one.name)
        except OSError:
            continue
        seen += len(entries)
        for entry in entries if len(entries) <= _MAX_ENTRIES else ():
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith("."):
                    waiting.append(entry.path)
            elif entry.name.endswith(".py") and entry.path != own:
                yield entry.path


def decode_source(data: bytes) -> str:
    """Returns source code decoded by its encoding cookie (PEP 263); a byte order mark stays in the text."""
    return data.decode(_encoding(data))


def source_lines(pipeline: Pipeline) -> dict[str, str]:
    """Returns the lines of the call that made each operator, by node id, without those whose source is not known.

    Cells of a notebook have them, too: IPython keeps their text in `linecache`.
    """
    located = ((node.id, node.location) for node in pipeline if node.location is not None)
    lines = {node: linecache.getlines(at.file)[at.line - 1 : at.end_line] for node, at in located}
    return {node: textwrap.dedent("".join(text)).rstrip() for node, text in lines.items() if text}


def encode_source(text: str, *, like: bytes) -> bytes:
    """Returns `text` in the encoding of the source file whose bytes are `like`."""
    return text.encode(_encoding(like))


def _encoding(data: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return "utf-8" if codecs.lookup(encoding).name == "utf-8-sig" else encoding


def line_starts(code: bytes) -> list[int]:
    """Returns the byte offset of every line, as Python counts lines (form feeds and U+2028 do not end one)."""
    return [0, *(match.end() for match in NEWLINE.finditer(code))]


def line_start(code: bytes, offset: int) -> int:
    """Returns the byte offset at which the line that holds `offset` begins."""
    return max(code.rfind(b"\n", 0, offset), code.rfind(b"\r", 0, offset)) + 1


def line_end(code: bytes, offset: int) -> int:
    """Returns the byte offset of the newline that ends the line holding `offset`, or of the end of the text."""
    found = NEWLINE.search(code, offset)
    return found.start() if found else len(code)


def next_line(code: bytes, offset: int) -> int:
    """Returns the byte offset at which the line behind that of `offset` begins, or of the end of the text."""
    found = NEWLINE.search(code, offset)
    return found.end() if found else len(code)


def newline_of(code: bytes, offset: int) -> bytes:
    """Returns the newline that ends the line holding `offset`; for the last line the first of the text, else a LF."""
    found = NEWLINE.search(code, offset) or NEWLINE.search(code)
    return found.group() if found else b"\n"


@dataclass(frozen=True)
class FileChange:
    """New bytes for a file, and its current ones (None: the file is new)."""

    path: str
    old: bytes | None
    new: bytes


def write_all(changes: Sequence[FileChange]) -> None:
    """Writes every change; symbolic links stay links, and mode and owner are kept.

    Raises:
        PipetuneError: a file cannot be written; those written before it are restored.
    """
    for change in changes:
        _refuse_unwritable(change)
    written: list[FileChange] = []
    try:
        for change in changes:
            written.append(change)
            _replace_file(change.path, change.new)
    except BaseException as error:
        for change in reversed(written):
            _restore_file(change)
        if isinstance(error, OSError):
            raise PipetuneError(
                f"{written[-1].path} cannot be written: {error.strerror}.", hint="Nothing was changed."
            ) from error
        raise


def _refuse_unwritable(change: FileChange) -> None:
    if change.old is None:
        return
    path = os.path.realpath(change.path)
    # The mode is checked, too: replacing a file needs no write permission on it, and root may write anything.
    if not os.stat(path).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
        raise PipetuneError(
            f"{change.path} is not writable.", hint="Nothing was changed. Make the file writable and try again."
        )


def _replace_file(path: str, data: bytes) -> None:
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


def _restore_file(change: FileChange) -> None:
    """Restores the old bytes of a file if the new ones were written."""
    path = Path(change.path)
    if change.old is None:
        path.unlink(missing_ok=True)
    elif path.read_bytes() != change.old:
        _replace_file(change.path, change.old)
