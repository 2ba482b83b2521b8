"""session.json: the only file passed from measuring to reporting."""

from __future__ import annotations

import json
from pathlib import Path

from pipetune.core.codec import Json, decode, encode
from pipetune.core.files import read_value, write_text
from pipetune.core.folding import fold, unfold
from pipetune.core.session import SCHEMA, Session
from pipetune.core.summary import summary

SESSION_FILE = "session.json"

MOST_BYTES = 1_000_000
"""Maximum size of a readable file; a larger one has no line breaks, and no fields with default values."""

_FIRST = ("machine", "command", "datasets", "trials")


def session_data(session: Session, *, sparse: bool = False) -> dict[str, Json]:
    """Returns the contents of session.json: the documented keys, then the rest that is needed to restore the session.

    With `sparse`, fields of datasets that have their default value are omitted.
    """
    fields = encode(session)
    assert isinstance(fields, dict)
    del fields["version"]
    if sparse:
        fields["datasets"] = encode(session.datasets, sparse=True)
    fold(fields)
    return {
        "schema": SCHEMA,
        "pipetune": session.version,
        **{name: fields.pop(name) for name in _FIRST},
        "summary": summary(session),
        **fields,
    }


def save(session: Session, path: Path | str) -> None:
    """Writes `session` to `path` atomically.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    data = session_data(session)
    text = json.dumps(data, indent=1, allow_nan=False)
    if len(text) > MOST_BYTES:
        text = json.dumps(session_data(session, sparse=True), separators=(",", ":"), allow_nan=False)
    write_text(Path(path), text + "\n")


def load(path: Path | str) -> Session:
    """Loads the session from `path`, a session.json or the folder that contains one.

    Raises:
        PipetuneError: the file does not exist, is damaged, or was written by another release.
    """

    def make(data: dict[str, object]) -> Session:
        return decode(Session, {**unfold(data), "version": data.get("pipetune")})

    return read_value(path, make, name=SESSION_FILE, kind="session", schema=SCHEMA)
