"""The summary: training speedup first, 80 columns, complete without colour."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from pipetune.report.terminal import print_summary, summary_text
from tests.report import sessions as samples

NUMBER = re.compile(r"\d")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", samples.ALL)
def test_golden_summary(golden, name):
    golden(f"terminal-{name}.txt", summary_text(samples.ALL[name]()))


@pytest.mark.parametrize("name", samples.ALL)
def test_no_line_is_wider_than_80_columns_but_commands(name):
    lines = summary_text(samples.ALL[name]()).splitlines()
    wide = [line for line in lines if cell_len(line) > 80]
    assert all(line.startswith(("  pipetune ", "  less ")) for line in wide)


@pytest.mark.parametrize("name", samples.ALL)
def test_training_speedup_is_the_first_number(name):
    text = summary_text(samples.ALL[name]())
    assert text.startswith("Training speedup  ")
    first = NUMBER.search(text)
    if "not measured" not in text.splitlines()[0]:
        assert first is not None and text[: first.start()] in ("Training speedup  ", "Training speedup  likely ")


def test_a_command_survives_being_copied():
    command = next(line for line in summary_text(samples.hostile()).splitlines() if "pipetune run" in line)
    assert command.rstrip().endswith("# head - item'")


def test_a_log_gets_no_escape_sequence():
    assert "\x1b" not in summary_text(samples.hostile())


def test_a_terminal_gets_colour(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    print_summary(samples.photos(), stream=stream, width=80)
    assert "\x1b[1;32m1.36x" in stream.getvalue()


def test_no_color_is_obeyed(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    print_summary(samples.photos(), stream=stream, width=80)
    assert "\x1b" not in stream.getvalue()
    assert "1.36x (1.34 to 1.38)" in stream.getvalue()


def test_a_stream_without_the_characters_gets_question_marks():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_summary(samples.hostile(), stream=stream)
    assert b"na?ve" in raw.getvalue()


def test_markup_in_names_stays_text():
    text = " ".join(summary_text(samples.hostile(), width=300).split())
    assert "[bold red]not markup[/bold red] [link=javascript:alert(4)]x[/link]" in text


def test_a_number_and_its_unit_stay_on_one_line():
    for width in range(50, 90, 3):
        text = summary_text(samples.photos(), width=width)
        assert not re.search(r"^\s*%", text, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_other_widths(width):
    assert "1.36x" in summary_text(samples.photos(), width=width)


def test_the_dearest_operators_with_interval_and_waiting():
    text = summary_text(samples.photos())
    table = text[text.index("Cost per operator") : text.index("Before and after")]
    assert re.search(r"map +photo_input.py:24 +731 \(722-741\) +29\.0 +8\d %", table)
    assert "31.0 (28.0-35.0)" in table and "(model)" in table
    assert "repeat" not in table


def test_where_nothing_was_profiled_no_cost_is_shown():
    assert "Cost per operator" not in summary_text(samples.no_dataset())
