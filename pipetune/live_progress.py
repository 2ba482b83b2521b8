"""Progress of an analysis in the user's own process: on a terminal, and below the cell of a notebook."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import TextIO, cast

from pipetune.core.edits import Plan
from pipetune.core.profile import Diagnosis, Finding
from pipetune.core.session import Session
from pipetune.journal import Listener
from pipetune.report.console import Progress
from pipetune.source.cells import Cells, in_notebook


class ProgressListener(Listener):
    """Shows events, and passes them on to another listener; `named` puts the names of cells into their texts."""

    def __init__(self, screen: Progress, listener: Listener, named: Callable[[str], str]) -> None:
        self._screen, self._listener, self._named = screen, listener, named

    def progress(self, phase: str, doing: str, *, best: str, left: float | None) -> None:
        """Shows what is being done."""
        self._screen.update(phase, self._named(f"{doing} (best so far: {best})" if best else doing), left)
        self._listener.progress(phase, doing, best=best, left=left)

    def verdict(self, diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> None:
        """Shows the verdict; the findings are in the report."""
        self._screen.verdict(diagnosis.verdict.value, self._named(diagnosis.sentence))
        self._listener.verdict(diagnosis, findings)

    def bottleneck(self, sentence: str) -> None:
        """Shows what limits the input."""
        self._screen.say(self._named(sentence))
        self._listener.bottleneck(sentence)

    def saved(self, session: Session) -> None:
        self._listener.saved(session)

    def trial_started(self, plan: Plan) -> None:
        self._listener.trial_started(plan)

    def trial_ended(self, key: str) -> None:
        self._listener.trial_ended(key)


class _Log(io.TextIOBase):
    """Writes to a stream as to a log file.

    On a terminal, a line would be redrawn several times a second, which takes 1 % of the interpreter's time (measured)
    from what is being measured in the same process.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


class _Screen(Progress):
    """Progress without the step in which the command starts a script: here the data is there already."""

    def __init__(self) -> None:
        super().__init__(cast(TextIO, _Log(sys.stderr)))
        self._console.is_jupyter = False  # else rich displays what it was told to write
        self._line.finished.add(self._step)


@contextlib.contextmanager
def showing_progress(listener: Listener, *, requested: bool) -> Iterator[Listener]:
    """Yields a listener that passes every event on, and shows progress on standard error, if requested and seen."""
    if not requested or not (in_notebook() or sys.stderr.isatty()):
        yield listener
        return
    with _Screen() as screen:
        yield ProgressListener(screen, listener, Cells().named)
