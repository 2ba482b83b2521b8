"""Live progress."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

import pipetune
from benchmarks.recorded import FakeClock
from pipetune.report import console
from pipetune.report.console import Progress
from tests.report.reading import Terminal


def logged(**options: bool) -> tuple[io.StringIO, Progress, FakeClock]:
    stream, clock = io.StringIO(), FakeClock()  # without an encoding: no check mark
    return stream, Progress(stream, clock=clock.now, **options), clock


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_number_keeps_its_unit_where_the_verdict_is_wrapped(kind: type[io.StringIO]) -> None:
    stream = kind()
    with Progress(stream) as progress:
        progress.update("verdict")
        progress.verdict("undetermined", "Training waits for input 45 % of each step (9.3 % to 59 %): uncertain")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert "UNDETERMINED" in shown and "\ue000" not in shown
    assert not re.search(r"^\s*%", shown, re.MULTILINE)


def test_a_log_gets_a_line_per_step_and_every_ten_seconds_and_what_is_finished():
    stream, progress, clock = logged()
    with progress:
        progress.update("capture", "running train.py")
        clock.advance(3)
        progress.update("capture", "still")
        clock.advance(6.4)
        progress.update("profile", "measuring", 70)
        clock.advance(8)
        progress.verdict("input-bound", "training waits for input 79 % of each step")
        progress.update("trials", "parallel-map", 44.0)
        clock.advance(9)
        progress.update("trials", "prefetch", 35.0)
        clock.advance(2)
        progress.update("trials", "cache", 33.0)
        progress.update("verification", "pair 2")
        clock.advance(5)
        progress.conclude("2.31x faster")
        progress.update("steps", "epochs")
    assert stream.getvalue().splitlines() == [
        "[starting the script]  running train.py  0 s",
        "+ starting the script    9 s",
        "[input or model?]  measuring  9 s, about 1 min 10 s to go",
        "+ input or model?        8 s INPUT-BOUND. Training waits for input 79 % of each",
        "                             step.",
        "[trying changes]  parallel-map  17 s, about 45 s to go",
        "[trying changes]  cache  28 s, about 35 s to go",
        "+ trying changes        11 s",
        "[proving the patch]  pair 2  28 s",
        "+ proving the patch      5 s 2.31x faster",
        "[measuring details]  epochs  33 s",
    ]


def test_phases_of_one_step_are_one_line_of_the_checklist():
    stream, progress, clock = logged()
    for phase in ("profile", "verdict", "costs", "files", "trials", "emission", "verification", "report"):
        progress.update(phase)
        clock.advance(4)
    finished = [line.split("  ")[0] for line in stream.getvalue().splitlines() if line.startswith("+")]
    first = ["starting the script", "input or model?", "which operator?", "trying changes"]
    assert finished == [f"+ {step}" for step in (*first, "writing the change", "proving the patch")]
    stream, progress, _ = logged()
    for phase in ("trials", "memory", "trials", "report"):
        progress.update(phase)
    assert stream.getvalue().count("+ trying changes") == 1, "not twice where a step comes again"


def test_quiet_shows_warnings_alone():
    stream, progress, _ = logged(quiet=True)
    with progress:
        progress.update("trials", "x")
        progress.say("first line")
        progress.verdict("input-bound", "x")
        progress.warn("The worker was killed and started again.")
    assert stream.getvalue() == "The worker was killed and started again.\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("\r\x1b[1m1/10\x1b[0m bar\r\x1b[1m10/10\x1b[0m done\b\b\r", "10/10 done\n"),  # a script's own progress bar
        ("\x07bell", "\\u0007bell\n"),
        ("[red]x[/red] :smile:", "[red]x[/red] :smile:\n"),
    ],
)
def test_text_is_one_line_and_no_markup(said, shown):
    stream, progress, _ = logged()
    progress.say(said)
    assert stream.getvalue() == shown


def test_a_terminal_gets_one_line_and_keeps_what_is_finished(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    progress = Progress(stream, width=60)
    with progress:
        progress.update("verdict", "a name " * 30, 44.0)
        progress.verdict("input-bound", "waits")
    shown = stream.getvalue()
    assert "\N{CHECK MARK}" in shown and "INPUT-BOUND. Waits." in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line is taken away
    progress.close()


def test_times_run_on_between_updates_and_never_say_that_nothing_is_left():
    _, progress, clock = logged()
    progress.update("trials", "x", 44.0)
    clock.advance(5.0)
    assert progress._line.plain() == "[trying changes]  x  5 s, about 40 s to go"
    clock.advance(500.0)
    assert progress._line.plain().endswith("505 s, a few seconds to go")


def test_a_terminal_without_the_characters_gets_plain_lines():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with Progress(stream) as progress:
        progress.update("trials", "图像")
    assert b"[trying changes]  ??" in raw.getvalue()


def test_every_phase_of_an_analysis_is_part_of_a_step_that_has_a_name() -> None:
    texts = (path.read_text() for path in Path(pipetune.__path__[0]).rglob("*.py"))
    phases = {name for text in texts for name in re.findall(r'phase(?:\(|=)\s*"(\w+)"', text)}
    assert {"costs", "verification"} < phases <= console._STEPS.keys()
