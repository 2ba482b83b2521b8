"""Sessions changed in a word, and reading a page of them: its sections, its blocks and their texts."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from pipetune.core.session import Session
from pipetune.report.blocks import Block, Claim, Page, Row, Section, Sentence, Table
from pipetune.report.console import PLAIN_WIDTH, stripped
from pipetune.report.page import page
from pipetune.report.terminal import print_summary, report_text

B = TypeVar("B")
V = TypeVar("V")


class Terminal(io.StringIO):
    """A stream that says of itself that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def with_part(value: V, part: str, /, **changes: Any) -> V:
    """The value, its part of this name changed."""
    return replace(value, **{part: replace(getattr(value, part), **changes)})  # type: ignore[type-var]


def with_main(session: Session, part: str = "", /, **changes: Any) -> Session:
    """The session, its first dataset changed, or the part of it with this name."""
    first, *others = session.datasets
    changed = with_part(first, part, **changes) if part else replace(first, **changes)
    return replace(session, datasets=(changed, *others))


def sections(shown: Page | Section) -> Iterator[Section]:
    """Every section, parts included."""
    for one in shown.sections if isinstance(shown, Page) else shown.parts:
        yield one
        yield from sections(one)


def section(session: Session, id: str) -> Section:
    return next(one for one in sections(page(session)) if one.id == id)


def ids(session: Session) -> list[str]:
    return [one.id for one in sections(page(session))]


def blocks(session: Session, kind: type[B], id: str = "") -> list[B]:
    """All blocks of a kind, in one section or in all."""
    found: list[Block] = [block for one in sections(page(session)) if not id or one.id == id for block in one.blocks]
    return [block for block in found if isinstance(block, kind)]


def sentences(session: Session, id: str = "") -> list[str]:
    return [one.text for one in blocks(session, Sentence, id)]


def claim(session: Session) -> Claim:
    return blocks(session, Claim)[0]


def texts(row: Row) -> list[str]:
    """The cells of a row: their texts, or the places."""
    return [cell.text or (cell.place.text if cell.place else "") for cell in row.cells]


def table(session: Session, id: str) -> Table:
    return blocks(session, Table, id)[0]


def summary_text(session: Session, *, width: int = PLAIN_WIDTH) -> str:
    """The answer without colour or trailing blanks."""
    stream = io.StringIO()
    print_summary(session, stream=stream, width=width)
    return stripped(stream.getvalue())


def summary_line(session: Session) -> str:
    """The answer on one line."""
    return " ".join(summary_text(session).split())


def told(session: Session) -> str:
    """The whole report on one line."""
    return " ".join(report_text(session, width=400).split())
