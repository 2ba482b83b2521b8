"""Foreign text as Markdown that shows it literally."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Backslash escapes work before any ASCII punctuation (CommonMark 0.31, section 2.4).
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~!&@$])")


def escape(text: str) -> str:
    """`text` as Markdown that shows it literally, on one line."""
    return _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text)).replace("://", ":\\//")


def code(text: str, *, cell: bool = False) -> str:
    """An inline code span, its fence longer than any run of backticks inside; `cell`: inside a table."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence, room = "`" * (longest + 1), " " if "`" in text else ""
    inner = re.sub(r"\s+", " ", text)
    if cell:  # a bar ends the cell even in a code span (GitHub Flavored Markdown, 4.10)
        inner = inner.replace("|", "\\|")
    return f"{fence}{room}{inner}{room}{fence}" if text.strip() else ""


def block(text: str, language: str = "") -> list[str]:
    """The lines of a fenced block, its fence longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.rstrip("\n").split("\n"), fence]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = list(head)
    lines = [f"| {' | '.join(names)} |", f"|{'|'.join(' --- ' for _ in names)}|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]
