"""The figures of a session as JSON, in the documented format of `summary`."""

from __future__ import annotations

import json

from pipetune.core.codec import Json, encode
from pipetune.core.redaction import redact
from pipetune.core.session import Session
from pipetune.core.summary import summary


def figures(session: Session) -> Json:
    """Returns the summary as JSON can carry it: what is not a finite number is null."""
    return encode(summary(redact(session) if session.command.confidential else session))


def json_text(session: Session) -> str:
    return json.dumps(figures(session), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
