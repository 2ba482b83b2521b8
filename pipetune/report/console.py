"""The terminal as it is: colour only where it is wanted, characters only where it has them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

PLAIN_WIDTH = 80
WIDEST = 100

# Keeps a number and its unit on one line; not a character anyone writes, and a space again when printed.
_GLUE = "\ue000"
_UNIT = re.compile(r"(?<=\d) (?=(?:%|us|ms|s|[KMGT]?i?B)(?!\w))")


def console_for(stream: TextIO, *, width: int | None = None) -> Console:
    """A console that colours only a terminal, and never when NO_COLOR is set (https://no-color.org)."""
    plain = bool(os.environ.get("NO_COLOR")) or not stream.isatty()
    if width is None:
        width = min(Console(file=stream).width, WIDEST) if stream.isatty() else PLAIN_WIDTH
    return Console(
        file=stream,
        width=width,
        no_color=plain,
        color_system=None if plain else "auto",
        force_terminal=False if plain else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def write(stream: TextIO, text: str) -> None:
    """Write `text`, replacing what the stream's encoding does not have."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.replace(_GLUE, " ")
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def stripped(text: str) -> str:
    """The same lines without trailing blanks: rich fills each up to the width."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


class Command(Text):
    """A command to copy: never wrapped by us, however long."""


def print_parts(parts: Iterable[RenderableType], stream: TextIO | None, *, width: int | None = None) -> None:
    """Print `parts` one below the other, to standard output if there is no stream."""
    stream = sys.stdout if stream is None else stream
    console = console_for(stream, width=width)
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, Command))
    text = captured.get()
    write(stream, text if stream.isatty() else stripped(text))


def indented(content: RenderableType, by: int = 2) -> Padding:
    return Padding(content, (0, 0, 0, by))


def unit_text(content: str, style: str = "") -> Text:
    """Text in which a number and its unit stay on one line."""
    return Text(_UNIT.sub(_GLUE, content), style=style)


def wrapped(console: Console, content: str, style: str = "", *, indent: int = 0) -> Text:
    """The same in lines as wide as the console less `indent`, for what does not go through `write`."""
    lines = unit_text(content).wrap(console, max(20, console.width - indent))
    return Text("\n".join(line.plain.rstrip().replace(_GLUE, " ") for line in lines), style=style)
