"""A session in any format, written in one step; each format loads its own library only."""

from __future__ import annotations

import os
from pathlib import Path

from pipetune.core.errors import PipetuneError
from pipetune.core.files import write_text
from pipetune.core.session import Session

FORMATS = ("html", "markdown", "json", "csv", "text", "trace")


def render_text(session: Session, format: str, *, editor: str = "vscode") -> str:
    """The session as text in `format`, one of `FORMATS`.

    Args:
        session: what is rendered.
        format: of the text.
        editor: what a place in the source opens in html, a key of `report.html.EDITORS`.

    Raises:
        PipetuneError: the format is not known, or a trace is wanted and no steps were recorded.
    """
    match format:
        case "html":
            from pipetune.report.html import html

            return html(session, editor=editor)
        case "markdown":
            from pipetune.report.markdown import markdown

            return markdown(session)
        case "json":
            from pipetune.report.html import json_text

            return json_text(session)
        case "csv":
            from pipetune.report.exports import csv

            return csv(session)
        case "trace":
            from pipetune.report.exports import trace

            return trace(session)
        case "text":
            from pipetune.report.terminal import report_text

            return report_text(session)
    raise PipetuneError(f"There is no report format {format!r}.", hint=f"Choose one of {', '.join(FORMATS)}.")


def render(session: Session, format: str, path: str | os.PathLike[str], *, editor: str = "vscode") -> Path:
    """Write the session in `format` to `path`, whole or not at all; returns the path.

    Raises:
        PipetuneError: the format is not known, or the file cannot be written.
    """
    target = Path(path)
    write_text(target, render_text(session, format, editor=editor))
    return target
