"""The figures of `pipetune bench --accuracy`, for the terminal and as Markdown."""

from __future__ import annotations

from typing import TextIO

from rich.text import Text

from benchmarks.accuracy.results import FIGURES, Accuracy, AccuracyFigure
from benchmarks.claims import claims_markdown, claims_table, machine_line
from pipetune.report import words
from pipetune.report.console import indented, print_parts, unit_text
from pipetune.report.words import escape


def print_figure(name: str, figure: AccuracyFigure, *, stream: TextIO | None = None) -> None:
    """Prints one figure: its claims and notes."""
    title = unit_text(f"{FIGURES[name]}  {_when(figure)}", style="bold")
    notes = (indented(unit_text(words.sentence(words.clean(note)))) for note in figure.notes)
    print_parts((title, indented(claims_table(figure.claims)), *notes, Text()), stream)


def _when(figure: AccuracyFigure) -> str:
    took = f"took {words.seconds(figure.seconds)}" if figure.seconds else ""
    return ", ".join(part for part in (words.clean(figure.date), took) if part)


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
