"""Sessions changed in a word, and reading a page of them: its sections, its blocks and their texts."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from pipetune.core.session import Session
from pipetune.report.blocks import Block, Claim, Page, Row, Section, Table
from pipetune.report.console import PLAIN_WIDTH, stripped
from pipetune.report.page import page
from pipetune.report.terminal import print_summary, report_text

B = TypeVar("B")


class Terminal(io.StringIO):
    """A stream that says of itself that it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def with_main(session: Session, **changes: Any) -> Session:
    """The session, its first dataset changed."""
    first, *others = session.datasets
    return replace(session, datasets=(replace(first, **changes), *others))


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


def told(session: Session) -> str:
    """The whole report on one line."""
    return " ".join(report_text(session, width=400).split())
