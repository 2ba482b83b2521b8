"""The HTML report: one offline file that runs nothing but its own few lines of script."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipetune.core.codec import Json, encode
from pipetune.core.session import Session
from pipetune.core.session_file import redact
from pipetune.core.summary import summary
from pipetune.report.blocks import Place
from pipetune.report.page import page


def figures(session: Session) -> Json:
    """Returns the summary as JSON can carry it: what is not a finite number is null."""
    return encode(summary(redact(session) if session.command.confidential else session))


def json_text(session: Session) -> str:
    return json.dumps(figures(session), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


TEMPLATES = Path(__file__).parent / "templates"

EDITORS: dict[str, Callable[[Place], str]] = {
    "vscode": lambda place: f"vscode://file{quote(place.file)}:{place.line}",
    "idea": lambda place: f"idea://open?file={quote(place.file)}&line={place.line}",
    "file": lambda place: f"file://{quote(place.file)}",
    "none": lambda place: "",
}
"""What a place in the source links to."""

_BESIDE = ("Bars", "Commands", "Checks")  # blocks of the answer in its second column


def html(session: Session, *, editor: str = "vscode") -> str:
    """The page. Foreign text is escaped by Jinja2; the data block goes through `tojson`; the content policy
    allows this page's own script by its digest and no request at all.
    """
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment(editor).get_template("report.html.j2")
    return template.render(
        page=page(session),
        beside=_BESIDE,
        style=Markup(style),  # our own file
        script=Markup(script),  # our own file
        script_digest=digest,
        data=figures(session),
    )


@functools.cache
def environment(editor: str) -> Environment:
    """The templates, compiled once: that takes most of the time of a page."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["typeset"] = typeset
    made.filters["share"] = lambda value: f"{100 * value:.2f}%"
    made.filters["kind"] = lambda block: type(block).__name__
    made.filters["slug"] = lambda text: re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-") or "x"
    made.filters["editor_link"] = lambda place: EDITORS[editor](place) if place.file else ""
    return made


_FIGURE = r"(?<![\w./-])(\d[\d.,]*)"  # not a part of a name or a path


def typeset(text: str) -> str:
    """Our own figures in print: a multiplication sign, a micro sign, number and unit kept on one line."""
    text = re.sub(rf"{_FIGURE}x(?!\.?\w|[/-])", "\\1\u00d7", text)
    text = re.sub(rf"{_FIGURE} us(?!\w)", "\\1\u00a0\u00b5s", text)
    return re.sub(rf"{_FIGURE} (ms|s|%|[KMGT]?i?B)(?!\w)", "\\1\u00a0\\2", text)
