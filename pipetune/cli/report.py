"""`pipetune report`: show an existing session in any format; nothing is measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipetune.cli.command import Answer, lines, session_file_of
from pipetune.core.codec import Json
from pipetune.core.errors import PipetuneError
from pipetune.core.session_file import load
from pipetune.core.summary import summary

SUMMARY = "show a session in another format"

DESCRIPTION = "Renders an existing session. Nothing is measured or run."

_FORMAT_OF = {".html": "html", ".htm": "html", ".json": "json", ".csv": "csv", ".md": "markdown"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="session.json, or the folder that holds it")
    parser.add_argument("--open", action="store_true", help="write the HTML report and open it in a browser")
    parser.add_argument(
        "--format",
        choices=("html", "json", "csv", "markdown", "trace"),
        help="html writes report.html next to the session; json, csv, markdown and trace are printed (default: print "
        "everything as text); a trace opens in Perfetto",
    )
    parser.add_argument(
        "--editor",
        choices=("vscode", "idea", "file", "none"),
        default="vscode",
        help="what a place in the source opens in html: an editor, the file, or nothing (default: vscode)",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write to this file instead; its suffix decides on the format where none is given"
    )


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: the session cannot be read, the report cannot be written or opened, or the options do not fit
            together.
    """
    from pipetune.report.console import write
    from pipetune.report.render import render, render_text

    if arguments.open and arguments.format not in (None, "html"):
        raise PipetuneError(f"A browser opens html, not {arguments.format}.", hint="Omit --format.")
    by_suffix = _FORMAT_OF.get(Path(arguments.out or "").suffix, "text")
    format = arguments.format or ("html" if arguments.open else by_suffix)
    written = format == "html" or bool(arguments.out)
    if arguments.json and arguments.format and not written:
        raise PipetuneError(
            f"--json prints the summary of the session, and --format {format} another text.",
            hint="Write the other one to a file with --out FILE, or omit one of the options.",
        )
    session, source = load(arguments.session), session_file_of(arguments.session)
    data: dict[str, Json] = {"format": arguments.format, **summary(session)}
    if not written:
        return Answer(data, lambda: write(sys.stdout, render_text(session, format)), {"session": source})
    path = render(session, format, arguments.out or source.parent / "report.html", editor=arguments.editor)
    if arguments.open:
        import webbrowser

        if not webbrowser.open(path.absolute().as_uri()):
            raise PipetuneError("No browser could be opened.", hint=f"Open {path} yourself.", exit_code=1)
    return Answer(data, lines(str(path)), {"session": source, "report": path})
