"""Reads JSON files, and writes files atomically."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pipetune.core.codec import Malformed
from pipetune.core.errors import PipetuneError

Value = TypeVar("Value")


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Writes `text` to `path` atomically: neither a reader nor a crash leaves a partial file; symlinks are followed.

    Args:
        mode: permission bits of the file; the umask applies.

    Raises:
        PipetuneError: the folder cannot be created or written to.
    """
    try:
        path = path.resolve() if path.is_symlink() else path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with open(
                temporary,
                "w",
                encoding="utf-8",
                errors="surrogateescape",
                newline="",
                opener=lambda name, flags: os.open(name, flags, mode),
            ) as stream:
                stream.write(text)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise PipetuneError(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="Name a folder you may write to with --out DIR.",
        ) from error


def write_json(path: Path, data: object) -> None:
    """Writes `data` as indented JSON; NaN and infinity raise ValueError, because the caller must encode them."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def read_json(path: Path, *, kind: str, schema: int) -> dict[str, object]:
    """Returns the object in a JSON file, whose "schema" must be `schema`.

    Args:
        path: the file.
        kind: the kind of file, for error messages: "session", "plan".
        schema: the schema version that this release reads.

    Raises:
        PipetuneError: the file does not exist, is not JSON, or was written by another release.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipetuneError(
            f"The {kind} file {path} cannot be read: {error.strerror or error}.",
            hint="`pipetune analyze SCRIPT` writes one.",
        ) from error
    except ValueError as error:
        raise PipetuneError(
            f"{path} is not a {kind} file: it holds no JSON ({error}).",
            hint="It may have been cut short or edited; run `pipetune analyze` again.",
        ) from error
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema:
        raise PipetuneError(
            f"{path} is not a {kind} file that this release reads: it says schema {found!r}, not {schema}.",
            hint="Use the release of pipetune that wrote it, or run `pipetune analyze` again.",
        )
    return dict(data)


def read_value(
    path: Path | str, make: Callable[[dict[str, object]], Value], *, name: str, kind: str, schema: int
) -> Value:
    """Returns the value that `make` builds from the JSON file `path`, or from the file `name` in the folder `path`.

    Raises:
        PipetuneError: as in `read_json`, or the file is damaged.
    """
    path = Path(path)
    if path.is_dir():
        path = path / name
    data = read_json(path, kind=kind, schema=schema)
    try:
        return make(data)
    except Malformed as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint=error.hint) from error
