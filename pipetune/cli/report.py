"""`pipetune report`: show an existing session in any format; nothing is measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipetune.cli.command import Subparsers, add_command

_SUFFIXES = {"html": "html", "json": "json", "csv": "csv", "markdown": "md"}


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Adds the parser of this command and returns it."""
    parser = add_command(
        subparsers,
        "report",
        summary="show a session in another format",
        description="Renders an existing session. Nothing is measured or run.",
    )
    parser.add_argument("session", metavar="SESSION", help="session.json, or the folder that holds it")
    parser.add_argument("--open", action="store_true", help="write the HTML report and open it in a browser")
    parser.add_argument(
        "--format",
        choices=tuple(_SUFFIXES),
        help="html writes report.html next to the session; json, csv and markdown are printed (default: print the "
        "summary)",
    )
    parser.add_argument("--out", metavar="FILE", help="write to this file instead")
    return parser


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code.

    Raises:
        PipetuneError: the session cannot be read, or the report cannot be written or opened.
    """
    from pipetune.core.errors import PipetuneError
    from pipetune.core.session_file import load
    from pipetune.report.console import write
    from pipetune.report.render import render, render_text

    if arguments.open and arguments.format not in (None, "html"):
        raise PipetuneError(f"A browser opens html, not {arguments.format}.", hint="Omit --format.")
    session = load(arguments.session)
    format = arguments.format or ("html" if arguments.open else "text")
    if format != "html" and not arguments.out:
        write(sys.stdout, render_text(session, format))
        return 0
    source = Path(arguments.session)
    folder = source if source.is_dir() else source.parent
    path = render(session, format, arguments.out or folder / "report.html")
    print(path)
    if arguments.open:
        import webbrowser

        if not webbrowser.open(path.absolute().as_uri()):
            raise PipetuneError("No browser could be opened.", hint=f"Open {path} yourself.", exit_code=1)
    return 0
