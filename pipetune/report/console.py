"""The terminal: colour only where it is wanted, characters only where it has them; and live progress on it, a checklist
of what is done and one line for what is being done.

Fed with plain calls, so that whoever follows the worker needs no rich. Each step of the checklist is printed once it
is finished, with the seconds it took. On a terminal the line below it is redrawn; in a log a line is printed when the
step changes and at most every `PLAIN_SECONDS` otherwise. All times are of one clock, that of the command.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pipetune.report import words

PLAIN_WIDTH = 80
WIDEST = 100

# Keeps a number and its unit on one line; not a character anyone writes, and a space again when printed.
_GLUE = "\ue000"
_UNIT = re.compile(r"(?<=\d) (?=(?:%|us|ms|s|[KMGT]?i?B)(?!\w))")


def console_for(stream: TextIO, *, width: int | None = None) -> Console:
    """A console that colours only a terminal, and never when NO_COLOR is set (https://no-color.org)."""
    plain = bool(os.environ.get("NO_COLOR")) or not stream.isatty()
    if width is None:
        width = min(Console(file=stream).width, WIDEST) if stream.isatty() else PLAIN_WIDTH
    return Console(
        file=stream,
        width=width,
        no_color=plain,
        color_system=None if plain else "auto",
        force_terminal=False if plain else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def write(stream: TextIO, text: str) -> None:
    """Write `text`, replacing what the stream's encoding does not have."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.replace(_GLUE, " ")
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def stripped(text: str) -> str:
    """The same lines without trailing blanks: rich fills each up to the width."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


class Command(Text):
    """A command to copy: never wrapped by us, however long."""


def print_parts(parts: Iterable[RenderableType], stream: TextIO | None, *, width: int | None = None) -> None:
    """Print `parts` one below the other, to standard output if there is no stream."""
    stream = sys.stdout if stream is None else stream
    console = console_for(stream, width=width)
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, Command))
    text = captured.get()
    write(stream, text if stream.isatty() else stripped(text))


def indented(content: RenderableType, by: int = 2) -> Padding:
    return Padding(content, (0, 0, 0, by))


def unit_text(content: str, style: str = "") -> Text:
    """Text in which a number and its unit stay on one line."""
    return Text(_UNIT.sub(_GLUE, content), style=style)


def wrapped(console: Console, content: str, style: str = "", *, indent: int = 0) -> Text:
    """The same in lines as wide as the console less `indent`, for what does not go through `write`."""
    lines = unit_text(content).wrap(console, max(20, console.width - indent))
    return Text("\n".join(line.plain.rstrip().replace(_GLUE, " ") for line in lines), style=style)


PLAIN_SECONDS = 10.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # control sequences (ECMA-48, 5.4)

_STEPS = {
    "starting": "starting the script",
    "capture": "starting the script",
    "cluster": "starting the script",
    "profile": "input or model?",
    "verdict": "input or model?",
    "skew": "input or model?",
    "costs": "which operator?",
    "files": "which operator?",
    "trials": "trying changes",
    "confirmation": "trying changes",
    "emission": "writing the change",
    "validation": "studying validation",
    "verification": "proving the patch",
    "steps": "measuring details",
    "memory": "measuring details",
    "course": "measuring details",
    "advice": "measuring details",
    "division": "measuring details",
    "report": "writing the report",
}
"""The step of the checklist that a phase belongs to; a phase that is not listed is a step of its own."""

_LABEL_WIDTH = 20
_SOON = 5.0  # seconds left, below which no number is said


class Progress:
    """Shows how a run gets on; a context manager.

    Args:
        stream: where to; standard error by default, so that standard output stays free for results.
        quiet: show nothing but warnings.
        clock: seconds, monotonic; replaced in tests.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._clock = clock
        self._console = console_for(self._stream, width=width)
        self._line = _Line(clock)
        self._live: Live | None = None
        self._step = _STEPS["starting"]
        self._step_began = clock()
        self._updated = False
        self._result = ""  # of the step, said when it ends
        self._printed_at = -PLAIN_SECONDS
        # A line is redrawn only where every character of a name can be printed.
        unicode = (getattr(self._stream, "encoding", None) or "").lower().startswith("utf")
        self._done = "\N{CHECK MARK}" if unicode else "+"
        if not quiet and unicode and self._stream.isatty():
            self._live = Live(self._line, console=self._console, transient=True, refresh_per_second=8)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()  # the answer follows: the step that is running needs no line

    def close(self) -> None:
        """Take the live line away; safe to call twice."""
        if self._live:
            self._live.stop()
            self._live = None

    def update(self, phase: str, doing: str = "", left: float | None = None) -> None:
        """Say what is happening now.

        Args:
            phase: "capture", "profile", "trials", ...
            doing: what is being done, in words.
            left: seconds until the end of the whole run, estimated; None where that is unknown.
        """
        if self._quiet:
            return
        step, doing = _STEPS.get(phase, words.clean(phase)), words.clean(doing)
        changed = step != self._step or not self._updated
        self._updated = True
        if step != self._step:
            self._finish_step()
            self._step, self._step_began = step, self._clock()
        self._line.set(step, doing, left)
        now = self._clock()
        if self._live or (not changed and now - self._printed_at < PLAIN_SECONDS):
            return
        self._printed_at = now
        write(self._stream, f"{self._line.plain()}\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._permanent(text, style="")

    def verdict(self, word: str, sentence: str) -> None:
        """The verdict, as soon as it is known and before any trial: it ends its step."""
        self.conclude(f"{word.upper()}. {words.sentence(sentence)}")

    def conclude(self, result: str) -> None:
        """What came of the step that is running, in words: it ends the step."""
        if not self._quiet:
            self._result = result
            self._finish_step()

    def warn(self, text: str) -> None:
        """A line that stays, in quiet mode too: something went wrong and the run goes on."""
        self._permanent(text, style="yellow")

    def _finish_step(self) -> None:
        """Print the step that is over, with its seconds and what came of it; once."""
        if self._step in self._line.finished:
            self._result = ""
            return
        self._line.finished.add(self._step)
        seconds = f"{self._clock() - self._step_began:.0f} s"
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, style="green")
        grid.add_column(no_wrap=True, width=_LABEL_WIDTH)
        grid.add_column(no_wrap=True, justify="right", width=5, style="dim")
        grid.add_column()
        result = wrapped(self._console, words.clean(self._result), "bold", indent=_LABEL_WIDTH + 10)
        grid.add_row(self._done, self._step, seconds, result)
        self._result = ""
        self._print(grid)

    def _permanent(self, text: str, *, style: str) -> None:
        self._print(wrapped(self._console, words.clean(_last_state(text), lines=True), style))

    def _print(self, content: Table | Text) -> None:
        if self._live:
            self._console.print(content)
            return
        with self._console.capture() as captured:
            self._console.print(content)
        write(self._stream, stripped(captured.get()))


def _last_state(text: str) -> str:
    """What a terminal would show of a line that was drawn over itself: a script's own progress bar."""
    lines = (_ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(line.replace("\b", "") for line in lines)


class _Line:
    """The line that is redrawn; its times run on between two updates."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._spinner = Spinner("line")
        self.finished: set[str] = set()
        self.set("starting the script", "", None)

    def set(self, step: str, doing: str, left: float | None) -> None:
        self._step, self._doing = step, doing
        self._ends = None if left is None else self._clock() + left

    def _figures(self) -> list[str]:
        now = self._clock()
        figures = [f"{now - self._began:.0f} s"]
        if self._ends is not None:
            left = self._ends - now
            figures.append(f"about {_rounded(left)} to go" if left >= _SOON else "a few seconds to go")
        return figures

    def plain(self) -> str:
        """The line for a log."""
        return "  ".join(part for part in (f"[{self._step}]", self._doing, ", ".join(self._figures())) if part)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        doing = Text(self._step, style="bold")
        doing.append(f"  {self._doing}" if self._doing else "", style="not bold")
        grid.add_row(self._spinner.render(self._clock()), doing, Text(", ".join(self._figures()), style="dim"))
        yield grid


def _rounded(seconds: float) -> str:
    """An estimate as one says it: "45 s", "1 min 20 s"."""
    shown = 5 * round(seconds / 5) if seconds < 60 else 10 * round(seconds / 10)
    return f"{shown} s" if shown < 60 else f"{shown // 60} min {shown % 60:02d} s"
