"""The summary at the end of a run: training speedup first, 80 columns, complete without colour."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import TextIO

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipetune.core.session import Session
from pipetune.report.changes import RewriteRow
from pipetune.report.circumstances import Warning
from pipetune.report.console import PLAIN_WIDTH, console_for, unit_text, write
from pipetune.report.terminal_costs import cost_table
from pipetune.report.values import Figure
from pipetune.report.view import DatasetView, View, make_view

_HEAD_STYLE = {"faster": "bold green", "input-only": "bold green", "slower": "bold red", "failed": "bold red"}
_VERDICT_STYLE = {"input-bound": "bold yellow", "not-input-bound": "bold green"}


def print_summary(session: Session, *, stream: TextIO | None = None, width: int | None = None) -> None:
    """Print the summary of `session`; characters the stream cannot carry become question marks."""
    stream = sys.stdout if stream is None else stream
    console = console_for(stream, width=width)
    with console.capture() as captured:
        for part in _parts(make_view(session)):
            console.print(part, soft_wrap=isinstance(part, _Command))
    write(stream, captured.get())


def summary_text(session: Session, *, width: int = PLAIN_WIDTH) -> str:
    """The summary without colour or trailing blanks; only a command may be longer than `width`."""
    stream = io.StringIO()
    print_summary(session, stream=stream, width=width)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


class _Command(Text):
    """A command to copy: never wrapped by us, however long."""


def _parts(view: View) -> Iterator[RenderableType]:
    yield from _first(view)
    main = view.main
    if main is not None:
        if main.files and main.files.line:
            yield _indented(unit_text(main.files.line))
        yield from cost_table(main.operators)
        yield from _before_after(view, main)
        yield from _rewrites("Rewrites in the plan", main.changes.plan)
        if main.changes.plan:
            yield from _section("What was checked")
            yield _indented(unit_text(main.equality.sentence))
            if main.order.known:
                yield _indented(unit_text(main.order.sentence))
            yield _indented(unit_text(view.patch.sentence))
            for rule, why in view.patch.not_covered:
                yield _indented(unit_text(f"not in the patch: {rule}. {why}"), 4)
        yield from _rewrites("Offered, if you consent", main.changes.offered)
    for other in view.studied[1:]:
        if other.changes.plan:
            yield from _rewrites(f"Rewrites of {other.name}", other.changes.plan)
            yield _indented(unit_text(other.equality.sentence))
    if view.distributed:
        yield from _section("Distributed form")
        yield _indented(Text(": ".join(filter(None, (view.distributed.kind, view.distributed.file)))))
        yield _indented(unit_text(view.distributed.sentence), 4)
        for found in view.distributed.shards[:1]:  # of the fewest workers; the report has all
            yield _indented(unit_text(found.sentence), 4)
        if view.distributed.as_written:
            yield _indented(unit_text(f"The script as it is: {view.distributed.as_written.sentence}"), 4)
        yield from (_indented(unit_text(line), 4) for line in view.distributed.advice)
    yield from _told("Warnings about the script as it is", view.warnings)
    yield from _told("Advice beside the patch", view.advice)
    if view.notes:
        yield from _section("Notes")
        yield from (_indented(unit_text(note)) for note in view.notes)
    yield from _next(view)


def _first(view: View) -> Iterator[RenderableType]:
    speedup = view.headline.speedup
    line = Text("Training speedup  ", style="bold")
    if speedup.known:
        line.append(speedup.text, style=_HEAD_STYLE.get(view.headline.kind, "bold yellow"))
        line.append(unit_text(f"  {speedup.basis}", "dim"))
    else:
        line.append(speedup.text, style="bold yellow")
        line.append(unit_text(f": {speedup.why}" if speedup.why else ""))
    yield line
    yield _indented(unit_text(view.headline.sentence, style=_HEAD_STYLE.get(view.headline.kind, "bold")))
    for detail in view.headline.details:
        if detail:
            yield _indented(unit_text(detail.rstrip("\n")))
    if view.studied:
        yield Text()
        line = Text("Verdict  ", style="bold")
        line.append(view.verdict.word, style=_VERDICT_STYLE.get(view.verdict.word, "bold"))
        yield line
        bar = view.main.step_bar.sentence if view.main else ""
        for sentence in (view.verdict.sentence, bar, view.verdict.bottleneck):
            if sentence:
                yield _indented(unit_text(sentence))
        if view.main and view.main.course.sentence:
            yield _indented(unit_text(view.main.course.sentence))
        if view.main and view.main.handover:
            yield _indented(unit_text(view.main.handover))
        if view.main and view.main.division:
            yield _indented(unit_text(view.main.division.sentence))


def _before_after(view: View, main: DatasetView) -> Iterator[RenderableType]:
    """One column per variant that was measured; a figure that was not measured shows as a dash."""
    names = [rung.name for rung in main.ladder.rungs if rung.examples.known or _step(view, rung.name).known]
    if not names:
        return
    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="bold")
    table.add_column("")
    labels = {"off": "off", "defaults": "as written", "autotune": "AUTOTUNE", "tuned": "tuned"}
    for name in names:
        table.add_column(labels[name], justify="right", style="bold green" if name == "tuned" else "")
    table.add_column("bound", justify="right", style="dim")
    rungs = {rung.name: rung for rung in main.ladder.rungs}
    table.add_row("training step", *(_cell(_step(view, name)) for name in names), _cell(_step(view, "bound")))
    rate = [_cell(rungs[name].examples) for name in names]
    table.add_row("input alone, examples", *rate, _cell(main.ladder.bound))
    table.add_row("CPU time per example", *(_cell(rungs[name].cpu) for name in names), "")
    table.add_row("first batch after", *(_cell(rungs[name].first) for name in names), "")
    table.add_row("peak memory", *(_cell(rungs[name].memory) for name in names), "")
    yield from _section("Before and after")
    yield _indented(table)
    for text, figure in (
        ("input alone, tuned over as written", main.ladder.speedup),
        ("input alone, tuned over AUTOTUNE", main.ladder.speedup_over_autotune),
        ("training step, tuned over AUTOTUNE", view.over_autotune),
    ):
        if figure.known:
            yield _indented(unit_text(f"{text}: {figure.text}"))
    if main.ladder.bound.known:
        yield _indented(unit_text("bound: the model alone, fed one cached batch again and again", "dim"))
    if main.foresight.short:
        yield _indented(unit_text(main.foresight.short, "dim"))


def _step(view: View, name: str) -> Figure:
    return next((rung.step for rung in view.steps if rung.name == name), Figure())


def _cell(figure: Figure) -> str:
    return figure.text if figure.known else "-"


def _rewrites(title: str, rows: tuple[RewriteRow, ...]) -> Iterator[RenderableType]:
    if not rows:
        return
    yield from _section(title)
    for row in rows:
        line = Text(row.rule, style="bold")
        line.append(f"  {row.where}" if row.where else "", style="cyan")
        line.append("  ")
        line.append(row.gain.text, style="green" if row.gain.known and (row.gain.low or 0) > 1 else "")
        line.append(f"  {row.safety}", style="dim")
        yield _indented(line)
        yield _indented(unit_text(row.summary), 4)
        if row.why and not (row.consent and row.gain.known):
            yield _indented(unit_text(row.why), 4)
        if row.consent:
            yield _indented(Text(f"consent with {row.consent}"), 4)


def _told(title: str, warnings: tuple[Warning, ...]) -> Iterator[RenderableType]:
    if not warnings:
        return
    yield from _section(title)
    for warning in warnings:
        line = Text(f"! {warning.code}", style="bold yellow")
        line.append(f"  {warning.where}" if warning.where else "", style="cyan")
        yield _indented(line)
        yield _indented(unit_text(" ".join(part for part in (warning.message, warning.hint) if part)), 4)


def _next(view: View) -> Iterator[RenderableType]:
    steps = [*view.next_steps, *([view.report_step] if view.report_step else [])]
    if not steps:
        return
    yield from _section("Next")
    for step in steps:
        yield _Command(f"  {step.label}", style="bold")
        yield _indented(Text(step.text, style="dim"), 4)


def _section(title: str) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold")


def _indented(content: RenderableType, by: int = 2) -> Padding:
    return Padding(content, (0, 0, 0, by))
