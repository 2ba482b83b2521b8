"""The report as Markdown: for issues, wikis and summaries of CI jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipetune.core.session import Session
from pipetune.report import blocks
from pipetune.report.page import page
from pipetune.report.words import block as fenced
from pipetune.report.words import code, escape, table

_SIGNS = {"yes": "yes", "no": "**no**", "changed": "changed", "unknown": "unknown"}


def markdown(session: Session) -> str:
    """The whole report; foreign text is escaped."""
    shown = page(session)
    lines = [f"# {escape(shown.headline)}: {escape(shown.title)}", ""]
    lines += [escape(" · ".join(filter(None, (shown.date, shown.machine, shown.busy, f"pipetune {shown.version}"))))]
    for section in shown.sections:
        lines += _section(section, 2)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def _section(section: blocks.Section, level: int) -> Iterator[str]:
    yield from ("", f"{'#' * level} {escape(section.title)}", "")
    for block in section.blocks:
        yield from _block(block)
        yield ""
    for part in section.parts:
        yield from _section(part, level + 1)


def _block(block: blocks.Block) -> Iterator[str]:
    match block:
        case blocks.Claim(big=big, note=note, sentence=sentence, gain=gain):
            span = f" ({gain.span}, {gain.basis})" if gain.known and gain.span else ""
            yield f"**{escape(f'{big} {note}'.strip())}**{escape(span)}"
            yield from ("", escape(sentence)) if sentence else ()
        case blocks.Sentence(text=text):
            yield escape(text)
        case blocks.Facts(facts=facts):
            for fact in facts:
                yield f"- {escape(fact.label)}: {escape(fact.text)}{f' ({escape(fact.note)})' if fact.note else ''}"
        case blocks.Table(caption=caption, columns=columns, rows=rows):
            yield from (escape(caption), "")
            kept = [index for index, column in enumerate(columns) if column.title and column.title != "Time"]
            yield from table(
                [escape(columns[index].title) for index in kept],
                ([_cell(row.cells[index]) for index in kept] for row in rows),
            )
        case blocks.Bars(bars=bars, sentence=sentence):
            yield from ((escape(sentence), "") if sentence else ())
            yield from (f"- {escape(bar.label)}: {escape(bar.text)}" for bar in bars)
        case blocks.Series(sentence=sentence):
            yield escape(sentence)
        case blocks.Diff(text=text):
            yield from fenced(text, "diff")
        case blocks.Checks(title=title, answers=answers):
            yield from (f"{escape(title)}", "")
            for state, text, detail in answers:
                yield f"- {_SIGNS[state]}: {escape(text)}{f' ({escape(detail)})' if detail else ''}"
        case blocks.Commands(commands=commands):
            yield from (f"- {code(one.label)}: {escape(one.text)}" for one in commands)
        case blocks.Notice(code=name, place=place, message=message, hint=hint):
            where = f" {code(place.text)}" if place else ""
            yield f"- **{escape(name)}**{where} {escape(f'{message} {hint}'.strip())}"
        case blocks.Listing(text=text, label=label):
            yield from (escape(label), "", *fenced(text))
        case blocks.Bands(rows=rows, caption=caption):
            yield from (f"- {escape(row.label)}: {escape(row.sentence)}" for row in rows)
            yield from ("", escape(caption))


def _cell(cell: blocks.Cell) -> str:
    if not cell.text and not cell.place:
        return "-" if cell.why else ""
    parts = [escape(cell.text), code(cell.place.text, cell=True) if cell.place else ""]
    parts += [escape(f"({cell.note})" if cell.text else cell.note)] if cell.note else []
    return " ".join(filter(None, parts))
