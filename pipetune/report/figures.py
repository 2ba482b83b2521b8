"""The figures of `pipetune bench`, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.table import Table
from rich.text import Text

from pipetune.core.figures import FIGURES, Accuracy, AccuracyFigure, Claim
from pipetune.core.machine import Machine
from pipetune.report import words
from pipetune.report.console import indented, print_parts, unit_text
from pipetune.report.markdown_text import escape, table

_MET = {True: "met", False: "missed", None: ""}
_STYLE = {"met": "green", "missed": "bold red", "": ""}


def claims_table(claims: Sequence[Claim]) -> Table:
    """Returns a table with a row for each claim: what was measured, its value, the target and whether it was met."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(ratio=5)
    table.add_column(ratio=5)
    table.add_column(ratio=3, style="dim")
    table.add_column(no_wrap=True, justify="right")
    for claim in claims:
        met = _MET[claim.met]
        table.add_row(
            words.clean(claim.what),
            unit_text(words.clean(claim.measured)),
            unit_text(words.clean(claim.wanted)),
            Text(met, style=_STYLE[met]),
        )
    return table


def print_figure(name: str, figure: AccuracyFigure, *, stream: TextIO | None = None) -> None:
    """Prints one figure: its claims and notes."""
    title = unit_text(f"{FIGURES[name]}  {_when(figure)}", style="bold")
    notes = (indented(unit_text(words.sentence(words.clean(note)))) for note in figure.notes)
    print_parts((title, indented(claims_table(figure.claims)), *notes, Text()), stream)


def _when(figure: AccuracyFigure) -> str:
    took = f"took {words.seconds(figure.seconds)}" if figure.seconds else ""
    return ", ".join(part for part in (words.clean(figure.date), took) if part)


def claims_markdown(claims: Sequence[Claim]) -> list[str]:
    """Returns the lines of a Markdown table with a row for each claim, as `claims_table`."""
    rows = [(claim.what, claim.measured, claim.wanted, _MET[claim.met]) for claim in claims]
    cells = ([escape(words.clean(text)) for text in row] for row in rows)
    return table(("what", "measured", "wanted", ""), cells)


def machine_line(machine: Machine) -> str:
    """Returns one line of Markdown about a machine."""
    return (
        f"{machine.cores_granted:g} of {machine.cores_host} cores, {words.byte_size(machine.memory_limit_bytes)}, "
        f"{words.clean(machine.processor)}, TensorFlow {words.clean(machine.tensorflow)}."
    )


def markdown_text(accuracy: Accuracy) -> str:
    """Returns all figures as Markdown, including those that were not measured."""
    lines = ["# Accuracy of pipetune", ""]
    lines += [f"`pipetune bench --accuracy{' --quick' if accuracy.quick else ''}`, pipetune {accuracy.version}."]
    if accuracy.machine is not None:
        lines.append(machine_line(accuracy.machine))
    for name, title in FIGURES.items():
        figure = accuracy.figures.get(name)
        lines += ["", f"## {title}", ""]
        if figure is None:
            lines.append("Not measured.")
            continue
        lines += [*claims_markdown(figure.claims), ""]
        for note in figure.notes:
            lines += [escape(words.sentence(words.clean(note))), ""]
        lines.append(f"Measured {_when(figure)}.")
        if figure.machine is not None:
            lines.append(f"On another machine: {machine_line(figure.machine)}")
    return "\n".join(lines) + "\n"
