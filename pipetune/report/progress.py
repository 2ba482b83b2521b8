"""Live progress while a session is made: what is being tried, best so far, time left.

Fed with plain calls, so that whoever follows the worker needs no rich. On a terminal one line is redrawn; in
a log a line is printed when the phase changes and at most every `PLAIN_SECONDS` otherwise. What matters for
good (the verdict, a restart of the worker) is printed once, as a line that stays.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pipetune.report import words
from pipetune.report.console import console_for, wrapped, write

PLAIN_SECONDS = 10.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # control sequences (ECMA-48, 5.4)


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
        self._phase = ""
        self._printed_at = -PLAIN_SECONDS
        # A line is redrawn only where every character of a name can be printed.
        unicode = (getattr(self._stream, "encoding", None) or "").lower().startswith("utf")
        if not quiet and unicode and self._stream.isatty():
            self._live = Live(self._line, console=self._console, transient=True, refresh_per_second=8)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the live line away; safe to call twice."""
        if self._live:
            self._live.stop()
            self._live = None

    def update(
        self,
        phase: str,
        doing: str = "",
        best: float | None = None,
        elapsed: float = 0.0,
        left: float | None = None,
    ) -> None:
        """Say what is happening now.

        Args:
            phase: "capture", "profile", "trials", ...
            doing: what is being tried.
            best: the best speedup so far, a ratio; not a result before it is confirmed.
            elapsed: seconds since the start.
            left: seconds of the budget that are left; None where no limit is running.
        """
        if self._quiet:
            return
        phase, doing = words.clean(phase), words.clean(doing)
        self._line.set(phase, doing, best, elapsed=elapsed, left=left)
        if self._live:
            return
        if phase == self._phase and elapsed - self._printed_at < PLAIN_SECONDS:
            return
        self._phase, self._printed_at = phase, elapsed
        write(self._stream, f"{self._line.plain()}\n")

    def say(self, text: str) -> None:
        """A line that stays: the first line, the verdict."""
        if not self._quiet:
            self._permanent(text, style="")

    def verdict(self, word: str, sentence: str) -> None:
        """The verdict, as soon as it is known and before any trial."""
        if not self._quiet:
            self._permanent(f"Verdict: {word}. {words.sentence(sentence)}", style="bold")

    def warn(self, text: str) -> None:
        """A line that stays, in quiet mode too: something went wrong and the run goes on."""
        self._permanent(text, style="yellow")

    def _permanent(self, text: str, *, style: str) -> None:
        line = wrapped(self._console, words.clean(_last_state(text), lines=True), style)
        if self._live:
            self._console.print(line)
            return
        with self._console.capture() as captured:
            self._console.print(line)
        write(self._stream, "".join(f"{part.rstrip()}\n" for part in captured.get().splitlines()))


def _last_state(text: str) -> str:
    """What a terminal would show of a line that was drawn over itself: a script's own progress bar."""
    lines = (_ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(line.replace("\b", "") for line in lines)


class _Line:
    """The line that is redrawn; its times run on between two updates."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spinner = Spinner("line")
        self.set("starting", "", None, elapsed=0.0, left=None)

    def set(self, phase: str, doing: str, best: float | None, *, elapsed: float, left: float | None) -> None:
        self._phase, self._doing, self._best = phase, doing, best
        self._elapsed, self._left, self._at = elapsed, left, self._clock()

    def _figures(self) -> list[str]:
        since = max(0.0, self._clock() - self._at)
        figures = [] if self._best is None else [f"best so far {words.ratio(self._best)}"]
        figures.append(f"{self._elapsed + since:.0f} s")
        if self._left is not None:
            figures.append(f"{max(0.0, self._left - since):.0f} s left")
        return figures

    def plain(self) -> str:
        """The line for a log."""
        return "  ".join(part for part in (f"[{self._phase}]", self._doing, ", ".join(self._figures())) if part)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        doing = Text(self._phase, style="bold")
        doing.append(f"  {self._doing}" if self._doing else "", style="not bold")
        grid.add_row(self._spinner.render(self._clock()), doing, Text(", ".join(self._figures()), style="dim"))
        yield grid
