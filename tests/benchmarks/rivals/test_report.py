"""The comparison with rivals: 80 columns, all numbers, no control characters; the plot is reproducible."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from benchmarks.rivals.plot import write_figure
from benchmarks.rivals.report import markdown_text, print_benchmarks, print_workload
from tests.benchmarks.rivals.invented import benchmarks, interval, result

CACHED = result("digits", 12.0, bare=3.0)
BEHIND = replace(result("mask_rcnn", 1234.5, best=0.8), failed={"cores": "no such \x1b[31m op"})
BUSY = replace(
    result("busy", 1.0, end_to_end=None, why="no plan: the model takes all of the time of a step, and so on"),
    ratio_over={"defaults": interval(1.0)},
)
ALL = benchmarks(CACHED, BEHIND, BUSY)


def printed(quick: bool = False) -> str:
    stream = io.StringIO()
    for one in ALL.workloads:
        print_workload(one, stream=stream)
    print_benchmarks(replace(ALL, quick=quick), stream=stream)
    return stream.getvalue()


def test_table_fits_80_columns_without_control_characters() -> None:
    text = printed()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_all_numbers_are_printed() -> None:
    text = " ".join(printed().split())
    for wanted in ("1,000", "12.5 us", "250 ms", "100 MiB", "12.0x (11.4x to 12.6x)", "plumber", "cache, prefetch",
                   "data equal", "50 s", "0.80x (0.76x to 0.84x)", "the model takes all", "could not be run",
                   "geometric mean over defaults", "missed"):  # fmt: skip
        assert wanted in text, wanted
    assert "Without it 3.00x" in text
    assert "quick run" not in text and "quick run" in printed(quick=True)


def test_markdown_has_the_same_contents() -> None:
    text = markdown_text(ALL)
    for wanted in ("| digits |", "12.0x", "## digits", "An Invented Processor", "0.80x (0.76x to 0.84x)", "6 min 00 s"):
        assert wanted in text, wanted
    assert "\x1b" not in text
    assert "quick run" in markdown_text(replace(ALL, quick=True))


def test_plot_is_reproducible(tmp_path: Path) -> None:
    write_figure(ALL, tmp_path / "one.svg")
    write_figure(ALL, tmp_path / "two.svg")
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    for wanted in ("digits", "mask_rcnn", "busy", "pipetune with a cache", "stage_based"):
        assert wanted in text, wanted
