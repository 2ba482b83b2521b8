"""The terminal: the answer in some 25 lines at the end of a run, and the whole report on request."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from pipetune.core.session import Session
from pipetune.report import blocks
from pipetune.report.answer import report_step
from pipetune.report.console import PLAIN_WIDTH, Command, indented, print_parts, unit_text
from pipetune.report.page import page

_CLAIMS = {
    **dict.fromkeys(("faster", "input-only", "not-input-bound"), "bold green"),
    **dict.fromkeys(("slower", "failed"), "bold red"),
}
_SIGNS = {"yes": ("+", "green"), "no": ("x", "bold red"), "changed": ("~", "yellow"), "unknown": ("?", "yellow")}
_LINES = {"add": "green", "remove": "red"}
_MOST_LINES = 14  # of a patch, in the summary
_MOST_NOTICES = 3  # in the summary
_BAR = 24  # characters


def print_summary(session: Session, *, stream: TextIO | None = None, width: int | None = None) -> None:
    """Print the answer; characters the stream cannot carry become question marks."""
    print_parts(_summary(session), stream, width=width)


def report_text(session: Session, *, width: int = PLAIN_WIDTH) -> str:
    """The whole report without colour or trailing blanks; only a command may be longer than `width`."""
    stream = io.StringIO()
    print_parts(_everything(session), stream, width=width)
    return stream.getvalue()


def _summary(session: Session) -> Iterator[RenderableType]:
    shown = page(session)
    answer = shown.sections[0]
    for block in answer.blocks:  # the times of the bars stand in the first line
        if isinstance(block, blocks.Claim):
            yield from _claim(block, answer)
            yield from _busy(shown)
        elif isinstance(block, blocks.Sentence | blocks.Listing):
            yield from _block(block)
    yield from _first_sentences(shown, "why")
    for block in answer.blocks:
        if isinstance(block, blocks.Diff):
            yield Text()
            yield from _diff(block, most=_MOST_LINES)
        elif isinstance(block, blocks.Checks):
            yield Text()
            yield from _block(block)
    yield from _warnings(shown)
    yield from _first_sentences(shown, "distributed")
    commands = [one for block in answer.blocks if isinstance(block, blocks.Commands) for one in block.commands]
    if step := report_step(session):
        commands.append(step)
    if commands:
        yield Text()
        yield from _commands(blocks.Commands(tuple(commands)))


def _busy(shown: blocks.Page) -> Iterator[RenderableType]:
    """Behind the speedup, which is the first number that is shown."""
    if shown.busy:
        yield indented(unit_text(shown.busy, "yellow"))


def _first_sentences(shown: blocks.Page, id: str) -> Iterator[RenderableType]:
    """What a section says before its tables."""
    found = next((part.blocks for part in shown.sections if part.id == id and not part.folded), ())
    for block in itertools.takewhile(lambda block: isinstance(block, blocks.Sentence) and not block.quiet, found):
        yield from _block(block)


def _warnings(shown: blocks.Page) -> Iterator[RenderableType]:
    parts = [part for part in shown.sections if part.id in ("warnings", "advice")]
    notices = [block for part in parts for block in part.blocks if isinstance(block, blocks.Notice)]
    if notices:
        yield Text()
    for notice in notices[:_MOST_NOTICES]:
        yield from _block(notice)
    if len(notices) > _MOST_NOTICES:
        yield indented(Text(f"! {len(notices) - _MOST_NOTICES} more in the report", style="yellow"))


def _everything(session: Session) -> Iterator[RenderableType]:
    shown = page(session)
    for section in shown.sections:
        yield from _section(section)
        if section.id == "answer":
            yield from _busy(shown)
    yield Text()
    origin = (f"pipetune {shown.version}", shown.title, shown.date, shown.machine)
    yield unit_text("  ".join(filter(None, origin)), "dim")


def _section(section: blocks.Section) -> Iterator[RenderableType]:
    if section.id != "answer":
        yield Text()
        yield Text(section.title, style="bold")
    for block in section.blocks:
        if isinstance(block, blocks.Claim):
            yield from _claim(block, section)
        elif isinstance(block, blocks.Diff):
            yield Text()
            yield from _diff(block)
        else:
            yield from _block(block)
    for part in section.parts:
        yield from _section(part)


def _claim(claim: blocks.Claim, answer: blocks.Section) -> Iterator[RenderableType]:
    style = _CLAIMS.get(claim.kind, "bold yellow")
    line = Text()
    line.append(f"{claim.big} {claim.note}".strip(), style=style)
    steps = {bar.label: bar.text for block in answer.blocks if isinstance(block, blocks.Bars) for bar in block.bars}
    current, after = steps.get("current"), steps.get("tuned")
    if current and after:
        number, _, unit = current.partition(" ")
        shown = number if after.endswith(f" {unit}") else current
        line.append(unit_text(f"    {shown} to {after} per step", "bold"))
    elif current:
        line.append(unit_text(f"    {current} per {claim.step}", "dim"))
    if claim.gain.known and claim.gain.span:
        line.append(unit_text(f"    ({claim.gain.span}; {claim.gain.basis.partition(',')[0]})", "dim"))
    yield line
    if claim.sentence:
        yield indented(unit_text(claim.sentence))


def _block(block: blocks.Block) -> Iterator[RenderableType]:
    """Any block but a claim and a diff, which are printed where their section is known."""
    match block:
        case blocks.Sentence(text=text, quiet=quiet):
            yield indented(unit_text(text, "dim" if quiet else ""))
        case blocks.Facts(facts=facts):
            for fact in facts:
                note = f" ({fact.note})" if fact.note else ""
                yield indented(unit_text(f"{fact.label}: {fact.text}{note}"))
        case blocks.Table():
            yield from _table(block)
        case blocks.Bars(bars=bars, sentence=sentence):
            if sentence:
                yield indented(unit_text(sentence))
            grid = Grid(box=None, padding=(0, 0, 0, 2), pad_edge=False, show_header=False)
            for _ in range(3):
                grid.add_column(no_wrap=True)
            for bar in bars:
                length = max(1, round(_BAR * sum(part.share for part in bar.parts)))
                grid.add_row(bar.label, Text("#" * length, style="bold" if bar.marked else ""), unit_text(bar.text))
            yield indented(grid)
        case blocks.Series(sentence=sentence):
            yield indented(unit_text(sentence))
        case blocks.Checks(answers=answers):
            for state, text, detail in answers:
                sign, style = _SIGNS[state]
                line = Text(f"{sign} ", style=style)
                line.append(unit_text(text, "not bold"))
                line.append(unit_text(f" ({detail})" if detail else "", "dim"))
                yield indented(line)
        case blocks.Commands():
            yield from _commands(block)
        case blocks.Notice(message=message, hint=hint):
            line = Text(f"! {block.code}", style="bold yellow")
            line.append(f"  {block.place.text}" if block.place else "", style="cyan")
            yield indented(line)
            yield indented(unit_text(f"{message} {hint}".strip()), 4)
        case blocks.Listing(text=text):
            yield indented(Text(text))
        case blocks.Bands(rows=rows, caption=caption):
            for row in rows:
                yield indented(unit_text(f"{row.label}: {row.sentence}"))
            yield indented(unit_text(caption, "dim"))


def _commands(block: blocks.Commands) -> Iterator[RenderableType]:
    for one in block.commands:
        yield Command(f"  {one.label}", style="bold")
        yield indented(Text(one.text, style="dim"), 4)


def _diff(diff: blocks.Diff, most: int = 0) -> Iterator[RenderableType]:
    """The hunks; in the summary only changed lines with one line around them, and no more than `most`."""
    printed, changes, file = 0, sum(len(_near(hunk.lines)) for hunk in diff.hunks), ""
    for hunk in diff.hunks:
        if hunk.file != file:
            file = hunk.file
            yield indented(Text(file, style="cyan"))
        for kind, text in _near(hunk.lines) if most else hunk.lines:
            if most and printed == most:
                yield Command(f"  ... {changes - printed} more lines: {diff.command}", style="dim")
                return
            yield indented(_CodeLine(text, kind))
            printed += 1
        if not most:
            yield from (indented(unit_text(gain, "green"), 4) for gain in hunk.gains)


@dataclass(frozen=True)
class _CodeLine:
    """A line of a diff: one of the context is cut, a changed one continues below, as its change may be at its end."""

    text: str
    kind: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        style = _LINES.get(self.kind, "dim")
        if self.kind == "same":
            yield Text(self.text, style=style, no_wrap=True, overflow="ellipsis")
            return
        code = self.text[1:]
        indent = len(code) - len(code.lstrip()) + 1 + _CONTINUED
        wrapper = textwrap.TextWrapper(options.max_width, subsequent_indent=" " * indent, break_on_hyphens=False)
        wrapper.wordsep_simple_re = re.compile(r"( +|(?<=\))(?=\.))")  # also between the calls of a chain
        yield Text("\n".join(wrapper.wrap(self.text)), style=style, no_wrap=True)


_CONTINUED = 4  # columns by which the rest of a long line is indented


def _near(lines: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """The changed lines and the ones next to them that are not blank."""
    changed = {index for index, (kind, _) in enumerate(lines) if kind != "same"}
    near = {beside for index in changed for beside in (index - 1, index + 1)}
    return [line for index, line in enumerate(lines) if index in changed or (index in near and line[1].strip())]


def _table(table: blocks.Table) -> Iterator[RenderableType]:
    kept = [
        index
        for index, column in enumerate(table.columns)
        if column.title and any(row.cells[index].text or row.cells[index].place for row in table.rows)
    ]
    shown = {one.state for one in table.filters if one.shown}
    rows = [row for row in table.rows if not shown or row.state in shown]
    yield indented(unit_text(table.caption, "dim"))
    if table.columns[-1].title == "Why":  # sentences do not fit into a column
        beside = [index for index in kept if index != len(table.columns) - 1]
        for row in rows or table.rows:
            yield indented(Text("  ").join(_cell(row.cells[index]) for index in beside if _cell(row.cells[index])))
            yield indented(unit_text(row.cells[-1].text, "dim"), 4)
    else:
        yield indented(_grid(table, kept))
    if rows and len(rows) < len(table.rows):
        others = ", ".join(f"{one.state} ({one.count})" for one in table.filters if not one.shown)
        yield indented(unit_text(f"Others: {others}.", "dim"))


def _grid(table: blocks.Table, kept: list[int]) -> Grid:
    grid = Grid(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="bold")
    for index in kept:
        column = table.columns[index]
        # A place is never cut: a line number that is missing helps nobody.
        place = any(row.cells[index].place for row in table.rows)
        justify: Literal["left", "right"] = "right" if column.number else "left"
        grid.add_column(column.title, justify=justify, no_wrap=place, overflow="fold")
    for row in table.rows:
        grid.add_row(*(_cell(row.cells[index]) for index in kept))
    return grid


def _cell(cell: blocks.Cell) -> Text:
    if not cell.text and not cell.place:
        return Text("-" if cell.why else "")
    text = unit_text(cell.text, "bold" if cell.strong else "")
    if cell.place:
        short = cell.place.text.rpartition("/")[2]  # without folders, so that file and line are never cut
        text.append(f"{' ' if cell.text else ''}{short}", style="cyan")
    return text
