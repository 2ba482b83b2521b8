"""session.json: the one file that crosses from measuring to showing."""

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
"""What a session may take: above it the file has no line breaks, and no fields that have their default."""

_FIRST = ("machine", "command", "datasets", "trials")


def session_data(session: Session, *, sparse: bool = False) -> dict[str, Json]:
    """The session as session.json holds it: the documented keys, then what else rebuilds the session.

    `sparse`: of datasets what has its default is left out.
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
    """Write `session` to `path` in one step.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    data = session_data(session)
    text = json.dumps(data, indent=1, allow_nan=False)
    if len(text) > MOST_BYTES:
        text = json.dumps(session_data(session, sparse=True), separators=(",", ":"), allow_nan=False)
    write_text(Path(path), text + "\n")


def load(path: Path | str) -> Session:
    """The session in `path`, a session.json or the folder that holds one.

    Raises:
        PipetuneError: there is none, it is damaged, or another release wrote it.
    """

    def make(data: dict[str, object]) -> Session:
        return decode(Session, {**unfold(data), "version": data.get("pipetune")})

    return read_value(path, make, name=SESSION_FILE, kind="session", schema=SCHEMA)
