"""Forwards the events of an analysis to the supervisor as messages."""

from __future__ import annotations

import time

from pipetune.core.messages import (
    Log,
    MessageWriter,
    Progress,
    SessionSaved,
    TrialEnded,
    TrialStarted,
    VerdictKnown,
)
from pipetune.core.profile import Diagnosis, Finding
from pipetune.core.session import Session

_SAVE_EVERY_SECONDS = 1.0


class Telling:
    """A `journal.Listener` that sends messages over the worker's pipe."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer
        self._saved = 0.0

    def progress(self, phase: str, doing: str, *, best: str, elapsed: float, left: float | None) -> None:
        self._writer.send(Progress(phase, doing, best=best, elapsed_seconds=elapsed, left_seconds=left))

    def verdict(self, diagnosis: Diagnosis, findings: tuple[Finding, ...]) -> None:
        # The findings are in the summary; sent here too, each would be on the screen twice.
        self._writer.send(VerdictKnown(diagnosis.sentence, diagnosis.verdict.value))

    def bottleneck(self, sentence: str) -> None:
        self._writer.send(Log(sentence))

    def saved(self, session: Session) -> None:
        now = time.monotonic()
        if session.complete or now - self._saved > _SAVE_EVERY_SECONDS or len(session.trials) < 2:
            self._saved = now
            self._writer.send(SessionSaved(session))

    def trial_started(self, key: str) -> None:
        self._writer.send(TrialStarted(key))

    def trial_ended(self, key: str) -> None:
        self._writer.send(TrialEnded(key))
