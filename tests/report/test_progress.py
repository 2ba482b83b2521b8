"""Live progress."""

from __future__ import annotations

import io
import re

import pytest

from pipetune.report.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def logged(**options: object) -> tuple[io.StringIO, Progress]:
    stream = io.StringIO()
    return stream, Progress(stream, clock=Clock(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_number_keeps_its_unit_where_the_verdict_is_wrapped(kind: type[io.StringIO]) -> None:
    stream = kind()
    with Progress(stream, clock=Clock()) as progress:
        progress.verdict("undetermined", "Training waits for input 45 % of each step (9.3 % to 59 %): too uncertain")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert "(9.3 % to\n59 %): too" in shown and "\ue000" not in shown


def test_a_log_gets_a_line_per_phase_and_every_ten_seconds():
    stream, progress = logged()
    with progress:
        progress.update("capture", "running train.py", elapsed=0.5)
        progress.update("capture", "still", elapsed=3.0)
        progress.update("trials", "parallel-map", 1.314, elapsed=20.0, left=44.0)
        progress.update("trials", "prefetch", 1.314, elapsed=29.0, left=35.0)
        progress.update("trials", "cache", 1.42, elapsed=31.0, left=33.0)
    assert stream.getvalue().splitlines() == [
        "[capture]  running train.py  0 s",
        "[trials]  parallel-map  best so far 1.31x, 20 s, 44 s left",
        "[trials]  cache  best so far 1.42x, 31 s, 33 s left",
    ]


def test_the_verdict_stays():
    stream, progress = logged()
    progress.verdict("input-bound", "a step waits 28 % of its time")
    assert stream.getvalue() == "Verdict: input-bound. A step waits 28 % of its time.\n"


def test_quiet_shows_warnings_alone():
    stream, progress = logged(quiet=True)
    with progress:
        progress.update("trials", "x", elapsed=50.0)
        progress.say("first line")
        progress.verdict("input-bound", "x")
        progress.warn("The worker was killed and started again.")
    assert stream.getvalue() == "The worker was killed and started again.\n"


def test_a_scripts_own_progress_bar_is_one_line():
    stream, progress = logged()
    progress.say("\r\x1b[1m1/10\x1b[0m bar\r\x1b[1m10/10\x1b[0m done\b\b\r")
    progress.say("\x07bell")
    assert stream.getvalue() == "10/10 done\n\\u0007bell\n"


def test_text_is_not_markup():
    stream, progress = logged()
    progress.say("[red]x[/red] :smile:")
    assert stream.getvalue() == "[red]x[/red] :smile:\n"


def test_a_terminal_gets_one_line_and_keeps_what_was_said(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    progress = Progress(stream, width=60)
    with progress:
        progress.update("trials", "a name " * 30, 1.31, elapsed=20.0, left=44.0)
        progress.verdict("input-bound", "waits")
    shown = stream.getvalue()
    assert "Verdict: input-bound. Waits." in shown
    assert "best so far 1.31x" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line is taken away
    progress.close()


def test_times_run_on_between_updates():
    clock = Clock()
    progress = Progress(io.StringIO(), clock=clock)
    progress.update("trials", "x", elapsed=20.0, left=44.0)
    clock.now += 5.0
    assert progress._line.plain() == "[trials]  x  25 s, 39 s left"
    clock.now += 500.0
    assert progress._line.plain().endswith("0 s left")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_the_characters_gets_plain_lines(encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with Progress(stream) as progress:
        progress.update("trials", "图像", elapsed=1.0)
    assert raw.getvalue().startswith(b"[trials]  ??")
