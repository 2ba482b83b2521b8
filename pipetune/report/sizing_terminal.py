"""A sizing on the terminal: what is needed, whether a host gives it, where scaling ends, what was taken; 80 columns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipetune.report.console import console_for, unit_text, write
from pipetune.report.needs import NeedRow
from pipetune.report.scaling import ScalingView
from pipetune.report.sizing import SizingView


def print_sizing(view: SizingView, *, stream: TextIO | None = None, width: int | None = None) -> None:
    """Print all of it; characters the stream cannot carry become question marks."""
    stream = sys.stdout if stream is None else stream
    console = console_for(stream, width=width)
    with console.capture() as captured:
        for part in _parts(view):
            console.print(part)
    write(stream, "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _parts(view: SizingView) -> Iterator[RenderableType]:
    yield unit_text(view.title, style="bold")
    yield _indented(unit_text(view.need))
    yield _indented(unit_text(view.verdict, style="bold"))
    if view.advice:
        yield _indented(unit_text(view.advice))
    yield from _needs("One host", view.host, view.variants)
    yield from _needs("The whole job", view.job, view.variants)
    yield from _scaling(view.scaling)
    yield from _section("What was taken")
    taken = _grid(("left", "right", "left"))
    for row in view.taken:
        taken.add_row(row.label, unit_text(row.text), Text(row.basis, style="dim"))
    yield _indented(taken)
    if view.missing:
        yield from _section("Left out")
        yield from (_indented(unit_text(line)) for line in view.missing)


def _needs(title: str, rows: tuple[NeedRow, ...], variants: tuple[str, ...]) -> Iterator[RenderableType]:
    yield from _section(title)
    table = _grid(("left", *("right" for _ in variants), "left"))
    if len(variants) > 1:
        table.add_row("", *(Text(name, style="bold") for name in variants), "")
    for row in rows:
        table.add_row(row.label, *(unit_text(cell) for cell in row.cells), Text(row.basis, style="dim"))
    yield _indented(table)


def _scaling(view: ScalingView) -> Iterator[RenderableType]:
    yield from _section("Where it stops scaling")
    yield _indented(unit_text(view.sentence))
    if view.limits:
        limits = _grid(("left", "left"))
        for limit in view.limits:
            limits.add_row(Text(limit.label, style="bold yellow" if limit.reached else ""), unit_text(limit.sentence))
        yield _indented(limits)
    table = _grid(("right", "right", "right", "right", "left"))
    table.add_row(*(Text(name, style="bold") for name in ("replicas", "hosts", "needed", "delivered", "held back by")))
    for rung in view.rungs:
        cells = (rung.replicas, rung.hosts, rung.needed, rung.delivered, rung.held_by)
        table.add_row(*cells, style="bold" if rung.requested else "")
    yield Text()
    yield _indented(table)


def _section(title: str) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold")


def _grid(sides: tuple[str, ...]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for side in sides:
        table.add_column(justify="right" if side == "right" else "left", overflow="fold")
    return table


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))
