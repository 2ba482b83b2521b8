"""The terminal: the answer first, 80 columns, complete without colour."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from pipetune.report import terminal
from pipetune.report.blocks import Cell, Column, Row, Table
from pipetune.report.console import print_parts
from pipetune.report.terminal import print_summary, report_text
from tests.report import sessions as samples
from tests.report.reading import Terminal, claim, summary_text, with_main, with_part


@pytest.mark.parametrize("name", samples.ALL)
def test_golden_summary(golden, name):
    """What a new golden text must keep: the answer first, some 25 lines, 80 columns but for commands."""
    session = samples.ALL[name]()
    text = summary_text(session)
    golden(f"terminal-{name}.txt", text)
    assert text.startswith(claim(session).big)
    assert name == "hostile" or len(text.splitlines()) <= 35
    wide = [line for line in text.splitlines() if cell_len(line) > 80]
    assert all(line.startswith(("  pipetune ", "  less ")) for line in wide)


def test_golden_report(golden):
    golden("report-photos.txt", report_text(samples.photos()))


def test_a_long_patch_is_cut_and_says_so():
    more = "".join(f"+    added = {number}\n" for number in range(30))
    session = with_part(samples.photos(), "patch", diff=samples.DIFF + more)
    assert "  ... 23 more lines: pipetune apply --diff reports/train\n" in summary_text(session)
    unproven = summary_text(with_main(samples.likely(), "candidate", patch=session.patch))
    assert "  ... 23 more lines: pipetune apply --diff --unproven reports/train\n" in unproven
    assert "added = 29" in report_text(session)


def test_a_place_is_never_cut():
    """A name that is long is without its folders, and file and line stay whole."""
    deep = "/home/ada/photos/" + "folder/" * 12 + "a_rather_long_name_of_a_module.py"
    nodes = tuple(with_part(node, "location", file=deep) for node in samples.photo_pipeline().nodes)
    text = report_text(with_main(samples.photos(), "pipeline", nodes=nodes))
    assert "a_rather_long_name_of_a_module.py:24" in text


@pytest.mark.parametrize(("why", "shown"), [("", "  slow  cache"), ("It is full.", "  slow  cache\n    It is full.")])
def test_a_reason_stands_below_its_row_and_no_other_cell_is_left_out(why, shown):
    columns = (Column("State"), Column("Place"), Column("Change"), Column("Why"))
    rows = (Row((Cell("slow"), Cell(), Cell("cache"), Cell(why))),)
    stream = io.StringIO()
    print_parts(terminal._table(Table("Tried", columns, rows)), stream)
    assert stream.getvalue().strip("\n") == f"  Tried\n{shown}"


@pytest.mark.parametrize(
    ("no_color", "shown"), [(None, "\x1b[1;32m1.36x faster training"), ("1", "(1.34 to 1.38; 16 pairs)")]
)
def test_a_terminal_gets_colour_where_no_color_is_not_set(monkeypatch, no_color, shown):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    stream = Terminal()
    print_summary(samples.photos(), stream=stream, width=80)
    assert shown in stream.getvalue() and ("\x1b" in stream.getvalue()) is (no_color is None)


def test_a_stream_without_the_characters_gets_question_marks():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_summary(samples.hostile(), stream=stream)
    assert b"na?ve" in raw.getvalue()


def test_markup_in_names_stays_text():
    text = " ".join(report_text(samples.hostile(), width=300).split())
    assert "[bold red]not markup[/bold red] [link=javascript:alert(4)]x[/link]" in text


def test_a_number_and_its_unit_stay_on_one_line():
    for width in (40, *range(50, 90, 3), 100):
        text = summary_text(samples.photos(), width=width)
        assert "1.36x" in text and not re.search(r"^\s*%", text, re.MULTILINE)
