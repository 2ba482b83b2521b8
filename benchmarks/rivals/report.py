"""The comparison with rivals by `pipetune bench`, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from rich.table import Table
from rich.text import Text

from benchmarks.claims import claims_markdown, claims_table, machine_line
from benchmarks.rivals.results import PIPETUNE, RIVALS, Benchmarks, WorkloadResult, claims, shortfall_reasons
from pipetune.core.measurement import Interval
from pipetune.report import words
from pipetune.report.console import indented, print_parts, unit_text
from pipetune.report.words import escape, table

_MISSING = "-"

_EXPLANATION = (
    "Rates are those of the input alone, read as fast as possible: medians of windows that are measured in turn in one "
    "process. A ratio is pipetune's rate over the rival's, from pairs of windows, with its 95 % interval. Caches are "
    "filled before they are measured, and count if the published data would fit in 64 GB. CPU time is that of the "
    "process, per example. Memory is the peak of a new process, in addition to that before the first element."
)
_QUICK_EXPLANATION = (
    "This was a quick run: few workloads, short windows, a small budget for each plan, peak memory of two pipelines "
    "only. Its numbers are a first impression."
)

_HEAD = ("", "examples/s", "CPU", "first batch", "memory", "pipetune over it")
_SUMMARY_HEAD = ("workload", "examples/s", "defaults", "autotune", "best rival", "training", "plan")
_SUMMARY_EXPLANATION = (
    "How many times as fast the input alone is with pipetune's plan as in the current script, with AUTOTUNE everywhere "
    "and with the best rival; how many times as fast the training step is; how long `pipetune analyze` took."
)


def print_workload(result: WorkloadResult, *, stream: TextIO | None = None) -> None:
    """Prints one workload: a line for each rival, then remarks."""
    rows = [(words.clean(name), *cells) for name, *cells in _rival_rows(result)]
    remarks = (indented(unit_text(words.clean(line))) for line in _remarks(result))
    print_parts((unit_text(_title(result), style="bold"), indented(_grid(_HEAD, rows)), *remarks, Text()), stream)


def print_benchmarks(benchmarks: Benchmarks, *, stream: TextIO | None = None) -> None:
    """Prints a line for each workload, the targets, and why targets were missed."""
    overview = _grid(_SUMMARY_HEAD, _summary_rows(benchmarks.workloads))
    reasons = [words.sentence(words.clean(line)) for line in shortfall_reasons(benchmarks)]
    below = map(unit_text, [*reasons, *([_QUICK_EXPLANATION] if benchmarks.quick else [])])
    print_parts((unit_text(_SUMMARY_EXPLANATION), overview, Text(), claims_table(claims(benchmarks)), *below), stream)


def markdown_text(benchmarks: Benchmarks) -> str:
    """Returns summary and all workloads as Markdown."""
    option = " --quick" if benchmarks.quick else ""
    lines = ["# pipetune and its rivals", "", f"`pipetune bench{option}`, pipetune {benchmarks.version}."]
    if benchmarks.machine is not None:
        lines.append(machine_line(benchmarks.machine))
    duration = f" Measured in {words.seconds(benchmarks.seconds)}, {words.clean(benchmarks.date)}."
    lines += ["", _EXPLANATION + (f" {_QUICK_EXPLANATION}" if benchmarks.quick else "") + duration, ""]
    lines += [_SUMMARY_EXPLANATION, ""]
    lines += table(_SUMMARY_HEAD, _escaped(_summary_rows(benchmarks.workloads)))
    lines += ["", *claims_markdown(claims(benchmarks)), ""]
    lines += [f"- {escape(words.sentence(words.clean(line)))}" for line in shortfall_reasons(benchmarks)]
    for result in benchmarks.workloads:
        lines += ["", f"## {escape(_title(result))}", "", *table(_HEAD, _escaped(_rival_rows(result))), ""]
        lines += [f"{escape(words.clean(line))}\n" for line in _remarks(result)]
    return "\n".join(lines).rstrip() + "\n"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for place, name in enumerate(head):
        grid.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(unit_text(cell) for cell in row), style="bold" if row[0] == PIPETUNE else "")
    return grid


def _escaped(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[escape(words.clean(cell)) for cell in row] for row in rows]


def _title(result: WorkloadResult) -> str:
    title = f": {result.title}" if result.title and result.title != result.name else ""
    took = f", took {words.seconds(result.seconds)}" if result.seconds else ""
    return words.clean(f"{result.name}{title}{took}")


def _rival_rows(result: WorkloadResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in RIVALS:
        rate = result.rivals.get(name)
        if rate is None:
            continue
        ratio = result.ratio_over.get(name)
        rows.append(
            (
                name,
                _format(rate.examples_per_second, words.significant),
                _format(rate.cpu_us_per_example, lambda value: words.seconds(value / 1e6)),
                _format(rate.first_batch_seconds, words.seconds),
                _format(rate.peak_rss_mib, words.mebibytes),
                "" if name == PIPETUNE else _interval(ratio),
            )
        )
    return rows


def _summary_rows(workloads: Sequence[WorkloadResult]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in workloads:
        rate = one.rivals.get(PIPETUNE)
        best = one.best_rival
        rows.append(
            (
                words.clean(one.name),
                _format(rate.examples_per_second if rate else None, words.significant),
                _median(one.ratio_over.get("defaults")),
                _median(one.ratio_over.get("autotune")),
                f"{_median(one.ratio_over[best])} {best}" if best else _MISSING,
                _median(one.end_to_end),
                _format(one.plan_seconds, lambda value: f"{value:.0f} s"),
            )
        )
    return rows


def _remarks(result: WorkloadResult) -> list[str]:
    """Returns sentences about the plan, its caches, the training step, and failures."""
    remarks = []
    if result.rewrites:
        equal = result.equality or {}
        proof = f"; data {'equal' if equal.get('equal') else 'not proven equal'}" if equal else ""
        remarks.append(f"Plan: {', '.join(result.rewrites)}{proof}.")
    if result.rewrites_without_cache:
        remarks.append("Without caches: " + ", ".join(result.rewrites_without_cache) + ".")
    if result.why:
        remarks.append(words.sentence(result.why))
    for name, use in result.caches.items():
        uncached = result.without_cache.get("defaults") if name == PIPETUNE else None
        ratio = f" Without it {_interval(uncached)} over defaults." if uncached is not None and use.counts else ""
        ignored = "" if use.counts else f" {name} was measured without it."
        remarks.append(f"The cache of {name}: {use.why}{ignored}{ratio}")
    if result.end_to_end is not None:
        remarks.append(f"Training step: {_interval(result.end_to_end)} over the current script.")
    remarks += [f"{name} could not be run: {words.sentence(why)}" for name, why in result.failed.items()]
    return [*remarks, *result.notes]


def _format(value: float | None, in_words: Callable[[float], str]) -> str:
    return _MISSING if value is None else in_words(value)


def _interval(ratio: Interval | None) -> str:
    if ratio is None:
        return _MISSING
    return f"{words.ratio(ratio.median)} ({words.ratio(ratio.low)} to {words.ratio(ratio.high)})"


def _median(ratio: Interval | None) -> str:
    return _MISSING if ratio is None else words.ratio(ratio.median)
