"""`pipetune compare`: what changed from one session to another, with intervals."""

from __future__ import annotations

import argparse

from pipetune.cli.command import Answer, session_file_of
from pipetune.core import comparison
from pipetune.core.codec import encode
from pipetune.core.comparison import FigureDifference, ItemChanges, machine_difference
from pipetune.core.session_file import load
from pipetune.report.words import clean, significant

SUMMARY = "what changed between two sessions, with intervals"

DESCRIPTION = """\
Compares two sessions. A change is reported as better or worse only if its
confidence interval proves it; figures without an interval show only their ratio."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="SESSION", help="session.json, or the folder that holds it")
    parser.add_argument("after", metavar="SESSION", help="the later session")


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: a session cannot be read.
    """
    before, after = load(arguments.before), load(arguments.after)
    figures = comparison.figures(before, after)
    rewrites, warnings = comparison.rewrites(before, after), comparison.warnings(before, after)
    cautions = [machine_difference(after, before)] if machine_difference(after, before) else []
    if comparison.same_pipeline(before, after) is False:
        cautions.append("the pipelines differ")

    def show() -> None:
        for caution in cautions:
            print(f"Caution: {caution}.")
        _print_figures(figures)
        _print_removed_and_added("Rewrites", rewrites)
        _print_removed_and_added("Warnings", warnings)

    data = encode({"figures": figures, "rewrites": rewrites, "warnings": warnings, "cautions": cautions})
    assert isinstance(data, dict)
    paths = {"before": session_file_of(arguments.before), "after": session_file_of(arguments.after)}
    return Answer(data, show, paths)


def _print_figures(figures: tuple[FigureDifference, ...]) -> None:
    if not figures:
        print("Neither session measured anything.")
        return
    width = max(len(row.name) for row in figures)
    print(f"{'':<{width}}  {'before':>8}  {'after':>8}  change")
    for row in figures:
        before, after = _value(row.before, row.unit), _value(row.after, row.unit)
        print(f"{row.name:<{width}}  {before:>8}  {after:>8}  {_change(row)}".rstrip())


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    match unit:
        case "x":
            return f"{value:.2f}x"
        case "%":
            return f"{value * 100:.1f} %"
        case "examples/s":
            return f"{significant(value)}/s"
        case _:
            return f"{significant(value)} {unit}"


def _change(row: FigureDifference) -> str:
    if row.change is None:
        return "" if row.ratio is None else f"{row.ratio:.2f}x"
    bounds = (row.change.median, row.change.low, row.change.high)
    if row.unit == "%":
        median, low, high = (f"{bound * 100:+.{0 if abs(bound) >= 0.0995 else 1}f}" for bound in bounds)
        return f"{median} ({low} to {high}) points {row.proven}"
    median, low, high = (f"{bound:.2f}" for bound in bounds)
    return f"{median}x ({low} to {high}) {row.proven}"


def _print_removed_and_added(title: str, found: ItemChanges) -> None:
    if not found.gone and not found.new:
        return
    print(f"\n{title}")
    for sign, texts in (("-", found.gone), ("+", found.new)):
        for text in texts:
            print(f"  {sign} {clean(text)}")
