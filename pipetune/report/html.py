"""The HTML report: one offline file that runs nothing but its own few lines of script."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipetune.core.session import Session
from pipetune.report import charts
from pipetune.report.data import plain_data
from pipetune.report.view import make_view

TEMPLATES = Path(__file__).parent / "templates"


def html(session: Session) -> str:
    """The page. Foreign text is escaped by Jinja2; the data block goes through `tojson`; the content policy
    allows this page's own script by its digest and no request at all.
    """
    view = make_view(session)
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment().get_template("report.html.j2")
    return template.render(
        view=view,
        main=view.main,
        charts=charts,
        style=Markup(style),  # our own file
        script=Markup(script),  # our own file
        script_digest=digest,
        data=plain_data(view),
        trial_axis=charts.trial_axis(view.attempts),
        confirmation=charts.confirmation(view.attempts),
    )


@functools.cache
def environment() -> Environment:
    """The templates, compiled once: that takes most of the time of a page."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["typeset"] = typeset
    made.filters["percent_place"] = lambda value: f"{value:.2f}%"
    made.filters["slug"] = lambda text: re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-") or "x"
    return made


def typeset(text: str) -> str:
    """Our own figures in print: a multiplication sign, a micro sign, number and unit kept on one line."""
    text = re.sub(r"(?<=\d)x(?![\w])", "\u00d7", text)
    return re.sub(r"(?<=\d) (us|ms|s|%|[KMGT]?i?B)(?!\w)", _unit, text)


def _unit(match: re.Match[str]) -> str:
    unit = "\u00b5s" if match[1] == "us" else match[1]
    return f"\u00a0{unit}"
