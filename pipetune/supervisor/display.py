"""Shows the messages of a running worker to the user."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Protocol

from pipetune.core.messages import ActionSuppressed, LogLine, Message, Progress, VerdictKnown, WorkerStarted
from pipetune.supervisor.time_left import TimeLeft


class Screen(Protocol):
    """Displays progress; implemented by `report.progress.Progress`."""

    def update(self, phase: str, doing: str = "", left: float | None = None) -> None:
        """Shows the current state.

        Args:
            phase: the phase of the analysis.
            doing: the current activity.
            left: seconds until the end of the whole run, estimated; None if that is unknown.
        """
        ...

    def say(self, text: str) -> None:
        """Shows a line of text."""
        ...

    def verdict(self, word: str, sentence: str) -> None:
        """Shows the verdict: its name, and the sentence that explains it."""
        ...

    def warn(self, text: str) -> None:
        """Shows a warning."""
        ...


def show(message: Message, screen: Screen, time_left: TimeLeft | None = None) -> None:
    """Shows one message if it is meant for the user.

    Args:
        message: from a worker.
        screen: where it is shown.
        time_left: estimates the end of the run; None if that is not estimated.
    """
    match message:
        case WorkerStarted(sentence=sentence):
            screen.say(sentence)
        case Progress(best=best):
            left = None
            if time_left is not None:
                left = time_left.seconds(message.phase, message.left_seconds, promising=bool(best))
            doing = f"{message.activity} (proven: {best})" if best else message.activity
            screen.update(message.phase, doing, left)
        case VerdictKnown():
            if time_left is not None:
                time_left.verdict(message.verdict)
            screen.verdict(message.verdict, message.sentence)
        case LogLine(text=text):
            screen.say(text)
        case ActionSuppressed(what=what, count=1):
            screen.say(f"Suppressed while pipetune measures: {what.removesuffix('_suppressed')}.")
        case _:
            pass


class Tail:
    """A context manager that shows a growing log line by line."""

    def __init__(self, path: Path, screen: Screen, *, every_seconds: float = 0.2) -> None:
        self._path = path
        self._screen = screen
        self._every_seconds = every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._show_new_lines, daemon=True)

    def __enter__(self) -> Tail:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _show_new_lines(self) -> None:
        rest = b""
        with self._path.open("rb") as stream:
            while True:
                last = self._stop.wait(self._every_seconds)
                *lines, rest = (rest + stream.read()).split(b"\n")
                for line in lines:
                    self._screen.say(line.decode(errors="replace"))
                if last:
                    if rest:
                        self._screen.say(rest.decode(errors="replace"))
                    return
